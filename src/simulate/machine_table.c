/* machine_table.c - see machine_table.h.  A table is not sorted: the rows next to a size are looked
 * for.  Those of products are a grid, in which a shape lies between eight rows. */
#include "simulate/machine_table.h"

#include <math.h>
#include <string.h>

/* The rows next to x: the last one not above it, and the first one above it; beyond an end of the
 * table both are the row at that end. */
struct bracket {
    double x, low, high; /* low 0: none yet, high INFINITY: none yet */
    double least, most;  /* of all rows */
};

static struct bracket bracket_of(double x)
{
    return (struct bracket){.x = x, .high = INFINITY, .least = INFINITY};
}

static void bracket_add(struct bracket *b, double size)
{
    if (size <= b->x && size > b->low)
        b->low = size;
    if (size > b->x && size < b->high)
        b->high = size;
    b->least = fmin(b->least, size);
    b->most = fmax(b->most, size);
}

static void bracket_close(struct bracket *b)
{
    if (b->low == 0)
        b->low = b->least;
    if (b->high == INFINITY)
        b->high = b->most;
}

/* The share that a row of a size has in the value at x: 0 of a row that is not next to it. */
static double bracket_weight(const struct bracket *b, double size)
{
    if (b->low >= b->high || b->x <= b->low)
        return size == b->low;
    double of_high = log(b->x / b->low) / log(b->high / b->low);
    return size == b->low ? 1 - of_high : size == b->high ? of_high : 0;
}

static int is_product(const struct machine_product *row, enum dtype dtype,
                      enum machine_product_kind kind)
{
    return row->dtype == dtype && row->kind == kind;
}

double machine_table_product(const struct machine *machine, enum dtype dtype,
                             enum machine_product_kind kind, int64_t m, int64_t n, int64_t k,
                             int *below)
{
    struct bracket of_m = bracket_of((double)m), of_n = bracket_of((double)n),
                   of_k = bracket_of((double)k);
    double sum = 0, weights = 0;
    for (int i = 0; i < machine->products; i++) {
        const struct machine_product *row = &machine->product[i];
        if (!is_product(row, dtype, kind))
            continue;
        bracket_add(&of_m, (double)row->m);
        bracket_add(&of_n, (double)row->n);
        bracket_add(&of_k, (double)row->k);
    }
    bracket_close(&of_m);
    bracket_close(&of_n);
    bracket_close(&of_k);
    *below = of_m.x < of_m.least || of_n.x < of_n.least || of_k.x < of_k.least;
    for (int i = 0; i < machine->products; i++) {
        const struct machine_product *row = &machine->product[i];
        if (!is_product(row, dtype, kind))
            continue;
        double weight = bracket_weight(&of_m, (double)row->m) *
                        bracket_weight(&of_n, (double)row->n) *
                        bracket_weight(&of_k, (double)row->k);
        sum += weight > 0 ? weight * log(row->flops_per_s) : 0;
        weights += weight;
    }
    return weights > 0 ? exp(sum / weights) : 0;
}

static int is_op(const struct machine_op *row, const char *name, enum dtype dtype)
{
    return !strcmp(row->name, name) && (dtype == DTYPE_COUNT || row->dtype == dtype);
}

double machine_table_op(const struct machine *machine, const char *name, enum dtype dtype,
                        double size, int *below)
{
    struct bracket of = bracket_of(size);
    double sum = 0, weights = 0;
    for (int i = 0; i < machine->ops; i++)
        if (is_op(&machine->op[i], name, dtype))
            bracket_add(&of, machine->op[i].size);
    bracket_close(&of);
    *below = size < of.least;
    for (int i = 0; i < machine->ops; i++) {
        const struct machine_op *row = &machine->op[i];
        double weight = is_op(row, name, dtype) ? bracket_weight(&of, row->size) : 0;
        sum += weight > 0 ? weight * log(row->rate) : 0;
        weights += weight;
    }
    return weights > 0 ? exp(sum / weights) : 0;
}

/* The row whose group is nearest: by the ratios of ranks and of nodes. */
static const struct machine_transfer *nearest_group(const struct machine *machine,
                                                    enum machine_transfer_kind kind, int ranks,
                                                    int nodes)
{
    const struct machine_transfer *best = NULL;
    double least = INFINITY;
    for (int i = 0; i < machine->transfers; i++) {
        const struct machine_transfer *row = &machine->transfer[i];
        double distance =
            fabs(log((double)row->ranks / ranks)) + fabs(log((double)row->nodes / nodes));
        if (row->kind != kind || (row->nodes > 1) != (nodes > 1) || distance >= least)
            continue;
        least = distance;
        best = row;
    }
    return best;
}

static int is_of_group(const struct machine_transfer *row, const struct machine_transfer *group)
{
    return row->kind == group->kind && row->ranks == group->ranks && row->nodes == group->nodes;
}

double machine_table_transfer(const struct machine *machine, enum machine_transfer_kind kind,
                              int *ranks, int *nodes, double bytes)
{
    const struct machine_transfer *group = nearest_group(machine, kind, *ranks, *nodes);
    struct bracket of = bracket_of(bytes);
    double sum = 0, weights = 0;
    if (!group)
        return 0;
    *ranks = group->ranks;
    *nodes = group->nodes;
    for (int i = 0; i < machine->transfers; i++)
        if (is_of_group(&machine->transfer[i], group))
            bracket_add(&of, machine->transfer[i].bytes);
    bracket_close(&of);
    for (int i = 0; i < machine->transfers; i++) {
        const struct machine_transfer *row = &machine->transfer[i];
        double weight = is_of_group(row, group) ? bracket_weight(&of, row->bytes) : 0;
        sum += weight > 0 ? weight * log(row->seconds) : 0;
        weights += weight;
    }
    return exp(sum / weights) * fmax(1, bytes / of.most);
}
