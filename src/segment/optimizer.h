/* optimizer.h - the optimizers, one row each: the state they keep per element, and their step. */
#ifndef TRIREME_SEGMENT_OPTIMIZER_H
#define TRIREME_SEGMENT_OPTIMIZER_H

#include "config/config.h"
#include "device/ops.h"

enum { OPTIMIZER_SLOTS = 2 };

/* The numbers of one step for every optimizer; weight_decay is that of what decays. */
struct optimizer_rule {
    struct adamw adamw;
    struct sgd sgd;
    struct momentum momentum; /* these are muon's */
    struct muon muon;
    enum config_adjust_lr adjust_lr;
    int ns_steps;
    enum dtype ns_dtype;
};

/* Elements that are updated alike. */
struct optimizer_range {
    enum dtype master_dtype, slot_dtype;
    void *master, *slot[OPTIMIZER_SLOTS];
    enum dtype grad_dtype; /* fp32, or of rules that are not of matrices bf16 */
    const void *grad;
    enum dtype param_dtype;
    void *param; /* the copy that is computed with; NULL where that is master */
    int64_t elems;
    int64_t rows, cols;       /* of the matrix, where the rule is of matrices */
    int decays;               /* 0: without weight decay */
    struct rounding rounding; /* where master or state is bf16 */
};

struct optimizer {
    const char *name; /* as checkpoints say it */
    int slots;
    const char
        *slot[OPTIMIZER_SLOTS]; /* names of the state, PyTorch's; zero before the first step */
    /* 1: the rule is of whole matrices: MOMENTUM, which updates the state, and ORTHOGONALIZE make
     * of the gradient what UPDATE is given in its place. */
    int of_matrices;
    void (*update)(struct device *d, const struct optimizer_rule *rule, const double *factor,
                   const struct optimizer_range *range);
};

/* Is what is updated rounded stochastically? */
static inline int optimizer_rounds(const struct optimizer_range *range)
{
    return adamw_rounds(range->master_dtype, range->slot_dtype);
}

const struct optimizer *optimizer_row(enum config_optimizer optimizer);

/* Whose rule a tensor takes with this optimizer configured: what is no matrix that activations are
 * multiplied by (embeddings, head, norms, biases) is AdamW's where that one is of matrices. */
enum config_optimizer optimizer_of(enum config_optimizer configured, int is_matrix);

#endif
