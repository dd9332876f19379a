/* test_ops_cached.c - attention over a cache of keys and values, against double precision.
 *
 * A sequence is put through in pieces of all sizes: whatever they are, each row comes to attention
 * of the whole, and what is not a row's place in the cache stays as it is.
 */
#include "ops_check.h"

#include "device/cpu/work.h"

enum { BATCH = 2, CAPACITY = 90, LENGTH = 75 };

static const struct attention_cached shapes[] = {
    {.heads = 1, .kv_heads = 1, .head_dim = 2},
    {.heads = 3, .kv_heads = 1, .head_dim = 6, .window = 5},
    {.heads = 4, .kv_heads = 2, .head_dim = 34},
    {.heads = 6, .kv_heads = 6, .head_dim = 64, .window = 66},
    {.heads = 8, .kv_heads = 2, .head_dim = 128},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Rows of each sequence at a time, one after the other; in all LENGTH. */
static const int64_t pieces[][8] = {
    {74, 1},
    {1, 1, 2, 64, 1, 6},
    {40, 34, 1},
};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

/* Sequences of LENGTH rows, as pieces take them. */
struct problem {
    struct attention_cached a;
    struct tensor qkv, cache; /* [BATCH, LENGTH, ...], [BATCH, CAPACITY, ...] */
    int64_t seen[BATCH];      /* positions so far */
    double *x;                /* qkv */
    double *want;             /* [BATCH, LENGTH, heads * head_dim] */
};

static int64_t row_of(const struct attention_cached *a)
{
    return (a->heads + 2 * a->kv_heads) * a->head_dim;
}

static int64_t kept_of(const struct attention_cached *a)
{
    return 2 * a->kv_heads * a->head_dim;
}

/* Element i of a head that begins at `head` of a row. */
static double at(const struct problem *p, int64_t b, int64_t row, int64_t head, int64_t i)
{
    return p->x[(b * LENGTH + row) * row_of(&p->a) + head * p->a.head_dim + i];
}

/* What head h of a row sees: softmax by its definition. */
static void reference_row(struct problem *p, int64_t b, int64_t row, int64_t h)
{
    const struct attention_cached *a = &p->a;
    int64_t key = a->heads + h / (a->heads / a->kv_heads), value = key + a->kv_heads;
    int64_t low = a->window && row >= a->window ? row - a->window + 1 : 0;
    double weight[LENGTH], total = 0;
    double *o = p->want + ((b * LENGTH + row) * a->heads + h) * a->head_dim;
    for (int64_t u = low; u <= row; u++) {
        double score = 0;
        for (int64_t i = 0; i < a->head_dim; i++)
            score += at(p, b, row, h, i) * at(p, b, u, key, i);
        weight[u] = exp(score * (double)a->scale);
        total += weight[u];
    }
    for (int64_t i = 0; i < a->head_dim; i++) {
        o[i] = 0;
        for (int64_t u = low; u <= row; u++)
            o[i] += weight[u] / total * at(p, b, u, value, i);
    }
}

static void make(struct problem *p, const struct attention_cached *shape, enum dtype dt)
{
    p->a = *shape;
    p->a.dt = dt;
    p->a.batch = BATCH;
    p->a.capacity = CAPACITY;
    p->a.scale = 1.0f / sqrtf((float)shape->head_dim);
    p->qkv = tensor_random(dt, BATCH * LENGTH * row_of(&p->a), 7, 1);
    p->cache = tensor_poisoned(dt, BATCH * CAPACITY * kept_of(&p->a));
    p->x = malloc((size_t)p->qkv.elems * sizeof *p->x);
    for (int64_t i = 0; i < p->qkv.elems; i++)
        p->x[i] = tensor_get(&p->qkv, i);
    p->want = malloc((size_t)(BATCH * LENGTH * p->a.heads * p->a.head_dim) * sizeof(double));
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t row = 0; row < LENGTH; row++)
            for (int64_t h = 0; h < p->a.heads; h++)
                reference_row(p, b, row, h);
}

static void drop(struct problem *p)
{
    tensor_free(&p->qkv);
    tensor_free(&p->cache);
    free(p->want);
    free(p->x);
}

/* Where sequence b begins in a piece: they need not be abreast, and rows may come again. */
static int64_t first_of(int64_t first, int64_t b)
{
    return first > 2 * b ? first - 2 * b : 0;
}

static void run_piece(struct device *d, struct problem *p, int64_t first, int64_t rows,
                      struct tensor *o)
{
    struct attention_cached a = p->a;
    int64_t row = row_of(&a), out = a.heads * a.head_dim;
    a.seq = rows;
    struct tensor qkv = tensor_poisoned(a.dt, BATCH * rows * row);
    int32_t positions[BATCH * LENGTH];
    for (int64_t b = 0; b < BATCH; b++)
        p->seen[b] = max_i64(p->seen[b], first_of(first, b) + rows);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t r = 0; r < rows; r++) {
            positions[b * rows + r] =
                r ? -1 : (int32_t)first_of(first, b); /* only the first is read */
            for (int64_t i = 0; i < row; i++)
                tensor_set(&qkv, (b * rows + r) * row + i,
                           tensor_get(&p->qkv, (b * LENGTH + first_of(first, b) + r) * row + i));
        }
    *o = tensor_poisoned(a.dt, BATCH * rows * out);
    size_t bytes = d->ops->attention_cached_scratch(d, &a);
    void *scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(scratch, 0xff, bytes);
    d->ops->attention_cached(d, &a, o->data, p->cache.data, qkv.data, positions, scratch);
    free(scratch);
    tensor_free(&qkv);
}

static void check_piece(const struct problem *p, int64_t first, int64_t rows,
                        const struct tensor *o)
{
    int64_t out = p->a.heads * p->a.head_dim;
    double *want = malloc((size_t)(BATCH * rows * out) * sizeof *want);
    for (int64_t b = 0; b < BATCH; b++)
        memcpy(want + b * rows * out, p->want + (b * LENGTH + first_of(first, b)) * out,
               (size_t)(rows * out) * sizeof *want);
    check_close("o", o, want, 4 * tolerance_of(p->a.dt));
    free(want);
}

/* Keys and values of the rows so far, and nothing else. */
static void check_cache(const struct problem *p)
{
    int64_t kept = kept_of(&p->a), queries = p->a.heads * p->a.head_dim;
    for (int64_t i = 0; i < BATCH * CAPACITY * kept; i++) {
        int64_t b = i / (CAPACITY * kept), position = i / kept % CAPACITY;
        double has = tensor_get(&p->cache, i);
        if (position >= p->seen[b])
            assert_true(has != has); /* NaN, as it was */
        else
            assert_true(has == p->x[(b * LENGTH + position) * row_of(&p->a) + queries + i % kept]);
    }
}

static uint64_t pieces_come_to_the_whole(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int k = 0; k < PIECES; k++) {
            struct problem p = {{0}};
            int64_t first = 0;
            make(&p, &shapes[s], dt);
            for (int i = 0; i < 8 && pieces[k][i]; i++) {
                struct tensor o;
                run_piece(d, &p, first, pieces[k][i], &o);
                check_piece(&p, first, pieces[k][i], &o);
                check_cache(&p);
                first += pieces[k][i];
                hash = 31 * hash + tensor_hash(&o);
                tensor_free(&o);
            }
            assert_int_equal(first, LENGTH);
            drop(&p);
        }
    return hash;
}

static void test_pieces(void **state)
{
    for_each_setting(pieces_come_to_the_whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
