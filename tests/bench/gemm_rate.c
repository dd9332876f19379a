/* gemm_rate.c - what the machine's own matrix products reach, through the device's gemm.
 *
 *   gemm_rate THREADS TOKENS HIDDEN QKV OUT FFN LAYERS VOCAB
 *
 * Measures bf16 products: a cube of 2048, and the three of every linear layer of a Llama
 * (forward, gradient of the input, gradient of the weight in fp32).  Prints one JSON object:
 * GF/s of each, and of a whole step's products, which no trainer on this library can beat.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/ops.h"

struct bench {
    struct device *d;
    void *a, *b, *c;
    struct error err;
};

static struct gemm forward(int64_t tokens, int64_t in, int64_t out)
{
    return (struct gemm){.dt = DTYPE_BF16,
                         .dt_c = DTYPE_BF16,
                         .trans_b = 1,
                         .m = tokens,
                         .n = out,
                         .k = in,
                         .lda = in,
                         .ldb = in,
                         .ldc = out};
}

static struct gemm input_gradient(int64_t tokens, int64_t in, int64_t out)
{
    return (struct gemm){.dt = DTYPE_BF16,
                         .dt_c = DTYPE_BF16,
                         .m = tokens,
                         .n = in,
                         .k = out,
                         .lda = out,
                         .ldb = in,
                         .ldc = in};
}

static struct gemm weight_gradient(int64_t tokens, int64_t in, int64_t out)
{
    return (struct gemm){.dt = DTYPE_BF16,
                         .dt_c = DTYPE_F32,
                         .trans_a = 1,
                         .m = out,
                         .n = in,
                         .k = tokens,
                         .lda = out,
                         .ldb = in,
                         .ldc = in};
}

/* Seconds of one product, the best of several; 0 on failure. */
static double seconds(struct bench *s, struct gemm g)
{
    size_t bytes = s->d->ops->gemm_scratch(s->d, &g);
    void *scratch = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    double best = 0;
    g.a = s->a;
    g.b = s->b;
    g.c = s->c;
    for (int i = 0; i < 12; i++) {
        int64_t start = clock_ns();
        if (s->d->ops->gemm(s->d, &g, scratch, &s->err)) {
            fprintf(stderr, "gemm_rate: %s\n", s->err.text);
            best = 0;
            break;
        }
        double took = (clock_ns() - start) * 1e-9;
        if (i > 1 && (best == 0 || took < best))
            best = took;
    }
    free(scratch);
    return best;
}

static double flops(struct gemm g)
{
    return 2.0 * g.m * g.n * g.k;
}

/* The three products of one linear layer, `times` in a model; adds to the step's totals. */
static void linear(struct bench *s, const char *name, int64_t tokens, int64_t in, int64_t out,
                   int64_t times, double total[2])
{
    struct gemm g[] = {forward(tokens, in, out), input_gradient(tokens, in, out),
                       weight_gradient(tokens, in, out)};
    printf("\"%s\": [", name);
    for (int i = 0; i < 3; i++) {
        double took = seconds(s, g[i]);
        total[0] += times * flops(g[i]);
        total[1] += times * took;
        printf("%.1f%s", took > 0 ? flops(g[i]) / took * 1e-9 : 0, i < 2 ? ", " : "], ");
    }
}

static void measure(struct bench *s, const int64_t v[7])
{
    int64_t tokens = v[0], hidden = v[1], qkv = v[2], out = v[3], ffn = v[4], layers = v[5];
    double total[2] = {0}, cube = seconds(s, forward(2048, 2048, 2048));
    printf("{\"library\": \"%s\", \"threads\": %d, \"cube\": %.1f, ", device_gemm_library(),
           s->d->threads, cube > 0 ? flops(forward(2048, 2048, 2048)) / cube * 1e-9 : 0);
    linear(s, "qkv", tokens, hidden, qkv, layers, total);
    linear(s, "out", tokens, out, hidden, layers, total);
    linear(s, "gate_up", tokens, hidden, 2 * ffn, layers, total);
    linear(s, "down", tokens, ffn, hidden, layers, total);
    linear(s, "head", tokens, hidden, v[6], 1, total);
    printf("\"step\": %.1f, \"step_ms\": %.1f}\n", total[0] / total[1] * 1e-9, total[1] * 1e3);
}

static size_t max_elems(const int64_t v[7])
{
    size_t rows = v[0] > 2048 ? v[0] : 2048, cols = 2048;
    for (int i = 1; i < 7; i++)
        if (i != 5 && 2 * (size_t)v[i] > cols)
            cols = 2 * v[i];
    return rows > cols ? rows * cols : cols * cols;
}

int main(int argc, char **argv)
{
    struct bench s = {0};
    struct device_request request = {.kind = DEVICE_CPU};
    int64_t v[7];
    if (argc != 9) {
        fprintf(stderr, "usage: gemm_rate THREADS TOKENS HIDDEN QKV OUT FFN LAYERS VOCAB\n");
        return 1;
    }
    request.threads = atoi(argv[1]);
    for (int i = 0; i < 7; i++)
        v[i] = atoll(argv[2 + i]);
    if (device_open(&s.d, &request, &s.err)) {
        fprintf(stderr, "gemm_rate: %s\n", s.err.text);
        return 1;
    }
    size_t elems = max_elems(v);
    s.a = calloc(elems, sizeof(bf16));
    s.b = calloc(elems, sizeof(bf16));
    s.c = calloc(elems, sizeof(float));
    if (s.a && s.b && s.c)
        measure(&s, v);
    free(s.a);
    free(s.b);
    free(s.c);
    device_close(s.d);
    return s.err.text[0] != 0;
}
