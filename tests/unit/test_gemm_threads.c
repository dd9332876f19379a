/* test_gemm_threads.c - matrix products on a busy machine: with threads left out the bits are those
 * of all threads, also where a product by fewer threads has others.  This file stands in for
 * device/cpu/run_queue.c: each test says how many threads find a core. */
#include "ops_check.h"

#include "device/cpu/run_queue.h"

static int free_cores;

struct run_queue *run_queue_open(int threads)
{
    return NULL;
}

void run_queue_close(struct run_queue *queue)
{
}

int run_queue_threads(const struct device *d)
{
    return d->threads < free_cores ? d->threads : free_cores;
}

enum { ALL = 64 };

struct shape {
    enum dtype dt, dt_c;
    int trans, adds; /* adds: c += a b */
    int64_t m, n, k;
};

/* What a product comes to; of zeros where seed is 0. */
static uint64_t product(struct device *d, const struct shape *s, int cores, uint64_t seed)
{
    struct error err = {0};
    struct gemm g = {s->dt, s->dt_c, s->trans & 1, s->trans >> 1, s->m, s->n, s->k};
    g.lda = g.trans_a ? s->m : s->k;
    g.ldb = g.trans_b ? s->k : s->n;
    g.ldc = s->n;
    struct tensor a = tensor_random(s->dt, s->m * s->k, seed + 1, seed ? 1 : 0);
    struct tensor b = tensor_random(s->dt, s->k * s->n, seed + 2, seed ? 1 : 0);
    struct tensor c = tensor_random(s->dt_c, s->m * s->n, seed + 3, seed ? 1 : 0);
    struct tensor scratch =
        tensor_poisoned(DTYPE_F32, (int64_t)(d->ops->gemm_scratch(d, &g) + 3) / 4);
    g.a = a.data;
    g.b = b.data;
    g.c = c.data;
    g.addend = s->adds ? c.data : NULL;
    free_cores = cores;
    if (d->ops->gemm(d, &g, scratch.data, &err))
        fail_msg("%s", err.text);
    uint64_t hash = tensor_hash(&c);
    tensor_free(&a);
    tensor_free(&b);
    tensor_free(&c);
    tensor_free(&scratch);
    return hash;
}

/* Small products with many summands, whose sums oneDNN may cut for threads, and others. */
static const int64_t sizes[][3] = {{1, 1, 4096}, {4, 4, 4096},   {8, 16, 2500}, {33, 65, 17},
                                   {7, 13, 5},   {64, 64, 1024}, {96, 64, 515}};

enum { SIZES = sizeof sizes / sizeof sizes[0], KINDS = 2 * 4 };

static struct shape shape_of(int size, int kind)
{
    const int64_t *of = sizes[size];
    int trans = kind >> 1;
    enum dtype dt = kind & 1 ? DTYPE_BF16 : DTYPE_F32;
    return (struct shape){dt, DTYPE_F32, trans, trans == 1 || trans == 2, of[0], of[1], of[2]};
}

/* A product of zeros, which has the same bits by any number of threads and so tells nothing, comes
 * before; twice, because the second time it is known what the first one found. */
static void check_shape(int threads, int fewer, const struct shape *s, int *others)
{
    struct device *d = open_device(NULL, threads), *alone = open_device(NULL, fewer);
    uint64_t want = product(d, s, ALL, 5);
    product(d, s, fewer, 0);
    for (int time = 0; time < 2; time++)
        if (product(d, s, fewer, 5) != want)
            fail_msg("%lldx%lldx%lld trans %d %s, by %d of %d threads: other bits", (long long)s->m,
                     (long long)s->n, (long long)s->k, s->trans, dtype_name(s->dt), fewer, threads);
    *others += product(alone, s, ALL, 5) != want;
    device_close(alone);
    device_close(d);
}

static void threads_that_are_left_out_change_no_bit(void **state)
{
    int others = 0, count = 0;
    for (int threads = 2; threads <= 3; threads++)
        for (int fewer = 1; fewer < threads; fewer++)
            for (int i = 0; i < SIZES * KINDS; i++, count++) {
                struct shape s = shape_of(i / KINDS, i % KINDS);
                check_shape(threads, fewer, &s, &others);
            }
    print_message("# %d of %d products have other bits on a device of fewer threads\n", others,
                  count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_are_left_out_change_no_bit),
    };
    return cmocka_run_group_tests_name("gemm threads", tests, NULL, NULL);
}
