/* test_cuda_sizes.c - the scratch of a GPU's ops is known in every build, with CUDA and without.
 *
 * The bytes were printed by a build with CUDA 13.0 and cuDNN 9.19, whose kernels take this much;
 * what they ask for is checked on a GPU by test_cuda_sdpa and test_cuda_gemm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "device/device.h"
#include "device/ops.h"

enum size_of { GEMM, FP8, RMSNORM, LAYERNORM, BIAS, ATTENTION, ATTENTION_BACKWARD, CACHED };

/* m, n and k of a product, and enum gemm_fp8; rows and columns; batch, seq, heads, kv_heads and
 * head_dim; of a cache batch, seq, capacity, heads, head_dim and window. */
struct size_case {
    enum size_of of;
    enum dtype dt;
    int64_t dim[6];
    size_t bytes;
};

static const struct size_case cases[] = {
    {GEMM, DTYPE_BF16, {0, 5, 5}, 0},
    {GEMM, DTYPE_BF16, {1, 1, 1}, 4194560},
    {GEMM, DTYPE_BF16, {7, 3, 129}, 4194560},
    {GEMM, DTYPE_BF16, {512, 4096, 4096}, 33554688},
    {GEMM, DTYPE_BF16, {8192, 14336, 4096}, 33554688},
    {GEMM, DTYPE_BF16, {128256, 4096, 512}, 33554688},
    {GEMM, DTYPE_BF16, {67108864, 1, 8}, 33554688},
    {GEMM, DTYPE_F32, {1000, 333, 77}, 10682624},
    {FP8, DTYPE_BF16, {16, 16, 0, GEMM_FP8_VECTORS}, 0},
    {FP8, DTYPE_BF16, {16, 16, 16, GEMM_FP8_VECTORS}, 4200192},
    {FP8, DTYPE_BF16, {144, 272, 144, GEMM_FP8_SQUARES_OF_B}, 4422400},
    {FP8, DTYPE_BF16, {8192, 6144, 4096, GEMM_FP8_SQUARES_OF_B}, 210770176},
    {FP8, DTYPE_BF16, {14336, 4096, 8192, GEMM_FP8_VECTORS}, 323485952},
    {RMSNORM, DTYPE_BF16, {1, 64}, 256},
    {LAYERNORM, DTYPE_BF16, {1, 64}, 512},
    {RMSNORM, DTYPE_BF16, {263, 320}, 336640},
    {LAYERNORM, DTYPE_BF16, {263, 320}, 673280},
    {RMSNORM, DTYPE_BF16, {264, 320}, 337920},
    {LAYERNORM, DTYPE_BF16, {264, 320}, 675840},
    {RMSNORM, DTYPE_BF16, {265, 4096}, 4325376},
    {LAYERNORM, DTYPE_BF16, {265, 4096}, 8650752},
    {RMSNORM, DTYPE_BF16, {65536, 8192}, 8650752},
    {LAYERNORM, DTYPE_BF16, {65536, 8192}, 17301504},
    {BIAS, DTYPE_BF16, {1, 64}, 0},
    {BIAS, DTYPE_BF16, {64, 64}, 0},
    {BIAS, DTYPE_BF16, {65, 320}, 2560},
    {BIAS, DTYPE_BF16, {4096, 1600}, 409600},
    {BIAS, DTYPE_BF16, {100000, 6400}, 1638400},
    {ATTENTION, DTYPE_F32, {2, 128, 4, 2, 16}, 0},
    {ATTENTION_BACKWARD, DTYPE_F32, {2, 128, 4, 2, 16}, 4096},
    {ATTENTION, DTYPE_BF16, {2, 128, 4, 2, 16}, 65792},
    {ATTENTION_BACKWARD, DTYPE_BF16, {2, 128, 4, 2, 16}, 332544},
    {ATTENTION, DTYPE_BF16, {1, 8192, 32, 8, 128}, 65792},
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 8192, 32, 8, 128}, 1107559168},
    {ATTENTION, DTYPE_BF16, {4, 2048, 32, 32, 64}, 65792},
    {ATTENTION_BACKWARD, DTYPE_BF16, {4, 2048, 32, 32, 64}, 1074791168},
    {ATTENTION, DTYPE_F16, {3, 1000, 12, 12, 64}, 65792},
    {ATTENTION_BACKWARD, DTYPE_F16, {3, 1000, 12, 12, 64}, 75642368},
    {ATTENTION, DTYPE_BF16, {1, 777, 6, 3, 256}, 65792},
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 777, 6, 3, 256}, 14427136},
    {ATTENTION, DTYPE_BF16, {1, 64, 2, 2, 20}, 0},
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 64, 2, 2, 20}, 512},
    {ATTENTION, DTYPE_BF16, {1, 1, 4, 4, 64}, 0},
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 1, 4, 4, 64}, 16},
    {ATTENTION, DTYPE_BF16, {1, 1048576, 32, 1, 128}, 0}, /* too long for cuDNN */
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 1048576, 32, 1, 128}, 134217728},
    {ATTENTION, DTYPE_BF16, {1, 262144, 32, 1, 128}, 65792},
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 262144, 32, 1, 128}, 1513095936},
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 32768, 32, 8, 128}, 1233650432},
    {ATTENTION_BACKWARD, DTYPE_BF16, {1, 131072, 32, 8, 128}, 717488896},
    {ATTENTION, DTYPE_F16, {7, 513, 5, 5, 128}, 65792},
    {ATTENTION_BACKWARD, DTYPE_F16, {7, 513, 5, 5, 128}, 28744704},
    {CACHED, DTYPE_BF16, {1, 1, 512, 32, 128}, 0},
    {CACHED, DTYPE_BF16, {1, 1, 513, 32, 128}, 33280},
    {CACHED, DTYPE_BF16, {1, 2, 513, 32, 128}, 0},
    {CACHED, DTYPE_BF16, {2, 1, 9000, 8, 64}, 67584},
    {CACHED, DTYPE_BF16, {1, 1, 9000, 2, 64, 700}, 1056},
    {CACHED, DTYPE_BF16, {1, 1, 600, 2, 64, 700}, 1056},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static size_t scratch_of(struct device *d, const struct size_case *c)
{
    const int64_t *n = c->dim;
    struct gemm g = {.dt = c->dt, .dt_c = c->dt, .m = n[0], .n = n[1], .k = n[2]};
    g.fp8 = c->of == FP8 ? (enum gemm_fp8)n[3] : GEMM_FP8_NONE;
    struct attention a = {.dt = c->dt,
                          .batch = n[0],
                          .seq = n[1],
                          .heads = n[2],
                          .kv_heads = n[3],
                          .head_dim = n[4],
                          .scale = 1};
    struct attention_cached cached = {.dt = c->dt,
                                      .batch = n[0],
                                      .seq = n[1],
                                      .capacity = n[2],
                                      .heads = n[3],
                                      .kv_heads = 1,
                                      .head_dim = n[4],
                                      .window = n[5]};
    switch (c->of) {
    case FP8:
    case GEMM: return d->ops->gemm_scratch(d, &g);
    case RMSNORM: return d->ops->norm_backward_scratch(d, n[0], n[1], 1);
    case LAYERNORM: return d->ops->norm_backward_scratch(d, n[0], n[1], 2);
    case BIAS: return d->ops->bias_backward_scratch(d, n[0], n[1]);
    case CACHED: return d->ops->attention_cached_scratch(d, &cached);
    case ATTENTION: return d->ops->attention_scratch(d, &a, DEVICE_FORWARD);
    case ATTENTION_BACKWARD: return d->ops->attention_scratch(d, &a, DEVICE_BACKWARD);
    }
    return 0;
}

static struct device *plan_device(void)
{
    struct error err = {0};
    struct device *d = NULL;
    if (device_open(&d, &(struct device_request){.kind = DEVICE_CUDA, .planning = 1}, &err))
        fail_msg("%s", err.text);
    return d;
}

static void every_build_knows_the_bytes(void **state)
{
    struct device *d = plan_device();
    for (int i = 0; i < CASES; i++)
        if (scratch_of(d, &cases[i]) != cases[i].bytes)
            fail_msg("case %d: %zu bytes, not %zu", i, scratch_of(d, &cases[i]), cases[i].bytes);
    assert_int_equal(d->kind, DEVICE_CUDA);
    assert_int_equal(d->reserve_bytes, (size_t)1 << 30);
    assert_int_equal(d->logits_bytes, (size_t)1 << 30);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_build_knows_the_bytes)};
    return cmocka_run_group_tests_name("cuda_sizes", tests, NULL, NULL);
}
