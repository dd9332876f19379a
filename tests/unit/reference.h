/* reference.h - computing the loss of a Llama in double precision by its definition, one token
 * after another.  This code knows trireme's configuration and names of tensors, and nothing of its
 * graphs, ops or layouts. */
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

/* Copy the session's masters, for reference_free(). */
void reference_take(struct reference *reference, const struct session *session);
void reference_free(struct reference *reference);

/* Return the values of a tensor; NULL: there is none of this name. */
double *reference_find(const struct reference *reference, const char *name);

/* Return the sum of the token losses of `rows` sequences, without targets below 0.  logits: NULL,
 * or [rows, seq, vocab] to receive them. */
double reference_loss(const struct reference *reference, const int32_t *tokens,
                      const int32_t *targets, int64_t rows, int64_t seq, double *logits);

#endif
