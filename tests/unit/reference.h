/* reference.h - the loss of a Llama in double precision, by its definition, one token after
 * another. Knows trireme's configuration and names of tensors, and nothing of its graphs, ops or
 * layouts. */
#ifndef TRIREME_TESTS_UNIT_REFERENCE_H
#define TRIREME_TESTS_UNIT_REFERENCE_H

#include "tests/unit/rig.h"

/* The weights of a model as doubles, by name. */
struct reference {
    const struct config_model *config;
    int tensors;
    struct flat_tensor *tensor; /* copies: names and sizes */
    double **value;
};

/* Take the masters of the session as they are. */
void reference_take(struct reference *reference, const struct session *session);
void reference_free(struct reference *reference);

/* The values of a tensor; NULL if there is none. */
double *reference_find(const struct reference *reference, const char *name);

/* Sum of the token losses of `rows` sequences, targets below 0 left out.  logits NULL, or
 * [rows, seq, vocab] to receive them. */
double reference_loss(const struct reference *reference, const int32_t *tokens,
                      const int32_t *targets, int64_t rows, int64_t seq, double *logits);

#endif
