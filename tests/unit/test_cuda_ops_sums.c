/* test_cuda_ops_sums.c - sums of parts on a GPU against the CPU's.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>

/* ---- parts of a reduction ---- */

struct parts {
    enum dtype dt;
    int count, accumulate;
    int64_t stride, elems;
};

static float part_of(const struct parts *p, const void *parts, int m, int64_t i)
{
    int64_t at = m * p->stride + i;
    return p->dt == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)parts)[at])
                               : ((const float *)parts)[at];
}

/* The CPU's answer is the definition. */
static void sum_parts(struct device *d, struct mem *mem, void *const *at, const void *args)
{
    const struct parts *p = args;
    float *recv = at[0];
    if (d->kind == DEVICE_CUDA) {
        device_sum_parts(d, DEVICE_COMPUTE, recv, p->dt, at[1], p->count, p->stride, p->elems,
                         p->accumulate);
        return;
    }
    for (int64_t i = 0; i < p->elems; i++) {
        float sum = p->accumulate ? recv[i] : 0.0f;
        for (int m = 0; m < p->count; m++)
            sum += part_of(p, at[1], m, i);
        recv[i] = sum;
    }
}

static void sums_of_parts(void **state)
{
    static const int counts[] = {1, 2, 3, 4, 9};
    static const int64_t lengths[] = {1, 3, 7, 17, 521, 4096, 8195};
    static const int64_t offsets[][2] = {{1, 1}, {3, 3}, {0, 1}};
    struct check c = check_open();
    for (int i = 0; i < 2 * 7 * 5 * 3; i++) {
        struct parts p = {i % 2 ? DTYPE_BF16 : DTYPE_F32, counts[i / 2 % 5], i % 3 == 0};
        const int64_t *offset = offsets[i / (10 * 7)];
        p.elems = lengths[i / 10 % 7];
        p.stride = i % 7 < 4 ? (p.elems + 7) / 8 * 8 : p.elems;
        struct operand o[] = {
            changed_operand(&c, "recv", EXACT, DTYPE_F32, p.elems, 1),
            random_operand(&c, "parts", p.dt, (p.count - 1) * p.stride + p.elems, 1),
        };
        if (!p.accumulate)
            memset(o[0].before, 0xff, (size_t)p.elems * sizeof(float));
        o[0].offset = offset[0];
        o[1].offset = offset[1];
        check_call(&c, "sum_parts", sum_parts, &p, o, 2);
    }
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_parts),
    };
    return check_main("cuda ops: sums", tests);
}
