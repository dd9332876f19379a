/* generate.h - continue a text with a trained model. */
#ifndef TRIREME_TRAIN_GENERATE_H
#define TRIREME_TRAIN_GENERATE_H

#include <stdio.h>

#include "io/tokenizer.h"
#include "train/session.h"

struct generate_request {
    const char *prompt;
    int64_t tokens;     /* at most this many new ones */
    double temperature; /* 0: always the likeliest */
    int64_t top_k;      /* sample among this many likeliest; 0: all */
    uint64_t seed;
};

/* Write prompt and continuation to out as they come, up to an end-of-text token.  The session is
 * for SESSION_GENERATE; each token follows from the last data.seq_len of its config, the length
 * trained at if nobody asks for another: beyond it models write worse.  The n-th draw is a function
 * of (seed, n).
 * Returns 0, or -1 with err set. */
int generate(struct session *session, const struct tokenizer *tokenizer,
             const struct generate_request *request, FILE *out, struct error *err);

#endif
