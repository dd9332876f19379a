/* optimizer.h - the optimizers, one row each: the state they keep per element, and their step. */
#ifndef TRIREME_SEGMENT_OPTIMIZER_H
#define TRIREME_SEGMENT_OPTIMIZER_H

#include "config/config.h"
#include "device/ops.h"

enum { OPTIMIZER_SLOTS = 4 };

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
    enum dtype master_dtype;
    enum dtype slot_dtype; /* of the first slot */
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

/* What is kept of elements: a number of each, in the format of train.optimizer_dtype; a code of
 * each (base/dynamic8.h); the largest magnitude of each block, in fp32. */
enum optimizer_kept { KEPT_NUMBERS, KEPT_CODES, KEPT_LARGEST };

/* One kind of state that an optimizer keeps; zero before the first step. */
struct optimizer_slot {
    const char *name; /* PyTorch's, where it has the same */
    enum optimizer_kept kept;
};

struct optimizer {
    const char *name; /* as checkpoints say it */
    int slots;
    struct optimizer_slot slot[OPTIMIZER_SLOTS];
    /* Consecutive elements of a tensor that are kept together, from its first one on: no shard and
     * no box of it may cut them; 0: none are. */
    int block;
    int64_t least; /* elements of the smallest tensor whose rule it is, where it has blocks */
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

/* The format of slot number k; configured: that of train.optimizer_dtype. */
enum dtype optimizer_slot_dtype(const struct optimizer *optimizer, int k, enum dtype configured);

/* How many numbers slot number k has for elems elements, which are whole blocks. */
int64_t optimizer_slot_elems(const struct optimizer *optimizer, int k, int64_t elems);

/* The bytes of slot number k for so many elements, and those of all slots for one element. */
size_t optimizer_slot_bytes(const struct optimizer *optimizer, int k, int64_t elems,
                            enum dtype configured);
double optimizer_bytes_each(const struct optimizer *optimizer, enum dtype configured);

/* Whose rule a tensor takes with this optimizer configured; takes: 1 where that one takes it.  What
 * muon does not (all but matrices that activations are multiplied by) and adamw8bit does not
 * (embeddings, what is small or not in whole blocks) is AdamW's. */
enum config_optimizer optimizer_of(enum config_optimizer configured, int takes);

#endif
