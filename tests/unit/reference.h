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
    /* Experts that routers chose at the first call of reference_loss(), in the order in which they
     * are asked; later calls choose the same ones, as gradients of a choice do not exist. */
    int32_t *choice;
    int64_t choices, next;
    double
        balance; /* by the last call: model.router_aux_loss_coef times the mean over layers of the
                    load balancing losses, each times the tokens of its sequence with targets */
};

/* Copy the session's masters, for reference_free(). */
void reference_take(struct reference *reference, const struct session *session);
void reference_free(struct reference *reference);

/* Return the values of a tensor; NULL: there is none of this name. */
double *reference_find(const struct reference *reference, const char *name);

/* Return the sum of the token losses of `rows` sequences, without targets below 0.  logits: NULL,
 * or [rows, seq, vocab] to receive them. */
double reference_loss(struct reference *reference, const int32_t *tokens, const int32_t *targets,
                      int64_t rows, int64_t seq, double *logits);

#endif
