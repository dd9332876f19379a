/* generate.h - continue a text with a trained model. */
#ifndef TRIREME_TRAIN_GENERATE_H
#define TRIREME_TRAIN_GENERATE_H

#include <stdio.h>

#include "io/tokenizer.h"
#include "train/session.h"

struct generate_request {
    const char *prompt;
    int64_t tokens;     /* at most this many new ones */
    double temperature; /* 0: always the most likely token */
    int64_t top_k;      /* sample among this many most likely tokens; 0: all */
    uint64_t seed;
};

/* Write prompt and continuation to out (NULL: nowhere), token by token, up to an end-of-text token.
 * The session is for SESSION_GENERATE.  Collective: all ranks have the same request.  Each token is
 * computed from the last data.seq_len tokens, by default the length in training, because models
 * write worse beyond it.  The n-th random number is a function of (seed, n).  Returns 0, or -1 with
 * err set. */
int generate(struct session *session, const struct tokenizer *tokenizer,
             const struct generate_request *request, FILE *out, struct error *err);

#endif
