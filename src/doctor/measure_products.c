/* measure_products.c - measuring how fast matrices of many shapes are multiplied, with operands
 * that are in memory, not in caches.
 *
 * The shapes are a full grid: every m with every n and every k of one list of sizes, as long as
 * time allows.  On GPUs, which have time for more, sizes double from one to the next; on CPUs each
 * is four times the one before.  A product has other operands than the one before it, as in a step.
 */
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fp8.h"
#include "base/round.h"
#include "doctor/measure_work.h"

enum { SIZES = 16, PROBE = 512, LEAST_CPU = 32, LEAST_GPU = 128, WARM_UP = 2 };

struct product {
    struct gemm gemm;
    size_t a_bytes, b_bytes, c_bytes;
    void *scratch;
};

/* Return the processor time that this process has had, in nanoseconds, its threads added up. */
static int64_t processor_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Return the format of a product's operands: a product in fp8 rounds operands of bf16 itself. */
static enum dtype operand_dtype(enum dtype format)
{
    return format == DTYPE_F8 ? DTYPE_BF16 : format;
}

/* Make a product with the options that graph/op_linear.c sets for its kind. */
static struct gemm gemm_of(enum dtype format, enum machine_product_kind kind, int64_t m, int64_t n,
                           int64_t k)
{
    enum dtype dtype = operand_dtype(format);
    enum gemm_fp8 blocks = kind == PRODUCT_WEIGHT ? GEMM_FP8_VECTORS : GEMM_FP8_SQUARES_OF_B;
    return gemm_dense((struct gemm){.dt = dtype,
                                    .dt_c = kind == PRODUCT_WEIGHT ? DTYPE_F32 : dtype,
                                    .fp8 = format == DTYPE_F8 ? blocks : GEMM_FP8_NONE,
                                    .trans_a = kind == PRODUCT_WEIGHT,
                                    .trans_b = kind == PRODUCT_FORWARD,
                                    .m = m,
                                    .n = n,
                                    .k = k});
}

static size_t aligned(int64_t elems, enum dtype dtype)
{
    return round_up_bytes((size_t)elems * dtype_bytes(dtype), 256);
}

static int multiply(struct measure *m, void *data, struct error *err)
{
    struct product *p = data;
    char *source = measure_cold_source(m, p->a_bytes + p->b_bytes);
    p->gemm.a = source;
    p->gemm.b = source + p->a_bytes;
    p->gemm.c = measure_cold_target(m, p->c_bytes);
    return m->device->ops->gemm(m->device, &p->gemm, p->scratch, err);
}

/* Measure the operations per second of one product. */
static int rate_of(struct measure *m, struct gemm g, double *rate, struct error *err)
{
    struct product p = {.gemm = g,
                        .a_bytes = aligned(g.m * g.k, g.dt),
                        .b_bytes = aligned(g.k * g.n, g.dt),
                        .c_bytes = aligned(g.m * g.n, g.dt_c)};
    size_t scratch = m->device->ops->gemm_scratch(m->device, &g);
    double seconds = 1;
    p.scratch = device_alloc(m->device, m->mem, POOL_WORKSPACE, scratch, err);
    int rc = world_agree(m->world, p.scratch ? 0 : -1, err) ||
             measure_seconds(m, &(struct measure_work){.run = multiply, .data = &p}, &seconds, err);
    device_free(m->device, m->mem, POOL_WORKSPACE, scratch, p.scratch);
    *rate = 2.0 * (double)g.m * (double)g.n * (double)g.k / seconds;
    return rc ? -1 : 0;
}

/* List the sizes of a grid up to `most`.  Returns how many there are. */
static int sizes_up_to(const struct measure *m, int64_t most, int64_t size[SIZES])
{
    int is_gpu = m->device->kind == DEVICE_CUDA, count = 0;
    int64_t ratio = is_gpu ? 2 : 4, next = most;
    int64_t least = min_i64(is_gpu ? LEAST_GPU : LEAST_CPU, m->limits->side / ratio);
    while (next / ratio >= least)
        next /= ratio;
    for (; next <= most && count < SIZES; next *= ratio)
        size[count++] = next;
    return count;
}

/* Estimate the seconds of all products of a grid up to `most`, each done the least number of times.
 * rate: operations per second of each format. */
static double grid_s(const struct measure *m, int64_t most, const double rate[DTYPE_COUNT])
{
    int64_t size[SIZES];
    double sum = 0, seconds = 0;
    for (int i = sizes_up_to(m, most, size); i > 0; i--)
        sum += (double)size[i - 1];
    for (const enum dtype *f = measure_product_formats(m); *f != DTYPE_COUNT; f++)
        seconds += 2 * sum * sum * sum * PRODUCT_KINDS * (m->limits->least + WARM_UP) / rate[*f];
    return seconds;
}

/* Choose the largest grid for which there is time, by the speed of one product of each format. */
static int choose_most(struct measure *m, int64_t *most, struct error *err)
{
    double rate[DTYPE_COUNT] = {0};
    int64_t probe = min_i64(PROBE, m->limits->side);
    for (const enum dtype *f = measure_product_formats(m); *f != DTYPE_COUNT; f++)
        if (measure_block(m, 0, operand_dtype(*f), err) ||
            rate_of(m, gemm_of(*f, PRODUCT_FORWARD, probe, probe, probe), &rate[*f], err))
            return -1;
    *most = m->limits->side;
    while (*most > 2 * LEAST_GPU && grid_s(m, *most, rate) > m->limits->products_s)
        *most /= 2;
    return 0;
}

static int measure_kind(struct measure *m, enum dtype dtype, enum machine_product_kind kind,
                        const int64_t *size, int sizes, struct error *err)
{
    struct machine *machine = m->machine;
    for (int i = 0; i < sizes * sizes * sizes; i++) {
        struct machine_product row = {.dtype = dtype,
                                      .kind = kind,
                                      .m = size[i / sizes / sizes],
                                      .n = size[i / sizes % sizes],
                                      .k = size[i % sizes]};
        if (rate_of(m, gemm_of(dtype, kind, row.m, row.n, row.k), &row.flops_per_s, err))
            return -1;
        machine->product = array_grow(machine->product, machine->products, &m->product_capacity,
                                      sizeof *machine->product);
        machine->product[machine->products++] = row;
        if (row.flops_per_s > machine->peak[dtype].flops_per_s)
            machine->peak[dtype].flops_per_s = row.flops_per_s;
    }
    return 0;
}

/* Return the share of the processor time since since_ns that this process's threads have had: less
 * than 1 where other programs use the processors.  own_since_ns: processor_ns() at that time. */
static double own_share(const struct measure *m, int64_t since_ns, int64_t own_since_ns)
{
    double own = (double)(processor_ns() - own_since_ns), all = (double)(clock_ns() - since_ns);
    double share = own / (all * m->device->threads);
    world_all_reduce(m->world, &share, 1, WORLD_MIN);
    return share > 1 ? 1 : share;
}

/* Measure what fp8 adds to a product on CPUs, which round the operands and multiply them in bf16:
 * the time of a product with few columns, less the time that it takes at the best rate of bf16.
 * (The difference of two measurements would be 0, or below 0, on a busy machine.) */
static int measure_rounding(struct measure *m, struct error *err)
{
    enum { COLUMNS = FP8_BLOCK, LEAST = 512, MOST = 2048 };
    const double peak = m->machine->peak[DTYPE_BF16].flops_per_s;
    for (int64_t side = LEAST; side <= MOST && side <= 4 * m->limits->side; side *= 4) {
        const struct gemm g = gemm_of(DTYPE_F8, PRODUCT_FORWARD, side, COLUMNS, side);
        double flops = 2.0 * (double)side * COLUMNS * (double)side, rate;
        double bytes = 2.0 * (double)((side + COLUMNS) * side) * (double)dtype_bytes(g.dt);
        if (measure_block(m, 2 * 3 * (size_t)(side * side) * sizeof(bf16), g.dt, err) ||
            rate_of(m, g, &rate, err))
            return -1;
        double all_s = flops / rate, product_s = flops / peak;
        if (all_s > 1.05 * product_s)
            measure_add_op(m, "round_fp8", g.dt, bytes, bytes, all_s - product_s);
    }
    return 0;
}

int measure_products(struct measure *m, struct error *err)
{
    const int64_t since_ns = clock_ns(), own_since_ns = processor_ns();
    int64_t most, size[SIZES];
    if (choose_most(m, &most, err))
        return -1;
    int sizes = sizes_up_to(m, most, size);
    for (const enum dtype *f = measure_product_formats(m); *f != DTYPE_COUNT; f++) {
        measure_progress(m, "products in %s, %d shapes up to %lld x %lld x %lld", dtype_name(*f),
                         PRODUCT_KINDS * sizes * sizes * sizes, (long long)most, (long long)most,
                         (long long)most);
        if (measure_block(m, 2 * 3 * (size_t)(most * most) * sizeof(float), operand_dtype(*f), err))
            return -1;
        for (int kind = 0; kind < PRODUCT_KINDS; kind++)
            if (measure_kind(m, *f, (enum machine_product_kind)kind, size, sizes, err))
                return -1;
    }
    if (m->device->kind != DEVICE_CPU)
        return 0;
    if (measure_rounding(m, err))
        return -1;
    m->own_share = own_share(m, since_ns, own_since_ns);
    return 0;
}
