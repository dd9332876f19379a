/* orthogonalize.c - see orthogonalize.h. */
#include "segment/orthogonalize.h"

#include "base/round.h"
#include "segment/place.h"

static const float EPS = 1e-7f;
static const struct polynomial newton_schulz = {.a = 3.4445f, .b = -4.7750f, .c = 2.0315f};

/* Where the workspace has what: X, the X of the next step, A, and the polynomial of A. */
struct parts {
    float *x, *next, *gram, *factor;
    double *squares;
    void *scratch;
};

static int64_t least(int64_t rows, int64_t cols)
{
    return rows < cols ? rows : cols;
}

/* A = X X^T or X^T X, [least, least]. */
static struct gemm gram_of(const struct orthogonalize *o, const struct parts *w)
{
    int tall = o->rows > o->cols;
    int64_t n = least(o->rows, o->cols);
    return (struct gemm){.dt = DTYPE_F32,
                         .dt_c = DTYPE_F32,
                         .trans_a = tall,
                         .trans_b = !tall,
                         .m = n,
                         .n = n,
                         .k = tall ? o->rows : o->cols,
                         .lda = o->cols,
                         .ldb = o->cols,
                         .ldc = n,
                         .a = w->x,
                         .b = w->x,
                         .c = w->gram};
}

/* A A */
static struct gemm square_of(const struct orthogonalize *o, const struct parts *w)
{
    int64_t n = least(o->rows, o->cols);
    return (struct gemm){.dt = DTYPE_F32,
                         .dt_c = DTYPE_F32,
                         .m = n,
                         .n = n,
                         .k = n,
                         .lda = n,
                         .ldb = n,
                         .ldc = n,
                         .a = w->gram,
                         .b = w->gram,
                         .c = w->factor};
}

/* The polynomial times X, or X times it. */
static struct gemm next_of(const struct orthogonalize *o, const struct parts *w)
{
    int tall = o->rows > o->cols;
    int64_t n = least(o->rows, o->cols);
    return (struct gemm){.dt = DTYPE_F32,
                         .dt_c = DTYPE_F32,
                         .m = o->rows,
                         .n = o->cols,
                         .k = n,
                         .lda = n,
                         .ldb = o->cols,
                         .ldc = o->cols,
                         .a = tall ? w->x : w->factor,
                         .b = tall ? w->factor : w->x,
                         .c = w->next};
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

/* The first `bytes` behind *at, which moves on. */
static void *take(char **at, size_t bytes)
{
    void *taken = *at;
    *at += round_up_bytes(bytes, PLACE_ALIGN);
    return taken;
}

static struct parts divide(const struct orthogonalize *o, void *work)
{
    size_t n = (size_t)least(o->rows, o->cols);
    size_t matrix = (size_t)(o->rows * o->cols) * sizeof(float), gram = n * n * sizeof(float);
    struct parts w;
    char *at = work;
    w.x = take(&at, matrix);
    w.next = take(&at, matrix);
    w.gram = take(&at, gram);
    w.factor = take(&at, gram);
    w.squares = take(&at, sizeof *w.squares);
    w.scratch = at;
    return w;
}

size_t orthogonalize_bytes(struct device *d, int64_t rows, int64_t cols)
{
    const struct orthogonalize o = {.rows = rows, .cols = cols};
    struct parts w = divide(&o, NULL);
    return (size_t)w.scratch + most_scratch(d, &o);
}

double orthogonalize_flops(const struct orthogonalize *o)
{
    double n = (double)least(o->rows, o->cols), k = (double)(o->rows * o->cols);
    return o->steps * (4 * n * k + 2 * n * n * n);
}

static int step(struct device *d, const struct orthogonalize *o, struct parts *w, struct error *err)
{
    struct gemm gram = gram_of(o, w), square = square_of(o, w), next = next_of(o, w);
    if (d->ops->gemm(d, &gram, w->scratch, err) || d->ops->gemm(d, &square, w->scratch, err))
        return -1;
    d->ops->polynomial(d, &newton_schulz, w->factor, w->gram, least(o->rows, o->cols));
    if (d->ops->gemm(d, &next, w->scratch, err))
        return -1;
    float *x = w->x;
    w->x = w->next;
    w->next = x;
    return 0;
}

int orthogonalize(struct device *d, const struct orthogonalize *o, float *x, void *work,
                  struct error *err)
{
    struct parts w = divide(o, work);
    int64_t elems = o->rows * o->cols;
    d->ops->fill_zero(d, w.squares, sizeof *w.squares);
    d->ops->sumsq(d, w.squares, x, elems);
    d->ops->normalize(d, w.x, x, w.squares, EPS, elems);
    for (int i = 0; i < o->steps; i++)
        if (step(d, o, &w, err))
            return -1;
    d->ops->copy(d, x, w.x, (size_t)elems * sizeof *x);
    return 0;
}
