/* machine.c - how long computing takes on a machine: products, attention, and what memory bounds.
 *
 * A product's kernel cuts its result into tiles, and each of the GPU's processors computes one tile
 * after the other.  In the last round some have none, and tiles at the border are computed whole:
 *
 *     [300, 200] in tiles of 128 x 128: 3 x 2 = 6 tiles; on 4 processors 2 rounds of 4 tiles, of
 *     which 300 * 200 / (8 * 128 * 128) = 46 % is the product
 *
 * half_k stands for what a tile costs beside its multiplications: the first loads and the last
 * stores, as long as half_k of its products of k.
 */
#include "simulate/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/round.h"
#include "base/text.h"
#include "simulate/machine_table.h"

void machine_free(struct machine *machine)
{
    free(machine->product);
    free(machine->op);
    free(machine->transfer);
    machine->product = NULL;
    machine->op = NULL;
    machine->transfer = NULL;
    machine->products = machine->ops = machine->transfers = 0;
}

double machine_peak(const struct machine *machine, enum dtype dtype)
{
    return machine->peak[dtype].flops_per_s;
}

/* Of an op, with its start. */
static double memory_s(const struct machine *machine, double bytes)
{
    return machine->launch_s +
           bytes / (machine->memory_bytes_per_s * machine->bandwidth_efficiency);
}

static double product_bytes(enum dtype dtype, enum machine_product_kind kind, double m, double n,
                            double k)
{
    enum dtype result = kind == PRODUCT_WEIGHT ? DTYPE_F32 : dtype == DTYPE_F8 ? DTYPE_BF16 : dtype;
    return (m * k + k * n) * (double)dtype_bytes(dtype) + m * n * (double)dtype_bytes(result);
}

/* The elements of a result that are computed, with those of the tiles' and the last round's rest.
 */
static double computed_elems(const struct machine *machine, int64_t m, int64_t n)
{
    if (machine->tile_m <= 0 || machine->tile_n <= 0 || machine->units <= 0)
        return (double)m * (double)n;
    double tiles = ceil((double)m / machine->tile_m) * ceil((double)n / machine->tile_n);
    double rounds = ceil(tiles / machine->units);
    return rounds * machine->units * machine->tile_m * machine->tile_n;
}

/* Operands in bf16, read and rounded to fp8. */
static double rounding_s(const struct machine *machine, double m, double n, double k)
{
    return machine->launch_s + memory_s(machine, (m * k + k * n) * 3);
}

double machine_product_s(const struct machine *machine, enum dtype dtype,
                         enum machine_product_kind kind, int64_t m, int64_t n, int64_t k)
{
    const struct machine_peak *peak = &machine->peak[dtype];
    double least = memory_s(machine, product_bytes(dtype, kind, (double)m, (double)n, (double)k));
    int below;
    double rate = machine_table_product(machine, dtype, kind, m, n, k, &below);
    if (rate > 0) {
        double seconds = 2.0 * (double)m * (double)n * (double)k / rate;
        return below ? fmax(seconds, least) : seconds;
    }
    if (peak->flops_per_s <= 0)
        return INFINITY;
    double flops = 2 * computed_elems(machine, m, n) * ((double)k + machine->half_k);
    double seconds =
        fmax(flops / (peak->flops_per_s * peak->efficiency) + machine->launch_s, least);
    return dtype == DTYPE_F8 ? seconds + rounding_s(machine, (double)m, (double)n, (double)k)
                             : seconds;
}

double machine_memory_s(const struct machine *machine, const char *name, enum dtype dtype,
                        double bytes)
{
    int below;
    double rate = machine_table_op(machine, name, dtype, bytes, &below);
    if (rate <= 0)
        rate = machine_table_op(machine, name, DTYPE_COUNT, bytes, &below);
    if (rate <= 0)
        return memory_s(machine, bytes);
    return below ? fmax(bytes / rate, machine->launch_s) : bytes / rate;
}

double machine_attention_s(const struct machine *machine, const char *name, enum dtype dtype,
                           double flops, int64_t positions, enum machine_attention kernel)
{
    const struct machine_peak *peak = &machine->peak[dtype];
    int below;
    double rate = machine_table_op(machine, name, dtype, (double)positions, &below);
    if (rate > 0)
        return flops / rate;
    if (peak->flops_per_s <= 0)
        return INFINITY;
    double share = (double)positions / ((double)positions + machine->attention_half);
    double efficiency =
        (strstr(name, "backward") ? machine->attention_backward : machine->attention_forward) *
        (kernel == MACHINE_ATTENTION_OWN ? machine->attention_own : 1);
    return flops / (peak->flops_per_s * efficiency * share) + machine->launch_s;
}

int machine_check(const struct machine *machine, int on_gpu, enum dtype dtype, const char *option,
                  struct error *err)
{
    char formats[64] = "";
    if ((machine->gpu[0] != 0) != on_gpu)
        return error_set(
            err, "%s %s is %s, but device is %s; name a machine %s, or set device=%s", option,
            machine->name, on_gpu ? "without GPUs" : "a GPU", on_gpu ? "cuda" : "cpu",
            on_gpu ? "with GPUs" : "of processors, which trireme doctor --measure FILE describes",
            on_gpu ? "cpu" : "cuda");
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (machine_peak(machine, i) > 0)
            text_join(formats, sizeof formats, ", ", "%s", dtype_name(i));
    if (machine_peak(machine, dtype) <= 0)
        return error_set(err, "%s %s has no products in %s (precision), only in %s", option,
                         machine->name, dtype_name(dtype), formats);
    return 0;
}
