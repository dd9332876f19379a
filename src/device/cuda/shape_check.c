/* shape_check.c - note the products and attentions of a run by libraries, compare them with
 * trireme's own kernels (shape_product.c, shape_attention.c), and replace them; contracts in
 * device/shape_check.h.
 *
 *   fill      the inputs, in the memory that the shape was met with
 *   library   computes all of it
 *   blocks    of its result go to the host: rows at the beginning, in the middle and at the end
 *   own       kernels compute the same: of a product these rows alone, of an attention the first
 *             and the last sequence
 *   compare   the blocks: the norm of the difference, of a product of all, of an attention of each
 *             head of queries, keys and values in each block by itself
 *
 * Bounds are some times what roundings make.  Of two results in 16 bits few numbers differ, by one
 * place: the sums are those of fp32.  Tensor cores cut these off after each 8 (A100) or 16 terms
 * instead of rounding them, always towards 0 (Fasi et al. 2021, Numerical behavior of NVIDIA tensor
 * cores), which is est. 3.5e-4 or 1.9e-4 of a sum of 131072 terms, as a weight's gradient is of as
 * many tokens, and grows with their number.  Of inputs in fp32 the bound is below what tf32 would
 * make of them, 3e-4.  Products in fp8 are added up in about 14 bits (compute capability 9.0), and
 * own kernels multiply the same rounded numbers in bf16.  Attention rounds weights and the
 * gradients of scores before it sums them.  A product of 4096 terms that leaves out one of them is
 * about 1.6 % off, one of 131072 terms 0.28 %, which in fp8 is within the bound.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "device/cuda/shape_check_private.h"

struct cuda_shapes {
    struct shape_attention *noted;
    int count, capacity;
};

/* ---- noting ---- */

enum { SLICE_WORD = 9, SLICE_WORDS = 3 };

/* The slices that a rank divides an attention into depend on its own free memory, and the library's
 * kernel on the slices. */
static void attention_shape(const struct attention *a, enum device_pass pass, int64_t *shape)
{
    const struct sdpa_slice slice = sdpa_slice_of(a, pass);
    const int64_t words[] = {
        1,           pass,        a->dt,        a->batch,    a->seq,         a->heads,
        a->kv_heads, a->head_dim, a->any_order, slice.batch, slice.kv_heads, slice.tokens};
    memset(shape, 0, SHAPE_WORDS * sizeof *shape);
    memcpy(shape, words, sizeof words);
}

/* On this rank. */
static struct attention attention_of(const struct device *d, const int64_t *shape)
{
    return (struct attention){.dt = (enum dtype)shape[2],
                              .batch = shape[3],
                              .seq = shape[4],
                              .heads = shape[5],
                              .kv_heads = shape[6],
                              .head_dim = shape[7],
                              .any_order = (int)shape[8],
                              .scratch_bytes =
                                  shape[1] == DEVICE_BACKWARD ? d->attention_bytes : 0};
}

void cuda_shape_note(struct device *d, const struct attention *a, enum device_pass pass,
                     const struct cuda_attention_memory *at)
{
    struct cuda_shapes *s = cuda_state(d)->shapes;
    int64_t shape[SHAPE_WORDS], other[SHAPE_WORDS];
    if (!cuda_state(d)->gemms->noting)
        return;
    if (!s)
        s = cuda_state(d)->shapes = array_make(1, sizeof *s);
    attention_shape(a, pass, shape);
    for (int i = 0; i < s->count; i++) {
        attention_shape(&s->noted[i].a, s->noted[i].pass, other);
        if (!memcmp(other, shape, sizeof other))
            return;
    }
    s->noted = array_grow(s->noted, s->count, &s->capacity, sizeof *s->noted);
    s->noted[s->count++] = (struct shape_attention){*a, pass, *at};
}

void cuda_shapes_forget(struct device *d)
{
    struct cuda_shapes *s = cuda_state(d)->shapes;
    if (s)
        free(s->noted);
    free(s);
    cuda_state(d)->shapes = NULL;
}

void cuda_shapes_note(struct device *d, int on)
{
    if (on)
        cuda_shapes_forget(d);
    cuda_products_note(d, on);
}

int cuda_shapes_noted(const struct device *d)
{
    const struct cuda_shapes *s = cuda_state(d)->shapes;
    return cuda_products_noted(d) + (s ? s->count : 0);
}

void cuda_shape(const struct device *d, int i, int64_t *shape)
{
    const int products = cuda_products_noted(d);
    shape[0] = 0;
    if (i < products) {
        cuda_product_shape(d, i, shape + 1);
    } else {
        const struct shape_attention *n = &cuda_state(d)->shapes->noted[i - products];
        attention_shape(&n->a, n->pass, shape);
    }
}

/* ---- checking and replacing ---- */

int cuda_shape_check(struct device *d, int i, struct shape_check *check, struct error *err)
{
    const int products = cuda_products_noted(d);
    memset(check, 0, sizeof *check);
    cuda_shape(d, i, check->shape);
    if (i >= products)
        memset(check->shape + SLICE_WORD, 0, SLICE_WORDS * sizeof *check->shape);
    int rc = i < products ? shape_product_check(d, &cuda_state(d)->gemms->noted[i], check, err)
                          : shape_attention_check(d, &cuda_state(d)->shapes->noted[i - products],
                                                  check, err);
    if (!rc && device_check(d, err))
        rc = -1;
    check->is_wrong = !rc && !(check->off <= check->bound);
    return rc;
}

int cuda_shape_replace(struct device *d, const int64_t *shape, struct error *err)
{
    struct gemm_key key;
    memcpy(&key, shape + 1, sizeof key);
    if (!shape[0])
        return shape_product_replace(d, &key, err);
    const struct attention a = attention_of(d, shape);
    cuda_sdpa_refuse(d, &a, (enum device_pass)shape[1],
                     "it was wrong when this run's shapes were checked");
    return SHAPE_BY_OWN_KERNELS;
}
