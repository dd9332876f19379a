/* gemm_rate.c - what the matrix library's products reach, through the device's gemm.
 *
 *   gemm_rate [in-run] [fp32] THREADS TOKENS HIDDEN QKV OUT FFN LAYERS VOCAB [UP]
 *   gemm_rate --device cuda TOKENS HIDDEN QKV OUT FFN LAYERS VOCAB [UP]
 *
 * Measures products in bf16, or fp32: a cube (2048; 8192 on a GPU), and the three of every linear
 * layer of a transformer (forward, gradient of the input, gradient of the weight in fp32).  UP is
 * how many columns the first product of the MLP has: 2 FFN, gate and up of a Llama, unless given;
 * FFN for GPT-2.  Prints one JSON object: GF/s of each ("up" is the MLP's first), and of a whole
 * step's products ("step", and "step_ms"), which no trainer on this library can beat.
 *
 * On the CPU the products are the library's, or with `in-run` those that a run uses, which are
 * trireme's (gemm_packed.c) in bf16 with AMX, or AMD's AVX-512 with bf16, and of all types on other
 * processors with AVX-512 or AVX2.  Times are the best of several by the clock; "step_cold" is the
 * step by the median of products of which each takes other operands than the one before, out of
 * memory, as a trainer's do.  On the first visible GPU: the median by events on its stream, of
 * random data and such operands; there "gpu" names it in place of "threads", and "copy_gbs" is its
 * copy bandwidth in GB/s, bytes read and bytes written both counted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/philox.h"
#include "device/cpu/gemm.h"
#include "device/ops.h"

enum { OPERANDS = 3, WARM_UP = 4, GROUPS = 15, PER_GROUP = 4, COPIES = 16, CALLS = 15, SIZES = 8 };

/* A product on the CPU: with its operands in the caches as far as they fit, and from memory. */
enum { HOT, COLD, WAYS };

static const size_t pool_bytes = (size_t)256 << 20; /* several times what GPUs cache */
static const size_t host_pool_bytes = (size_t)96 << 20;
static const size_t copy_bytes = (size_t)2 << 30;

struct bench {
    struct device *d;
    struct mem mem;
    size_t bytes;         /* of an operand's memory, on a GPU */
    char *data[OPERANDS]; /* a, b, c */
    struct device_event *event[2];
    int64_t calls; /* products so far: where the next operands are */
    int in_run;    /* on the CPU: the products of a run, not the library's */
    enum dtype dt; /* of operands */
    struct error err;
};

static struct gemm forward(enum dtype dt, int64_t tokens, int64_t in, int64_t out)
{
    return (struct gemm){.dt = dt,
                         .dt_c = dt,
                         .trans_b = 1,
                         .m = tokens,
                         .n = out,
                         .k = in,
                         .lda = in,
                         .ldb = in,
                         .ldc = out};
}

static struct gemm input_gradient(enum dtype dt, int64_t tokens, int64_t in, int64_t out)
{
    return (struct gemm){
        .dt = dt, .dt_c = dt, .m = tokens, .n = in, .k = out, .lda = out, .ldb = in, .ldc = in};
}

static struct gemm weight_gradient(enum dtype dt, int64_t tokens, int64_t in, int64_t out)
{
    return (struct gemm){.dt = dt,
                         .dt_c = DTYPE_F32,
                         .trans_a = 1,
                         .m = out,
                         .n = in,
                         .k = tokens,
                         .lda = out,
                         .ldb = in,
                         .ldc = in};
}

/* Operands at other places than in the calls before, as far as there are other places. */
static void *rotated(const struct bench *s, int operand, size_t bytes)
{
    size_t step = (bytes + 255) / 256 * 256;
    return s->data[operand] + (size_t)s->calls % (s->bytes / step) * step;
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* One call by the clock; 0 on failure. */
static double one_call(struct bench *s, struct gemm g, int is_cold, void *scratch)
{
    size_t in = dtype_bytes(g.dt);
    g.a = is_cold ? rotated(s, 0, (size_t)(g.m * g.k) * in) : s->data[0];
    g.b = is_cold ? rotated(s, 1, (size_t)(g.k * g.n) * in) : s->data[1];
    g.c = is_cold ? rotated(s, 2, (size_t)(g.m * g.n) * dtype_bytes(g.dt_c)) : s->data[2];
    s->calls += is_cold;
    int64_t start = clock_ns();
    if (s->in_run ? s->d->ops->gemm(s->d, &g, scratch, &s->err)
                  : gemm_library(s->d, &g, scratch, &s->err))
        return 0;
    return (double)(clock_ns() - start) * 1e-9;
}

/* Seconds of a product: hot the best, cold the median. */
static int host_seconds(struct bench *s, struct gemm g, double took[WAYS])
{
    size_t bytes = s->in_run ? s->d->ops->gemm_scratch(s->d, &g) : gemm_library_scratch(s->d, &g);
    void *scratch = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    double all[WAYS][CALLS];
    for (int way = 0; way < WAYS; way++)
        for (int i = -WARM_UP; i < CALLS; i++) {
            double t = one_call(s, g, way == COLD, scratch);
            if (t == 0) {
                free(scratch);
                return -1;
            }
            all[way][i < 0 ? 0 : i] = t;
        }
    free(scratch);
    for (int way = 0; way < WAYS; way++)
        qsort(all[way], CALLS, sizeof all[way][0], by_size);
    took[HOT] = all[HOT][0];
    took[COLD] = all[COLD][CALLS / 2];
    return 0;
}

static int enqueue(struct bench *s, struct gemm g, void *scratch, int times)
{
    size_t out = dtype_bytes(g.dt_c), in = dtype_bytes(g.dt);
    for (int i = 0; i < times; i++, s->calls++) {
        g.a = rotated(s, 0, (size_t)(g.m * g.k) * in);
        g.b = rotated(s, 1, (size_t)(g.k * g.n) * in);
        g.c = rotated(s, 2, (size_t)(g.m * g.n) * out);
        if (s->d->ops->gemm(s->d, &g, scratch, &s->err))
            return -1;
    }
    return 0;
}

/* Seconds between the events, both recorded; 0 on failure. */
static double between(struct bench *s)
{
    return device_sync(s->d, &s->err)
               ? 0
               : (double)device_event_ns(s->d, s->event[0], s->event[1]) * 1e-9;
}

static int event(struct bench *s, int which)
{
    return device_event_record(s->d, s->event[which], DEVICE_COMPUTE, &s->err);
}

static double gpu_seconds(struct bench *s, struct gemm g)
{
    size_t bytes = s->d->ops->gemm_scratch(s->d, &g);
    void *scratch = device_alloc(s->d, &s->mem, POOL_WORKSPACE, bytes, &s->err);
    double took[GROUPS], median = 0;
    if (!scratch || enqueue(s, g, scratch, WARM_UP) || device_sync(s->d, &s->err))
        goto done;
    for (int i = 0; i < GROUPS; i++) {
        if (enqueue(s, g, scratch, 1) || event(s, 0) || enqueue(s, g, scratch, PER_GROUP) ||
            event(s, 1))
            goto done;
        took[i] = between(s) / PER_GROUP;
    }
    qsort(took, GROUPS, sizeof took[0], by_size);
    median = took[GROUPS / 2];
done:
    device_free(s->d, &s->mem, POOL_WORKSPACE, bytes, scratch);
    return median;
}

/* Seconds of one product, on a GPU took[HOT] alone.  Returns 0, or -1 on failure. */
static int seconds(struct bench *s, struct gemm g, double took[WAYS])
{
    int status = 0;
    if (s->d->kind == DEVICE_CPU)
        status = host_seconds(s, g, took);
    else
        status = (took[HOT] = gpu_seconds(s, g)) == 0;
    if (status)
        fprintf(stderr, "gemm_rate: %s\n", s->err.text);
    return status;
}

static double flops(struct gemm g)
{
    return 2.0 * g.m * g.n * g.k;
}

/* Sums over the products of a step. */
struct total {
    double flops, seconds[WAYS];
};

/* The three products of one linear layer, `times` in a model; adds to the step's totals. */
static void linear(struct bench *s, const char *name, int64_t tokens, int64_t in, int64_t out,
                   int64_t times, struct total *total)
{
    struct gemm g[] = {forward(s->dt, tokens, in, out), input_gradient(s->dt, tokens, in, out),
                       weight_gradient(s->dt, tokens, in, out)};
    double took[3][WAYS] = {{0}};
    for (int i = 0; i < 3; i++) {
        if (seconds(s, g[i], took[i]))
            return;
        total->flops += (double)times * flops(g[i]);
        for (int way = 0; way < WAYS; way++)
            total->seconds[way] += (double)times * took[i][way];
    }
    printf("\"%s\": [", name);
    for (int i = 0; i < 3; i++)
        printf("%.1f%s", flops(g[i]) / took[i][HOT] * 1e-9, i < 2 ? ", " : "], ");
}

static double rate_of(const struct total *total, int way)
{
    return total->seconds[way] > 0 ? total->flops / total->seconds[way] * 1e-9 : 0;
}

static void measure(struct bench *s, const int64_t v[SIZES])
{
    int64_t tokens = v[0], hidden = v[1], qkv = v[2], out = v[3], ffn = v[4], layers = v[5];
    int64_t side = s->d->kind == DEVICE_CPU ? 2048 : 8192;
    struct gemm cube = forward(s->dt, side, side, side);
    struct total total = {0};
    double took[WAYS] = {0};
    seconds(s, cube, took);
    printf("\"cube\": %.1f, ", took[HOT] > 0 ? flops(cube) / took[HOT] * 1e-9 : 0);
    linear(s, "qkv", tokens, hidden, qkv, layers, &total);
    linear(s, "out", tokens, out, hidden, layers, &total);
    linear(s, "up", tokens, hidden, v[7], layers, &total);
    linear(s, "down", tokens, ffn, hidden, layers, &total);
    linear(s, "head", tokens, hidden, v[6], 1, &total);
    if (s->d->kind == DEVICE_CPU)
        printf("\"step_cold\": %.1f, ", rate_of(&total, COLD));
    printf("\"step\": %.1f, \"step_ms\": %.1f}\n", rate_of(&total, HOT), total.seconds[HOT] * 1e3);
}

/* Of one operand of the largest product. */
static size_t largest_operand(const struct bench *s, const int64_t v[SIZES], int64_t side)
{
    const struct gemm all[] = {forward(s->dt, side, side, side), forward(s->dt, v[0], v[1], v[2]),
                               forward(s->dt, v[0], v[3], v[1]), forward(s->dt, v[0], v[1], v[7]),
                               forward(s->dt, v[0], v[4], v[1]), forward(s->dt, v[0], v[1], v[6])};
    const int64_t each = (int64_t)dtype_bytes(s->dt);
    int64_t most = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const int64_t bytes[] = {all[i].m * all[i].k * each, all[i].m * all[i].n * each,
                                 all[i].k * all[i].n * 4};
        for (int j = 0; j < 3; j++)
            most = bytes[j] > most ? bytes[j] : most;
    }
    return (size_t)most + 256;
}

static void set_value(const struct bench *s, void *data, size_t i)
{
    float value = (float)(1 + (i * 2654435761u >> 7 & 255)) / 256;
    if (s->dt == DTYPE_F32)
        ((float *)data)[i] = value;
    else
        ((bf16 *)data)[i] = f32_to_bf16(value);
}

/* Values do not change how long a product takes here, but zeros may. */
static int on_cpu(struct bench *s, const int64_t v[SIZES])
{
    const size_t least = largest_operand(s, v, 2048);
    s->bytes = least > host_pool_bytes ? least : host_pool_bytes;
    for (int i = 0; i < OPERANDS; i++) {
        s->data[i] = mem_block(s->bytes);
        for (size_t j = 0; s->data[i] && j < s->bytes / dtype_bytes(s->dt); j++)
            set_value(s, s->data[i], j);
    }
    if (s->data[0] && s->data[1] && s->data[2]) {
        printf("{\"library\": \"%s\", \"level\": \"%s\", \"threads\": %d, ", device_gemm_library(),
               s->d->level, s->d->threads);
        measure(s, v);
    }
    for (int i = 0; i < OPERANDS; i++)
        free(s->data[i]);
    return s->err.text[0] ? -1 : 0;
}

/* Random values of about size 1 all over a block. */
static int fill(struct bench *s, char *block, size_t bytes)
{
    enum { ELEMS = 1 << 20 };
    bf16 *values = malloc(ELEMS * sizeof *values);
    int status = values ? 0 : error_set(&s->err, "out of memory");
    for (uint64_t i = 0; values && i < ELEMS; i++)
        values[i] = f32_to_bf16((float)philox_normal(1, i));
    for (size_t at = 0; !status && at < bytes; at += ELEMS * sizeof *values) {
        size_t left = bytes - at, piece = ELEMS * sizeof *values;
        status = device_upload(s->d, block + at, values, left < piece ? left : piece, &s->err);
    }
    free(values);
    return status;
}

/* Each operand may be any matrix of any of these products: tokens by in or out, a weight in fp32.
 */
static int make_operands(struct bench *s, const int64_t v[SIZES])
{
    const size_t least = largest_operand(s, v, 8192);
    s->bytes = least > pool_bytes ? least : pool_bytes;
    for (int i = 0; i < OPERANDS; i++) {
        s->data[i] = device_alloc(s->d, &s->mem, POOL_WORKSPACE, s->bytes, &s->err);
        if (!s->data[i] || (i < 2 && fill(s, s->data[i], s->bytes)))
            return -1;
    }
    return 0;
}

/* GB/s of copying on the GPU, read and written; 0 on failure. */
static double copy_rate(struct bench *s)
{
    char *block = device_alloc(s->d, &s->mem, POOL_WORKSPACE, 2 * copy_bytes, &s->err);
    double took[COPIES], rate = 0;
    if (!block || fill(s, block, copy_bytes))
        goto done;
    for (int i = 0; i < COPIES; i++) {
        s->d->ops->copy(s->d, block + copy_bytes, block, copy_bytes);
        if (event(s, 0))
            goto done;
        s->d->ops->copy(s->d, block + copy_bytes, block, copy_bytes);
        if (event(s, 1))
            goto done;
        took[i] = between(s);
    }
    qsort(took, COPIES, sizeof took[0], by_size);
    rate = took[COPIES / 2] > 0 ? 2.0 * (double)copy_bytes / took[COPIES / 2] * 1e-9 : 0;
done:
    device_free(s->d, &s->mem, POOL_WORKSPACE, 2 * copy_bytes, block);
    return rate;
}

static int on_gpu(struct bench *s, const int64_t v[SIZES])
{
    struct device_gpu gpu;
    char libraries[256];
    if (device_gpu_describe(0, &gpu, &s->err) || make_operands(s, v))
        goto done;
    for (int i = 0; i < 2; i++) {
        s->event[i] = device_event_create(s->d, DEVICE_EVENT_TIMED, &s->err);
        if (!s->event[i])
            goto done;
    }
    printf("{\"library\": \"%s\", \"gpu\": \"%s\", \"copy_gbs\": %.1f, ",
           device_gpu_libraries(libraries), gpu.name, copy_rate(s));
    measure(s, v);
done:
    for (int i = 0; i < 2; i++)
        device_event_destroy(s->d, s->event[i]);
    for (int i = 0; i < OPERANDS; i++)
        device_free(s->d, &s->mem, POOL_WORKSPACE, s->bytes, s->data[i]);
    return s->err.text[0] ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct bench s = {.dt = DTYPE_BF16};
    int cuda = argc > 2 && !strcmp(argv[1], "--device") && !strcmp(argv[2], "cuda");
    int words = cuda ? 1 : 0; /* in front of the threads */
    s.in_run = argc > 1 && !strcmp(argv[1], "in-run");
    words += s.in_run;
    if (!cuda && argc > words + 1 && !strcmp(argv[words + 1], "fp32")) {
        s.dt = DTYPE_F32;
        words++;
    }
    struct device_request request = {.kind = cuda ? DEVICE_CUDA : DEVICE_CPU};
    int first = words + 2;
    int64_t v[SIZES];
    if (argc != first + SIZES && argc != first + SIZES - 1) {
        fprintf(stderr, "usage: gemm_rate [in-run] [fp32] THREADS|--device cuda "
                        "TOKENS HIDDEN QKV OUT FFN LAYERS VOCAB [UP]\n");
        return 1;
    }
    request.threads = cuda ? 0 : atoi(argv[first - 1]);
    for (int i = 0; i < SIZES - 1; i++)
        v[i] = atoll(argv[first + i]);
    v[SIZES - 1] = argc == first + SIZES ? atoll(argv[first + SIZES - 1]) : 2 * v[4];
    if (device_open(&s.d, &request, &s.err)) {
        fprintf(stderr, "gemm_rate: %s\n", s.err.text);
        return 1;
    }
    int status = cuda ? on_gpu(&s, v) : on_cpu(&s, v);
    if (status)
        fprintf(stderr, "gemm_rate: %s\n", s.err.text);
    device_close(s.d);
    return status != 0;
}
