/* orthogonalize.c - Newton-Schulz steps as three products each: A = X X^T, A A, and the polynomial
 * a I + b A + c A A times X.  For a tall matrix A is X^T X and the last product has X on the left.
 */
#include "segment/orthogonalize.h"

#include "base/round.h"
#include "segment/place.h"

static const float EPS = 1e-7f;
static const struct polynomial newton_schulz = {.a = 3.4445f, .b = -4.7750f, .c = 2.0315f};

/* Where the workspace has what: X and the X of the next step, in the format of the products; A, and
 * the polynomial of A, in fp32; and, in bf16, the one of them that is multiplied by next. */
struct parts {
    void *x, *next;
    float *gram, *factor;
    void *operand;
    double *squares;
    void *scratch;
};

/* A = X X^T or X^T X, [n, n], n being the lesser side. */
static struct gemm gram_of(const struct orthogonalize *o, const struct parts *w)
{
    int tall = o->rows > o->cols;
    int64_t n = min_i64(o->rows, o->cols);
    return gemm_dense((struct gemm){.dt = o->dtype,
                                    .dt_c = DTYPE_F32,
                                    .trans_a = tall,
                                    .trans_b = !tall,
                                    .m = n,
                                    .n = n,
                                    .k = tall ? o->rows : o->cols,
                                    .a = w->x,
                                    .b = w->x,
                                    .c = w->gram});
}

/* A A */
static struct gemm square_of(const struct orthogonalize *o, const struct parts *w)
{
    int64_t n = min_i64(o->rows, o->cols);
    return gemm_dense((struct gemm){.dt = o->dtype,
                                    .dt_c = DTYPE_F32,
                                    .m = n,
                                    .n = n,
                                    .k = n,
                                    .a = w->operand,
                                    .b = w->operand,
                                    .c = w->factor});
}

/* The polynomial times X, or X times it. */
static struct gemm next_of(const struct orthogonalize *o, const struct parts *w)
{
    int tall = o->rows > o->cols;
    int64_t n = min_i64(o->rows, o->cols);
    return gemm_dense((struct gemm){.dt = o->dtype,
                                    .dt_c = o->dtype,
                                    .m = o->rows,
                                    .n = o->cols,
                                    .k = n,
                                    .a = tall ? w->x : w->operand,
                                    .b = tall ? w->operand : w->x,
                                    .c = w->next});
}

static size_t most_scratch(struct device *d, const struct orthogonalize *o)
{
    const struct parts none = {0};
    const struct gemm all[] = {gram_of(o, &none), square_of(o, &none), next_of(o, &none)};
    size_t most = 0;
    for (int i = 0; i < 3; i++)
        most = max_bytes(most, d->ops->gemm_scratch(d, &all[i]));
    return most;
}

/* The part of work after the first *used bytes, which are then `bytes` more; of no work: NULL. */
static void *take(void *work, size_t *used, size_t bytes)
{
    void *taken = work ? (char *)work + *used : NULL;
    *used += round_up_bytes(bytes, PLACE_ALIGN);
    return taken;
}

/* Divide the workspace into its parts; with work NULL only sizes count.  *bytes: the size of what
 * comes before the scratch. */
static struct parts divide(const struct orthogonalize *o, void *work, size_t *bytes)
{
    size_t n = (size_t)min_i64(o->rows, o->cols), size = dtype_bytes(o->dtype);
    size_t matrix = (size_t)(o->rows * o->cols) * size;
    struct parts w = {0};
    *bytes = 0;
    w.x = take(work, bytes, matrix);
    w.next = take(work, bytes, matrix);
    w.gram = take(work, bytes, n * n * sizeof(float));
    w.factor = take(work, bytes, n * n * sizeof(float));
    if (o->dtype != DTYPE_F32)
        w.operand = take(work, bytes, n * n * size);
    w.squares = take(work, bytes, sizeof *w.squares);
    w.scratch = take(work, bytes, 0);
    return w;
}

size_t orthogonalize_bytes(struct device *d, const struct orthogonalize *o)
{
    size_t bytes;
    divide(o, NULL, &bytes);
    return bytes + most_scratch(d, o);
}

double orthogonalize_flops(const struct orthogonalize *o)
{
    double n = (double)min_i64(o->rows, o->cols), k = (double)(o->rows * o->cols);
    return o->steps * (4 * n * k + 2 * n * n * n);
}

/* Let the next products multiply by `from`, A or the polynomial, in their format. */
static void multiply_by(struct device *d, const struct orthogonalize *o, struct parts *w,
                        float *from)
{
    int64_t n = min_i64(o->rows, o->cols);
    if (o->dtype == DTYPE_F32)
        w->operand = from;
    else
        d->ops->cast(d, o->dtype, w->operand, DTYPE_F32, from, n * n);
}

static int step(struct device *d, const struct orthogonalize *o, struct parts *w, struct error *err)
{
    struct gemm gram = gram_of(o, w), square, next;
    if (d->ops->gemm(d, &gram, w->scratch, err))
        return -1;
    multiply_by(d, o, w, w->gram);
    square = square_of(o, w);
    if (d->ops->gemm(d, &square, w->scratch, err))
        return -1;
    d->ops->polynomial(d, &newton_schulz, w->factor, w->gram, min_i64(o->rows, o->cols));
    multiply_by(d, o, w, w->factor);
    next = next_of(o, w);
    if (d->ops->gemm(d, &next, w->scratch, err))
        return -1;
    w->next = w->x;
    w->x = next.c;
    return 0;
}

int orthogonalize(struct device *d, const struct orthogonalize *o, float *x, void *work,
                  struct error *err)
{
    size_t bytes;
    struct parts w = divide(o, work, &bytes);
    int64_t elems = o->rows * o->cols;
    float *unit = o->dtype == DTYPE_F32 ? w.x : x;
    d->ops->fill_zero(d, w.squares, sizeof *w.squares);
    d->ops->sumsq(d, w.squares, DTYPE_F32, x, elems);
    d->ops->normalize(d, unit, x, w.squares, EPS, elems);
    if (o->dtype != DTYPE_F32)
        d->ops->cast(d, o->dtype, w.x, DTYPE_F32, unit, elems);
    for (int i = 0; i < o->steps; i++)
        if (step(d, o, &w, err))
            return -1;
    d->ops->cast(d, DTYPE_F32, x, o->dtype, w.x, elems);
    return 0;
}
