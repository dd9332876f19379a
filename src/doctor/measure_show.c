/* measure_show.c - printing what was measured in a few lines for people; the file has all of it. */
#include <stdio.h>
#include <string.h>

#include "base/round.h"
#include "doctor/doctor_report.h"
#include "doctor/measure_work.h"

/* Find the rates, and the sides, of the first and the last row of a format and kind: those of the
 * smallest product and of the largest. */
static void ends_of(const struct machine *machine, enum dtype dtype, int kind, double ends[2],
                    int64_t side[2])
{
    int found = 0;
    for (int i = 0; i < machine->products; i++) {
        const struct machine_product *row = &machine->product[i];
        if (row->dtype != dtype || (int)row->kind != kind)
            continue;
        if (!found++) {
            ends[0] = row->flops_per_s;
            side[0] = row->m;
        }
        ends[1] = row->flops_per_s;
        side[1] = row->m;
    }
}

static void show_products(const struct doctor *d, const struct measure *m)
{
    for (const enum dtype *f = measure_product_formats(m); *f != DTYPE_COUNT; f++) {
        double rate[PRODUCT_KINDS][2] = {{0}};
        int64_t side[2] = {0};
        char name[32];
        for (int kind = 0; kind < PRODUCT_KINDS; kind++)
            ends_of(m->machine, *f, kind, rate[kind], side);
        snprintf(name, sizeof name, "products %s", dtype_name(*f));
        doctor_fact(d, name,
                    "%.4g GFLOP/s forward, %.4g gradient of input, %.4g of weight, %lld cubed; "
                    "%.3g, %.3g, %.3g, %lld cubed",
                    rate[PRODUCT_FORWARD][1] * 1e-9, rate[PRODUCT_INPUT][1] * 1e-9,
                    rate[PRODUCT_WEIGHT][1] * 1e-9, (long long)side[1],
                    rate[PRODUCT_FORWARD][0] * 1e-9, rate[PRODUCT_INPUT][0] * 1e-9,
                    rate[PRODUCT_WEIGHT][0] * 1e-9, (long long)side[0]);
    }
}

/* Return the rate of an op at its largest size, and this size. */
static double largest(const struct machine *machine, const char *name, enum dtype dtype,
                      double *size)
{
    double rate = 0;
    *size = 0;
    for (int i = 0; i < machine->ops; i++) {
        const struct machine_op *row = &machine->op[i];
        if (!strcmp(row->name, name) && row->dtype == dtype && row->size > *size) {
            rate = row->rate;
            *size = row->size;
        }
    }
    return rate;
}

static void show_ops(const struct doctor *d, const struct measure *m)
{
    const struct machine *machine = m->machine;
    for (const enum dtype *f = measure_formats(m); *f != DTYPE_COUNT; f++) {
        char name[32];
        double length, bytes;
        double forward = largest(machine, "attention", *f, &length);
        double backward = largest(machine, "attention_backward", *f, &length);
        snprintf(name, sizeof name, "attention %s", dtype_name(*f));
        doctor_fact(d, name, "%.4g GFLOP/s forward, %.4g backward, %.0f positions", forward * 1e-9,
                    backward * 1e-9, length);
        snprintf(name, sizeof name, "other ops %s", dtype_name(*f));
        double norm = largest(machine, "rmsnorm", *f, &bytes);
        double swiglu = largest(machine, "swiglu", *f, &bytes);
        double loss = largest(machine, "head_loss_train", *f, &bytes);
        doctor_fact(d, name, "rmsnorm %.1f GB/s, swiglu %.1f, softmax of the loss %.1f",
                    norm * 1e-9, swiglu * 1e-9, loss * 1e-9);
    }
}

static void show_transfers(const struct doctor *d, const struct machine *machine)
{
    static const char *const names[MACHINE_TRANSFERS] = {
        [MACHINE_GATHER] = "all-gather",     [MACHINE_REDUCE] = "reduce-scatter",
        [MACHINE_ALL_REDUCE] = "all-reduce", [MACHINE_ALL_TO_ALL] = "all-to-all",
        [MACHINE_MESSAGE] = "message",       [MACHINE_MESSAGE_BUSY] = "message, computing",
    };
    for (int i = 0; i < machine->transfers; i++) {
        const struct machine_transfer *first = &machine->transfer[i], *last = first;
        while (i + 1 < machine->transfers && machine->transfer[i + 1].kind == first->kind &&
               machine->transfer[i + 1].ranks == first->ranks &&
               machine->transfer[i + 1].nodes == first->nodes)
            last = &machine->transfer[++i];
        doctor_fact(d, names[first->kind],
                    "%d ranks on %d node%s: %.3g us for %.0f bytes, %.3g GB/s for %.3g MB",
                    first->ranks, first->nodes, first->nodes > 1 ? "s" : "", first->seconds * 1e6,
                    first->bytes, last->bytes / last->seconds * 1e-9, last->bytes * 1e-6);
    }
}

/* Print what was not measured, and what may have disturbed the measurement. */
static void show_doubts(const struct doctor *d, const struct measure *m)
{
    if (world_size(m->world) == 1)
        doctor_fact(d, "not measured", "transfers: one rank has none (mpirun -n N, or srun)");
    else if (world_nodes(m->world) == 1)
        doctor_fact(d, "not measured",
                    "the network: all ranks are on one node; the file has 10 "
                    "Gbit/s Ethernet in its place");
    if (m->own_share > 0 && m->own_share < MEASURE_SHARE)
        doctor_fact(d, "disturbed",
                    "other programs used the processors: the ranks had %.0f %% of their threads' "
                    "time; measure again when they are idle",
                    m->own_share * 100);
    if (m->is_late)
        doctor_fact(d, "cut short", "the last parts were measured only once: the time was over");
}

void measure_show(const struct measure *m)
{
    const struct machine *machine = m->machine;
    const struct doctor d = {.prints = world_rank(m->world) == 0};
    const int ranks = world_size(m->world);
    double size;
    if (machine->threads)
        doctor_fact(&d, "machine", "%s: %d rank%s of %d thread%s", machine->name, ranks,
                    ranks > 1 ? "s" : "", machine->threads, machine->threads > 1 ? "s" : "");
    else
        doctor_fact(&d, "machine", "%s: %d rank%s, %s", machine->name, ranks, ranks > 1 ? "s" : "",
                    machine->gpu);
    doctor_fact(&d, "memory", "%.1f GiB, copied at %.1f GB/s read and written; host %.1f GB/s",
                gib_of(machine->memory_bytes), machine->memory_bytes_per_s * 1e-9,
                machine->host_link_bytes_per_s * 1e-9);
    show_products(&d, m);
    show_ops(&d, m);
    doctor_fact(&d, "updates", "AdamW %.1f GB/s read and written, on the host %.1f",
                largest(machine, "UPDATE", DTYPE_F32, &size) * 1e-9,
                machine->host_memory_bytes_per_s * 1e-9);
    doctor_fact(&d, "op that does nothing", "%.3g us", machine->launch_s * 1e6);
    show_transfers(&d, machine);
    if (ranks > 1)
        doctor_fact(&d, "at the same time",
                    "products keep %.0f %% of their speed, transfers %.0f %%",
                    machine->beside_compute * 100, machine->beside_transfer * 100);
    doctor_fact(&d, "disk of a node", "%.0f MB/s written, %.0f read; page cache %.0f and %.0f",
                machine->disk_write_bytes_per_s * 1e-6, machine->disk_read_bytes_per_s * 1e-6,
                machine->disk_cached_write_bytes_per_s * 1e-6,
                machine->disk_cached_read_bytes_per_s * 1e-6);
    if (machine->threads)
        doctor_fact(&d, "beside its copies", "updates keep %.0f %% of their speed, copies %.0f %%",
                    machine->beside_file_compute * 100, machine->beside_file * 100);
    show_doubts(&d, m);
    doctor_fact(&d, "written", "%s: %d products, %d ops, %d transfers", m->options->file,
                machine->products, machine->ops, machine->transfers);
}
