/* shape_check.h - is what a GPU's libraries compute for the shapes of a run right?
 *
 * The self-check (self_check.h) tries each family of kernels on small inputs.  For another shape a
 * library may take another kernel, and several of its known faults are of some shapes alone (sums
 * without their last terms, NaN at sequences of some lengths).  So the products and attentions of a
 * run are compared with trireme's own kernels, each shape once, before anything is computed:
 *
 *   device_products_note(d, 1)   ops are run; their shapes and memory are noted (product.h)
 *   device_products_note(d, 0)
 *   device_shape_check()         each of those noted, in the memory that it was met with
 *   device_shape_replace()       those that are wrong are computed otherwise from then on, on every
 *                                rank alike: a product by the library's next algorithm, which is to
 *                                be checked as well; after the last one by trireme's own kernel, in
 *                                fp8 in bf16; an attention by trireme's own kernels
 *
 * Inputs are random numbers, but for attention, whose first head has scores far below 0 besides.
 * Compared are some rows at the beginning, in the middle and at the end, by the norm of the
 * difference.  Not checked: attention of more than some 2e13 operations (est. a fifth of a second
 * by own kernels), and ops that trireme's own kernels do anyway.  CPUs note nothing.
 */
#ifndef TRIREME_DEVICE_SHAPE_CHECK_H
#define TRIREME_DEVICE_SHAPE_CHECK_H

#include "device/product.h"

/* The members of a shape: whether it is a product (0) or an attention (1), then those of the
 * product's shape, or the pass, members of struct attention, and the slices that it is divided
 * into. */
enum { SHAPE_WORDS = PRODUCT_SHAPE + 1 };

struct shape_check {
    int64_t shape[SHAPE_WORDS]; /* without what this rank's free memory decides */
    char name[200];             /* "product bf16 [4096,512] x [512,1536] to fp32" */
    double off, bound; /* the difference as a share of the right result; NaN where one of both is,
                          or the library refuses the shape */
    int is_wrong;
};

/* How many shapes are noted, products first; 0 on CPUs. */
int device_shapes_noted(const struct device *d);

/* The shape of number i of those noted. */
void device_shape(const struct device *d, int i, int64_t shape[SHAPE_WORDS]);

/* Compare number i of those noted.  Writes over the memory it was met with: operands, results and
 * scratch.  Returns 0 and check; 1 where there is nothing to compare; or -1 with err set. */
int device_shape_check(struct device *d, int i, struct shape_check *check, struct error *err);

/* Who computes a shape that was replaced. */
enum shape_check_replaced { SHAPE_BY_OWN_KERNELS, SHAPE_IN_BF16, SHAPE_BY_OTHER_ALGORITHM };

/* From now on have this shape computed otherwise, also one that another rank noted.  Returns one of
 * enum shape_check_replaced, or -1 with err set. */
int device_shape_replace(struct device *d, const int64_t shape[SHAPE_WORDS], struct error *err);

/* Was a run with this key found right before?  The key is a line, of what self_check_key() writes
 * and of the shapes.  Returns 1 where it was. */
int shape_check_is_kept(const char *key);
/* Keep that it was, beside what self-checks keep.  Returns 0, or -1 with err set. */
int shape_check_keep(const char *key, struct error *err);

#endif
