/* experts.h - a mixture of experts in place of a block's feed-forward layer, for families that have
 * one: Jiang et al. 2024 (arXiv 2401.04088), Yang et al. 2025 (2505.09388). */
#ifndef TRIREME_MODEL_EXPERTS_H
#define TRIREME_MODEL_EXPERTS_H

#include "model/model.h"

/* The parameters, as values of a graph. */
struct experts {
    int router, gate_up, down;
};

/* Declare the router and the experts' matrices, of each of which tensor ranks have a part. */
struct experts experts_declare(struct graph *graph, const struct config_model *config);

/* addend + what each row's experts make of h.  h has all rows; addend and the result are own rows
 * (transformer.h).  In training gradients are of the loss times loss_factor. */
int experts_forward(struct graph *graph, const struct config_model *config,
                    const struct experts *experts, int h, int addend, float loss_factor);

#endif
