/* attention_rate.c - how fast a GPU does attention: cuDNN's kernels, with backward in parts of
 * several sizes, and trireme's own, forward and backward, in bf16.
 *
 *   attention_rate [--json FILE] [BATCH SEQ HEADS KV_HEADS HEAD_DIM]
 *
 * Without a shape: those of tests/bench/gpu_vs_torch.  Operations are those of the causal half, two
 * products forward and five backward; the limit is the rate of a large matrix product in the same
 * run.  Backward runs twice into different memory: "repeats" says whether the bits are the same,
 * "bits_of_the_first" whether they are those of other parts.
 * Times are of events, the median of several runs.  A row that cannot run says why.
 *
 * Exit code 77 without a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/philox.h"
#include "device/cuda/sdpa.h"
#include "device/cuda/state.h"

enum { RUNS = 9, WARM_UP = 2, SKIPPED = 77, CUBE = 8192, SMALL_CUBE = 256 };

/* The ways to do it; of cuDNN with train.attention_bytes in MiB, 0 as trireme chooses. */
static const struct way {
    const char *name;
    int by_cudnn, backward;
    size_t part_mib;
    int any_order; /* train.reproducible=false */
} ways[] = {
    {"cudnn forward", 1, 0, 0, 0},
    {"own forward", 0, 0, 0, 0},
    {"cudnn backward", 1, 1, 0, 0},
    {"cudnn backward, any order", 1, 1, 0, 1},
    {"cudnn backward, parts of 320 MiB", 1, 1, 320, 0},
    {"cudnn backward, 640 MiB", 1, 1, 640, 0},
    {"cudnn backward, 2300 MiB", 1, 1, 2300, 0},
    {"cudnn backward, 4600 MiB", 1, 1, 4600, 0},
    {"own backward", 0, 1, 0, 0},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static const struct attention shapes[] = {
    {DTYPE_BF16, 1, 8192, 32, 8, 128, 0.088f},  /* llama3-8b */
    {DTYPE_BF16, 8, 2048, 16, 16, 128, 0.088f}, /* llama-1.3b */
    {DTYPE_BF16, 16, 2048, 12, 12, 64, 0.125f}, /* llama-124m */
    {DTYPE_BF16, 1, 16384, 32, 8, 128, 0.088f},
};

struct bench {
    struct device *d;
    struct mem mem;
    struct device_event *from, *to;
    void *qkv, *dout, *o, *lse, *dqkv[2], *scratch;
    size_t qkv_bytes, o_bytes, lse_bytes, scratch_bytes;
    double limit;  /* operations a second of a large product */
    uint64_t bits; /* of a shape's first reproducible backward by cuDNN; 0: none yet */
    struct error err;
};

static double flops_of(const struct attention *a, int backward)
{
    double pairs = 0.5 * (double)a->seq * (double)(a->seq + 1);
    return (backward ? 5 : 2) * 2.0 * (double)(a->batch * a->heads * a->head_dim) * pairs;
}

/* ---- memory ---- */

static void *alloc(struct bench *s, size_t bytes)
{
    return device_alloc(s->d, &s->mem, POOL_WORKSPACE, bytes, &s->err);
}

static void drop(struct bench *s, size_t bytes, void *block)
{
    device_free(s->d, &s->mem, POOL_WORKSPACE, bytes, block);
}

/* Random values of about size 1 all over a block. */
static int fill(struct bench *s, char *block, size_t bytes)
{
    enum { ELEMS = 1 << 18 };
    bf16 *values = malloc(ELEMS * sizeof *values);
    int rc = values ? 0 : error_set(&s->err, "out of memory");
    for (uint64_t i = 0; values && i < ELEMS; i++)
        values[i] = f32_to_bf16((float)philox_normal(1, i));
    for (size_t at = 0; !rc && at < bytes; at += ELEMS * sizeof *values) {
        size_t left = bytes - at, piece = ELEMS * sizeof *values;
        rc = device_upload(s->d, block + at, values, left < piece ? left : piece, &s->err);
    }
    free(values);
    return rc;
}

static int take_memory(struct bench *s, const struct attention *a)
{
    s->o_bytes = (size_t)(a->batch * a->seq * a->heads * a->head_dim) * sizeof(bf16);
    s->qkv_bytes = s->o_bytes / (size_t)a->heads * (size_t)(a->heads + 2 * a->kv_heads);
    s->lse_bytes = (size_t)(a->batch * a->heads * a->seq) * sizeof(float);
    s->qkv = alloc(s, s->qkv_bytes);
    s->dout = alloc(s, s->o_bytes);
    s->o = alloc(s, s->o_bytes);
    s->lse = alloc(s, s->lse_bytes);
    s->dqkv[0] = alloc(s, s->qkv_bytes);
    s->dqkv[1] = alloc(s, s->qkv_bytes);
    if (!s->qkv || !s->dout || !s->o || !s->lse || !s->dqkv[0] || !s->dqkv[1])
        return -1;
    return fill(s, s->qkv, s->qkv_bytes) || fill(s, s->dout, s->o_bytes) ? -1 : 0;
}

static void give_memory_back(struct bench *s)
{
    drop(s, s->qkv_bytes, s->qkv);
    drop(s, s->o_bytes, s->dout);
    drop(s, s->o_bytes, s->o);
    drop(s, s->lse_bytes, s->lse);
    drop(s, s->qkv_bytes, s->dqkv[0]);
    drop(s, s->qkv_bytes, s->dqkv[1]);
}

/* ---- one way ---- */

/* Enqueue it once; 0 where cuDNN does not do it. */
static int enqueue(struct bench *s, const struct attention *a, const struct way *way, void *dqkv)
{
    if (way->by_cudnn)
        return way->backward
                   ? cuda_sdpa_backward(s->d, a, dqkv, s->dout, s->o, s->lse, s->qkv, s->scratch,
                                        s->scratch_bytes)
                   : cuda_sdpa_forward(s->d, a, s->o, s->lse, s->qkv, s->scratch, s->scratch_bytes);
    if (way->backward)
        cuda_own_attention_backward(s->d, a, dqkv, s->dout, s->o, s->lse, s->qkv, s->scratch);
    else
        cuda_own_attention(s->d, a, s->o, s->lse, s->qkv, s->scratch);
    return 1;
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Seconds of one run, 0 where it cannot run. */
static double measure(struct bench *s, const struct attention *a, const struct way *way)
{
    double took[RUNS];
    for (int i = -WARM_UP; i < RUNS; i++) {
        if (device_event_record(s->d, s->from, DEVICE_COMPUTE, &s->err) ||
            !enqueue(s, a, way, s->dqkv[0]) ||
            device_event_record(s->d, s->to, DEVICE_COMPUTE, &s->err) || device_sync(s->d, &s->err))
            return 0;
        if (i >= 0)
            took[i] = (double)device_event_ns(s->d, s->from, s->to) * 1e-9;
    }
    qsort(took, RUNS, sizeof took[0], by_size);
    return took[RUNS / 2];
}

/* 1 when backward gives the same bits in other memory, -1 when that is not known; their hash. */
static int repeats(struct bench *s, const struct attention *a, const struct way *way,
                   uint64_t *bits)
{
    char *host[2] = {malloc(s->qkv_bytes), malloc(s->qkv_bytes)};
    int same = -1;
    if (host[0] && host[1] && enqueue(s, a, way, s->dqkv[1]) &&
        !device_download(s->d, host[0], s->dqkv[0], s->qkv_bytes, &s->err) &&
        !device_download(s->d, host[1], s->dqkv[1], s->qkv_bytes, &s->err))
        same = !memcmp(host[0], host[1], s->qkv_bytes);
    if (same >= 0)
        *bits = hash_bytes(host[0], s->qkv_bytes);
    free(host[0]);
    free(host[1]);
    return same;
}

/* Whether parts of another size, which are of whole heads, give the bits of the first. */
static void compare_parts(struct bench *s, uint64_t bits, struct js *row)
{
    if (s->bits && s->bits != bits)
        printf("; other bits than in parts of the size chosen");
    if (s->bits)
        js_add_bool(row, "bits_of_the_first", s->bits == bits);
    else
        s->bits = bits;
}

static int run(struct bench *s, const struct attention *shape, const struct way *way,
               struct js *rows)
{
    struct js *row = js_object();
    struct attention so_done = *shape;
    const struct attention *a = &so_done;
    so_done.any_order = way->any_order;
    so_done.scratch_bytes = way->part_mib << 20;
    s->scratch_bytes = s->d->ops->attention_scratch(s->d, a, way->backward);
    s->scratch = alloc(s, s->scratch_bytes + 1);
    double took = s->scratch ? measure(s, a, way) : 0;
    js_add_string(row, "way", way->name);
    if (took > 0) {
        double rate = flops_of(a, way->backward) / took;
        js_add_real(row, "ms", took * 1e3);
        js_add_real(row, "tflops", rate * 1e-12);
        js_add_real(row, "of_limit", s->limit > 0 ? rate / s->limit : 0);
        js_add_int(row, "scratch_bytes", (int64_t)s->scratch_bytes);
        printf("  %-34s %9.3f ms %8.1f TFLOP/s %6.1f %%", way->name, took * 1e3, rate * 1e-12,
               s->limit > 0 ? 100 * rate / s->limit : 0);
        uint64_t bits = 0;
        int same = way->backward ? repeats(s, a, way, &bits) : -1;
        if (same >= 0)
            js_add_bool(row, "repeats", same);
        printf("%s", same < 0         ? ""
                     : same           ? "  the same bits again"
                     : way->any_order ? "  other bits, as it may"
                                      : "  OTHER BITS");
        if (same >= 0 && way->by_cudnn && !way->any_order)
            compare_parts(s, bits, row);
        printf("\n");
    } else {
        struct device_attention met;
        device_attention(s->d, &met);
        const char *why = s->err.text[0]    ? s->err.text
                          : met.has_library ? met.why
                                            : "built without cuDNN";
        js_add_string(row, "why_not", why);
        printf("  %-34s not run: %.120s\n", way->name, why);
    }
    fflush(stdout);
    js_add(rows, NULL, row);
    drop(s, s->scratch_bytes + 1, s->scratch);
    return s->err.text[0] ? -1 : 0;
}

/* ---- all ---- */

static double product_rate(struct bench *s, int64_t side)
{
    struct gemm g = {.dt = DTYPE_BF16,
                     .dt_c = DTYPE_BF16,
                     .trans_b = 1,
                     .m = side,
                     .n = side,
                     .k = side,
                     .lda = side,
                     .ldb = side,
                     .ldc = side};
    size_t bytes = (size_t)(side * side) * sizeof(bf16), more = s->d->ops->gemm_scratch(s->d, &g);
    void *a = alloc(s, bytes), *b = alloc(s, bytes), *c = alloc(s, bytes), *w = alloc(s, more);
    double best = 0;
    g.a = a, g.b = b, g.c = c;
    if (a && b && c && w && !fill(s, a, bytes) && !fill(s, b, bytes))
        for (int i = 0; i < RUNS; i++) {
            if (device_event_record(s->d, s->from, DEVICE_COMPUTE, &s->err) ||
                s->d->ops->gemm(s->d, &g, w, &s->err) ||
                device_event_record(s->d, s->to, DEVICE_COMPUTE, &s->err) ||
                device_sync(s->d, &s->err))
                break;
            int64_t ns = device_event_ns(s->d, s->from, s->to);
            double rate =
                ns > 0 ? 2.0 * (double)side * (double)side * (double)side / (double)ns : 0;
            best = rate * 1e9 > best ? rate * 1e9 : best;
        }
    drop(s, bytes, a);
    drop(s, bytes, b);
    drop(s, bytes, c);
    drop(s, more, w);
    return best;
}

static int run_shape(struct bench *s, const struct attention *a, struct js *all, const char *path)
{
    struct js *one = js_object(), *rows = js_array();
    char name[96];
    snprintf(name, sizeof name, "%lld x %lld, heads %lld/%lld of %lld", (long long)a->batch,
             (long long)a->seq, (long long)a->heads, (long long)a->kv_heads,
             (long long)a->head_dim);
    printf("%s\n", name);
    js_add_string(one, "shape", name);
    s->bits = 0;
    int rc = take_memory(s, a);
    for (int i = 0; i < WAYS && !rc; i++)
        rc = run(s, a, &ways[i], rows);
    give_memory_back(s);
    js_add(one, "rows", rows);
    js_add(js_get(all, "shapes"), NULL, one);
    if (path &&
        js_write(all, JS_INDENTED, WHOLE_FILE_DURABLE, path, &s->err)) /* whole after every shape */
        return -1;
    return rc;
}

static int usage(void)
{
    fprintf(stderr, "usage: attention_rate [--json FILE] [BATCH SEQ HEADS KV_HEADS HEAD_DIM]\n");
    return 1;
}

int main(int argc, char **argv)
{
    struct bench s = {0};
    struct attention given = {.dt = DTYPE_BF16};
    char why[128], libraries[256];
    const char *path = NULL;
    int at = 1, rc = 0, shape_count = sizeof shapes / sizeof shapes[0];
    if (argc > 2 && !strcmp(argv[1], "--json"))
        path = argv[2], at = 3;
    if (argc != at && argc != at + 5)
        return usage();
    int64_t *field[] = {&given.batch, &given.seq, &given.heads, &given.kv_heads, &given.head_dim};
    for (int i = 0; i < argc - at; i++)
        *field[i] = atoll(argv[at + i]);
    if (argc > at && (given.kv_heads < 1 || given.heads % given.kv_heads || given.head_dim < 1))
        return usage();
    given.scale = 0.1f;
    if (!device_gpu_count(why)) {
        printf("no GPU: %s\n", why);
        return SKIPPED;
    }
    struct js *all = js_object();
    js_add(all, "shapes", js_array());
    if (device_open(&s.d, &(struct device_request){.kind = DEVICE_CUDA}, &s.err))
        goto fail;
    s.from = device_event_create(s.d, DEVICE_EVENT_TIMED, &s.err);
    s.to = device_event_create(s.d, DEVICE_EVENT_TIMED, &s.err);
    if (!s.from || !s.to)
        goto fail;
    s.limit = product_rate(&s, argc > at ? SMALL_CUBE : CUBE);
    printf("%s, %s; products of %d: %.1f TFLOP/s\n", s.d->name, device_gpu_libraries(libraries),
           argc > at ? SMALL_CUBE : CUBE, s.limit * 1e-12);
    js_add_string(all, "gpu", s.d->name);
    js_add_real(all, "limit_tflops", s.limit * 1e-12);
    for (int i = 0; i < (argc > at ? 1 : shape_count) && !rc; i++)
        rc = run_shape(&s, argc > at ? &given : &shapes[i], all, path);
fail:
    if (s.err.text[0])
        fprintf(stderr, "attention_rate: %s\n", s.err.text);
    js_free(all);
    if (s.d) {
        device_event_destroy(s.d, s.from);
        device_event_destroy(s.d, s.to);
    }
    device_close(s.d);
    return s.err.text[0] != 0;
}
