/* test_cuda_tiles.c - backward of attention in tiles of queries by keys: the sums over tiles are
 * the gradients of plain loops over the whole sequence, and they are added up in the order that
 * sdpa_tiles.h names, to the bit.
 *
 * A tile's gradients are plain loops too, in the place of cuDNN's, which needs a GPU.
 */
#include "ops_check.h"

#include <stdio.h>

#include "device/cuda/sdpa_tiles.h"
#include "device/device.h"

enum { SKIPPED = 77 };

/* One attention: what tensors hold, here and on the GPU, and gradients. */
struct rig {
    struct device *d;
    struct mem mem;
    struct attention a;
    struct sdpa_slice slice;
    struct tensor qkv, dout, o, lse, dqkv;
    struct sdpa_tensors on_gpu;
    double *want;             /* of the whole: as dqkv */
    float *sum;               /* of tiles, in order: as dqkv */
    double *size;             /* and of their sizes */
    int64_t tiles, failed_at; /* a tile that fails, or -1 */
};

static int64_t row_of(const struct attention *a)
{
    return (a->heads + 2 * a->kv_heads) * a->head_dim;
}

static int64_t group_of(const struct attention *a)
{
    return a->heads / a->kv_heads;
}

/* Where in qkv q of a head, k and v of a key/value head are. */
static int64_t q_at(const struct attention *a, int64_t token, int64_t head)
{
    return token * row_of(a) + head * a->head_dim;
}

static int64_t k_at(const struct attention *a, int64_t token, int64_t head)
{
    return token * row_of(a) + (a->heads + head) * a->head_dim;
}

static int64_t v_at(const struct attention *a, int64_t token, int64_t head)
{
    return k_at(a, token, head) + a->kv_heads * a->head_dim;
}

static double dot(const struct tensor *x, int64_t i, const struct tensor *y, int64_t j, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += tensor_get(x, i + k) * tensor_get(y, j + k);
    return sum;
}

/* o and lse of one query. */
static void forward_row(struct rig *r, int64_t batch, int64_t head, int64_t i)
{
    const struct attention *a = &r->a;
    int64_t token = batch * a->seq + i, kv = head / group_of(a), n = a->head_dim;
    double sum = 0, o[64] = {0};
    for (int64_t j = 0; j <= i; j++) {
        int64_t key = batch * a->seq + j;
        double p = exp(a->scale * dot(&r->qkv, q_at(a, token, head), &r->qkv, k_at(a, key, kv), n));
        sum += p;
        for (int64_t k = 0; k < n; k++)
            o[k] += p * tensor_get(&r->qkv, v_at(a, key, kv) + k);
    }
    for (int64_t k = 0; k < n; k++)
        tensor_set(&r->o, (token * a->heads + head) * n + k, rounded(a->dt, o[k] / sum));
    tensor_set(&r->lse, (batch * a->heads + head) * a->seq + i, (double)(float)log(sum));
}

/* The terms of one query and key in the gradients of both, added to what these point to. */
static void add_terms(const struct rig *r, int64_t batch, int64_t head, int64_t i, int64_t j,
                      double *dq, double *dk, double *dv)
{
    const struct attention *a = &r->a;
    int64_t query = batch * a->seq + i, key = batch * a->seq + j, kv = head / group_of(a);
    int64_t q = q_at(a, query, head), k = k_at(a, key, kv), v = v_at(a, key, kv);
    int64_t out = (query * a->heads + head) * a->head_dim, n = a->head_dim;
    double lse = tensor_get(&r->lse, (batch * a->heads + head) * a->seq + i);
    double p = exp(a->scale * dot(&r->qkv, q, &r->qkv, k, n) - lse);
    double own = dot(&r->dout, out, &r->o, out, n);
    double ds = a->scale * p * (dot(&r->dout, out, &r->qkv, v, n) - own);
    for (int64_t x = 0; x < n; x++) {
        dq[x] += ds * tensor_get(&r->qkv, k + x);
        dk[x] += ds * tensor_get(&r->qkv, q + x);
        dv[x] += p * tensor_get(&r->dout, out + x);
    }
}

static void whole(struct rig *r)
{
    const struct attention *a = &r->a;
    for (int64_t batch = 0; batch < a->batch; batch++)
        for (int64_t head = 0; head < a->heads; head++)
            for (int64_t i = 0; i < a->seq; i++)
                for (int64_t j = 0; j <= i; j++) {
                    int64_t query = batch * a->seq + i, key = batch * a->seq + j;
                    int64_t kv = head / group_of(a);
                    add_terms(r, batch, head, i, j, r->want + q_at(a, query, head),
                              r->want + k_at(a, key, kv), r->want + v_at(a, key, kv));
                }
}

/* Round a tile's gradient, add it to the sum in fp32, and bring it to the GPU: [tokens, heads, dim]
 * of x is element at(first token + ., first head + .) of dqkv. */
static void give(struct rig *r, const double *x, int64_t heads, int64_t token, int64_t head,
                 int64_t (*at)(const struct attention *, int64_t, int64_t), uint16_t *to)
{
    int64_t n = r->a.head_dim, row = heads * n;
    struct tensor t = tensor_poisoned(r->a.dt, r->slice.tokens * row);
    struct error err = {0};
    for (int64_t e = 0; e < t.elems; e++) {
        tensor_set(&t, e, x[e]);
        int64_t place = at(&r->a, token + e / row, head + e % row / n) + e % n;
        r->sum[place] += (float)tensor_get(&t, e);
        r->size[place] += fabs(tensor_get(&t, e));
    }
    if (device_upload(r->d, to, t.data, (size_t)t.elems * sizeof(uint16_t), &err))
        fail_msg("%s", err.text);
    tensor_free(&t);
}

static void check_lse(const struct rig *r, const struct sdpa_tile *tile, int64_t heads)
{
    const struct attention *a = &r->a;
    int64_t first = tile->kv_head * group_of(a), n = r->slice.tokens;
    float *lse = malloc((size_t)(heads * n) * sizeof *lse);
    if (device_download(r->d, lse, tile->lse, (size_t)(heads * n) * sizeof *lse, NULL))
        fail_msg("lse of a tile");
    for (int64_t e = 0; e < heads * n; e++)
        assert_true((double)lse[e] ==
                    tensor_get(&r->lse, (tile->batch * a->heads + first + e / n) * a->seq +
                                            tile->query + e % n));
    free(lse);
}

static int run_tile(void *context, const struct sdpa_tile *tile)
{
    struct rig *r = context;
    const struct attention *a = &r->a;
    int64_t heads = r->slice.kv_heads * group_of(a), n = a->head_dim, tokens = r->slice.tokens;
    int64_t start = tile->batch * a->seq;
    double *dq = calloc((size_t)(tokens * heads * n), sizeof *dq);
    double *dk = calloc((size_t)(tokens * r->slice.kv_heads * n), sizeof *dk);
    double *dv = calloc((size_t)(tokens * r->slice.kv_heads * n), sizeof *dv);
    if (r->tiles++ == r->failed_at) {
        free(dq);
        free(dk);
        free(dv);
        return 0;
    }
    check_lse(r, tile, heads);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < tokens; i++)
            for (int64_t j = 0; j < tokens && tile->key + j <= tile->query + i; j++) {
                int64_t kv = (j * r->slice.kv_heads + h / group_of(a)) * n;
                add_terms(r, tile->batch, tile->kv_head * group_of(a) + h, tile->query + i,
                          tile->key + j, dq + (i * heads + h) * n, dk + kv, dv + kv);
            }
    give(r, dq, heads, start + tile->query, tile->kv_head * group_of(a), q_at, tile->dq);
    give(r, dk, r->slice.kv_heads, start + tile->key, tile->kv_head, k_at, tile->dk);
    give(r, dv, r->slice.kv_heads, start + tile->key, tile->kv_head, v_at, tile->dv);
    free(dq);
    free(dk);
    free(dv);
    return 1;
}

/* ---- on a GPU ---- */

static void *alloc(struct rig *r, size_t bytes)
{
    struct error err = {0};
    void *block = device_alloc(r->d, &r->mem, POOL_WORKSPACE, bytes, &err);
    if (!block)
        fail_msg("%s", err.text);
    return block;
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)t->elems * dtype_bytes(t->dt);
}

static void *upload(struct rig *r, const struct tensor *t)
{
    void *block = alloc(r, bytes_of(t));
    assert_int_equal(device_upload(r->d, block, t->data, bytes_of(t), NULL), 0);
    return block;
}

static void drop(struct rig *r, const void *block, const struct tensor *t)
{
    device_free(r->d, &r->mem, POOL_WORKSPACE, bytes_of(t), (void *)block);
}

static void prepare(struct rig *r)
{
    const struct attention *a = &r->a;
    int64_t tokens = a->batch * a->seq, elems = tokens * row_of(a),
            out = tokens * a->heads * a->head_dim;
    r->qkv = tensor_random(a->dt, elems, 1, 1);
    r->dout = tensor_random(a->dt, out, 2, 1);
    r->o = tensor_poisoned(a->dt, out);
    r->lse = tensor_poisoned(DTYPE_F32, tokens * a->heads);
    r->dqkv = tensor_poisoned(a->dt, elems);
    r->want = calloc((size_t)elems, sizeof *r->want);
    r->sum = calloc((size_t)elems, sizeof *r->sum);
    r->size = calloc((size_t)elems, sizeof *r->size);
    for (int64_t batch = 0; batch < a->batch; batch++)
        for (int64_t head = 0; head < a->heads; head++)
            for (int64_t i = 0; i < a->seq; i++)
                forward_row(r, batch, head, i);
    whole(r);
}

static void release(struct rig *r)
{
    tensor_free(&r->qkv);
    tensor_free(&r->dout);
    tensor_free(&r->o);
    tensor_free(&r->lse);
    tensor_free(&r->dqkv);
    free(r->want);
    free(r->sum);
    free(r->size);
}

/* What sdpa_tiles_run() returns; the gradients are in dqkv. */
static int run_all(struct rig *r)
{
    struct error err = {0};
    size_t bytes = sdpa_slice_bytes(&r->a, r->slice);
    if (device_open(&r->d, &(struct device_request){.kind = DEVICE_CUDA}, &err))
        fail_msg("%s", err.text);
    char *scratch = alloc(r, bytes);
    r->on_gpu = (struct sdpa_tensors){.qkv = upload(r, &r->qkv),
                                      .o = upload(r, &r->o),
                                      .dout = upload(r, &r->dout),
                                      .lse = upload(r, &r->lse),
                                      .dqkv = upload(r, &r->dqkv)};
    int done = sdpa_tiles_run(r->d, &r->a, r->slice, &r->on_gpu, scratch, run_tile, r);
    assert_int_equal(device_download(r->d, r->dqkv.data, r->on_gpu.dqkv, bytes_of(&r->dqkv), &err),
                     0);
    drop(r, r->on_gpu.qkv, &r->qkv);
    drop(r, r->on_gpu.o, &r->o);
    drop(r, r->on_gpu.dout, &r->dout);
    drop(r, r->on_gpu.lse, &r->lse);
    drop(r, r->on_gpu.dqkv, &r->dqkv);
    device_free(r->d, &r->mem, POOL_WORKSPACE, bytes, scratch);
    device_close(r->d);
    assert_int_equal(r->mem.blocks, 0);
    return done;
}

static const struct row {
    struct attention a;
    struct sdpa_slice slice;
} rows[] = {
    {{DTYPE_BF16, 2, 24, 4, 2, 16, 0.25f}, {1, 1, 8}},
    {{DTYPE_BF16, 2, 24, 4, 2, 16, 0.25f}, {1, 2, 6}},
    {{DTYPE_BF16, 1, 21, 6, 3, 8, 0.35f}, {1, 3, 7}},
    {{DTYPE_F16, 1, 30, 4, 1, 24, 0.2f}, {1, 1, 10}},
    {{DTYPE_F16, 3, 10, 3, 3, 8, 0.35f}, {1, 1, 5}},
    {{DTYPE_BF16, 1, 13, 2, 2, 8, 0.35f}, {1, 2, 1}},
};

/* What tiles give is rounded to 16 bits, and their sum once more: by half a unit each. */
static void check_gradients(const struct rig *r)
{
    const double unit = tolerance_of(r->a.dt);
    for (int64_t e = 0; e < r->dqkv.elems; e++) {
        double got = tensor_get(&r->dqkv, e), far = fabs(got - r->want[e]);
        if (!(far <= unit * (r->size[e] + fabs(got)) + 1e-6))
            fail_msg("element %lld: %g, not %g, of terms of %g", (long long)e, got, r->want[e],
                     r->size[e]);
        if (got != rounded(r->a.dt, (double)r->sum[e]))
            fail_msg("element %lld: other bits than sums in order", (long long)e);
    }
}

static void sums_over_tiles_are_those_of_the_whole(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig r = {.a = rows[i].a, .slice = rows[i].slice, .failed_at = -1};
        int64_t across = r.a.seq / r.slice.tokens;
        prepare(&r);
        assert_int_equal(run_all(&r), 1);
        assert_int_equal(r.tiles,
                         r.a.batch * (r.a.kv_heads / r.slice.kv_heads) * across * (across + 1) / 2);
        check_gradients(&r);
        release(&r);
    }
}

/* cuDNN fails: said, and nothing hangs or is lost. */
static void a_tile_that_fails_ends_it(void **state)
{
    for (int64_t tile = 0; tile < 4; tile++) {
        struct rig r = {.a = rows[0].a, .slice = rows[0].slice, .failed_at = tile};
        prepare(&r);
        assert_int_equal(run_all(&r), 0);
        assert_int_equal(r.tiles, tile + 1);
        release(&r);
    }
}

/* Tiles are chosen where a head of the whole sequence is too much, and divide what there is, though
 * not where that leaves 64 by 128 (20096 / 2); what lies in scratch does not overlap, and is all of
 * it. */
static void tiles_of_long_sequences(void **state)
{
    static const int64_t lengths[] = {8192,  16384, 20000,  20096, 24576,
                                      32768, 65536, 131072, 262144};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct attention a = {DTYPE_BF16, 2, lengths[i], 32, 8, 128, 0.1f};
        struct sdpa_slice slice = sdpa_slice_of(&a, DEVICE_BACKWARD);
        struct sdpa_places p = sdpa_places_of(&a, slice);
        const size_t at[] = {p.rows, p.dq_sum, p.dk_sum, p.dv_sum, p.dq, p.dk, p.dv, p.lse};
        int is_tiled = slice.tokens < a.seq;
        int64_t q = slice.batch * slice.kv_heads * 4 * slice.tokens,
                kv = slice.kv_heads * slice.tokens;
        const size_t least[] = {(size_t)q * 4,
                                is_tiled ? (size_t)q * 512 : 0,
                                is_tiled ? (size_t)(slice.kv_heads * a.seq) * 512 : 0,
                                is_tiled ? (size_t)(slice.kv_heads * a.seq) * 512 : 0,
                                is_tiled ? (size_t)q * 256 : 0,
                                is_tiled ? (size_t)kv * 256 : 0,
                                is_tiled ? (size_t)kv * 256 : 0,
                                is_tiled ? (size_t)q * 4 : 0};
        assert_int_equal(is_tiled, a.seq > 16384);
        assert_true(!is_tiled || slice.tokens % 128 != 64);
        assert_int_equal(a.seq % slice.tokens + a.kv_heads % slice.kv_heads, 0);
        for (int k = 0; k < 8; k++)
            assert_true((k < 7 ? at[k + 1] : p.workspace) >= at[k] + least[k]);
        assert_true(cuda_sdpa_scratch(&a, DEVICE_BACKWARD) > p.workspace);
        assert_true(cuda_sdpa_scratch(&a, DEVICE_BACKWARD) < (size_t)9 << 28);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct attention a = {DTYPE_BF16, 1, lengths[i], 32, 8, 128, 0.1f}, more = a, less = a;
        more.scratch_bytes = (size_t)40 << 30;
        less.scratch_bytes = (size_t)100 << 20;
        int64_t tokens = sdpa_slice_of(&a, DEVICE_BACKWARD).tokens; /* else the bits would differ */
        assert_int_equal(sdpa_slice_of(&more, DEVICE_BACKWARD).tokens, tokens);
        assert_int_equal(sdpa_slice_of(&less, DEVICE_BACKWARD).tokens, tokens);
        assert_true(sdpa_slice_of(&more, DEVICE_BACKWARD).kv_heads > 1);
        assert_int_equal(sdpa_slice_of(&less, DEVICE_BACKWARD).kv_heads, 1);
    }
    for (int i = 0; i < 4; i++) { /* no divisor: never cuDNN's, whatever memory there is */
        struct attention prime = {DTYPE_BF16, 1, i / 2 ? 20011 : 65537, 32, 8, 128, 0.1f};
        prime.scratch_bytes = (size_t)(i % 2) * ((size_t)40 << 30);
        assert_int_equal(cuda_sdpa_scratch(&prime, DEVICE_BACKWARD), 0);
    }
    const struct attention two = {DTYPE_BF16, 2, 8192, 32, 8, 128, 0.1f, .scratch_bytes = SIZE_MAX};
    assert_int_equal(sdpa_slice_of(&two, DEVICE_BACKWARD).batch, 1); /* of at most 2^31 scores */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_of_long_sequences),
        cmocka_unit_test(sums_over_tiles_are_those_of_the_whole),
        cmocka_unit_test(a_tile_that_fails_ends_it),
    };
    char why[128];
    if (!device_gpu_count(why)) {
        printf("skipped: no GPU: %s\n", why);
        return SKIPPED;
    }
    return cmocka_run_group_tests_name("cuda tiles", tests, NULL, NULL);
}
