/* report.c - see report.h. */
#include "plan/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "step/memory.h"
#include "step/verify.h"

struct making {
    struct report *report;
    struct device *device;
    struct model *model;
    struct units *units;
    struct program **program; /* per rank */
};

static int open_model(struct making *m, const struct config *config, int threads, struct error *err)
{
    int on_gpu = config->device == CONFIG_DEVICE_CUDA;
    if (layout_check(&m->report->layout, on_gpu ? DEVICE_CUDA : DEVICE_CPU, err))
        return -1;
    struct device_request request = {
        .kind = on_gpu ? DEVICE_CUDA : DEVICE_CPU, .threads = threads, .planning = on_gpu};
    if (device_open(&m->device, &request, err) || model_create(&m->model, &config->model, err))
        return -1;
    m->report->on_gpu = on_gpu;
    m->report->reserve_bytes = on_gpu ? m->device->reserve_bytes : 0;
    struct units_request units = layout_units(&m->report->layout, config);
    return units_create(&m->units, m->model, &units, m->device, err);
}

/* The group a transfer runs over, as seen from the rank at coord. */
struct seat {
    int size, rank;
};

static struct seat seat_in(const struct program_request *request, int group)
{
    const int *degree = request->shape.degree, *at = request->coord.at;
    if (group != GROUP_DATA)
        return (struct seat){degree[group], at[group]};
    return (struct seat){degree[MESH_REPLICATE] * degree[MESH_SHARD],
                         at[MESH_REPLICATE] * degree[MESH_SHARD] + at[MESH_SHARD]};
}

static int64_t sent_by(const struct program *program, const struct instr *instr)
{
    struct seat seat = seat_in(&program->request, instr->group);
    int64_t bytes = instr->elems * (int64_t)dtype_bytes(instr->dtype);
    switch (instr->kind) {
    case INSTR_SEND: return bytes;
    case INSTR_GATHER:
    case INSTR_REDUCE: return bytes * (seat.size - 1);
    case INSTR_ALLREDUCE:
        return group_all_reduce_sent(seat.size, seat.rank, instr->elems, instr->dtype);
    default: return 0;
    }
}

/* What the transports allocate: for GPUs also a part that lies in host memory. */
static void measure_staging(struct report *report, struct report_rank *r)
{
    const struct mesh_shape *shape = &report->layout.shape;
    struct mesh_options options = layout_comm(&report->config);
    size_t host = mesh_staging_bytes(shape);
    r->pool_bytes[POOL_COMM] = host;
    if (!report->on_gpu)
        return;
    r->pool_bytes[POOL_COMM] += mesh_device_staging_bytes(shape, &options);
    r->pool_bytes[POOL_HOST] += r->turn_bytes + mesh_host_staging_bytes(shape, &options);
    r->device_bytes = memory_device_bytes(r->pool_bytes) - host + report->reserve_bytes;
}

static void measure(struct report *report, int rank, const struct program *train)
{
    struct report_rank *r = &report->rank[rank];
    measure_staging(report, r);
    r->instrs = train->instrs;
    for (int i = 0; i < train->instrs; i++) {
        if (train->instr[i].group < 0)
            continue;
        r->transfers++;
        r->sent_bytes += sent_by(train, &train->instr[i]);
    }
    r->total_bytes = mem_bytes(r->pool_bytes);
}

static void join(struct report *report, int rank, const struct program *program)
{
    struct report_rank *r = &report->rank[rank];
    size_t turns = report->on_gpu ? MEMORY_TURNS * memory_turn_bytes(program) : 0;
    memory_join(r->pool_bytes, program);
    r->turn_bytes = turns > r->turn_bytes ? turns : r->turn_bytes;
}

/* A run that evaluates shares its slabs with the evaluation's program. */
static int join_evaluation(struct making *m, int rank, struct error *err)
{
    struct report *report = m->report;
    struct program *evaluate;
    struct program_request request = layout_program(&report->layout, PROGRAM_EVALUATE, 1, rank);
    if (!report->config.data.valid[0])
        return 0;
    if (program_create(&evaluate, m->units, &request, err))
        return -1;
    join(report, rank, evaluate);
    program_destroy(evaluate);
    return 0;
}

static int compile(struct making *m, struct error *err)
{
    struct report *report = m->report;
    for (int r = 0; r < report->ranks; r++) {
        struct program_request request = layout_program(&report->layout, PROGRAM_TRAIN, 1, r);
        if (program_create(&m->program[r], m->units, &request, err) || join_evaluation(m, r, err))
            return -1;
        join(report, r, m->program[r]);
        measure(report, r, m->program[r]);
    }
    return 0;
}

static void verify(struct making *m)
{
    struct report *report = m->report;
    int rc = 0;
    for (int r = 0; !rc && r < report->ranks; r++)
        rc = verify_program(m->program[r], &report->verdict);
    if (!rc)
        rc = verify_ranks((const struct program *const *)m->program, report->ranks,
                          &report->verdict);
    report->verified = !rc;
}

int report_make(struct report *report, const struct config *config, int ranks, int nodes,
                int threads, struct error *err)
{
    *report = (struct report){.config = *config, .ranks = ranks};
    struct making m = {.report = report};
    if (layout_resolve(&report->layout, config, ranks, ranks % nodes ? 0 : ranks / nodes, err))
        return -1;
    report->rank = array_make((size_t)ranks, sizeof *report->rank);
    m.program = array_make((size_t)ranks, sizeof *m.program);
    int rc = open_model(&m, config, threads, err) || compile(&m, err) ? -1 : 0;
    if (!rc) {
        struct model_flops flops = model_flops_per_token(m.model, config->data.seq_len);
        report->params = model_params(m.model);
        report->flops = flops.causal * (double)(report->layout.global_batch * config->data.seq_len);
        verify(&m);
    }
    for (int r = 0; r < ranks; r++)
        program_destroy(m.program[r]);
    free(m.program);
    units_destroy(m.units);
    model_destroy(m.model);
    device_close(m.device);
    if (rc)
        report_free(report);
    return rc;
}

void report_judge(struct report *report, const char *name, size_t memory_bytes)
{
    snprintf(report->machine, sizeof report->machine, "%s", name);
    report->machine_bytes = memory_bytes;
}

/* Of the neediest rank. */
static size_t device_bytes(const struct report *report)
{
    size_t most = 0;
    for (int r = 0; r < report->ranks; r++)
        if (report->rank[r].device_bytes > most)
            most = report->rank[r].device_bytes;
    return most;
}

size_t report_short_bytes(const struct report *report)
{
    size_t most = device_bytes(report);
    return report->machine[0] && most > report->machine_bytes ? most - report->machine_bytes : 0;
}

void report_free(struct report *report)
{
    free(report->rank);
    report->rank = NULL;
}

static int alike(const struct report_rank *a, const struct report_rank *b)
{
    return !memcmp(a, b, sizeof *a);
}

static const char *human(double bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, size, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

static void print_bytes(const char *what, size_t bytes, FILE *out)
{
    char text[32];
    if (bytes)
        fprintf(out, "  %-16s %12s  %16zu bytes\n", what, human((double)bytes, text, sizeof text),
                bytes);
}

static void print_rank(const struct report *report, int first, int last, FILE *out)
{
    const struct report_rank *r = &report->rank[first];
    char text[32];
    if (first == last)
        fprintf(out, "\nrank %d\n", first);
    else
        fprintf(out, "\nranks %d to %d, each\n", first, last);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        print_bytes(mem_pool_name(pool), r->pool_bytes[pool], out);
    print_bytes("total", r->total_bytes, out);
    print_bytes("reserve", report->reserve_bytes, out);
    print_bytes("device memory", r->device_bytes, out);
    fprintf(out, "  %d instructions, %d transfers, %s sent a step\n", r->instrs, r->transfers,
            human((double)r->sent_bytes, text, sizeof text));
}

/* Does it have room on the machine that was named? */
static void print_verdict(const struct report *report, FILE *out)
{
    char text[32], rest[32];
    size_t most = device_bytes(report), lacks = report_short_bytes(report);
    if (!report->machine[0])
        return;
    human((double)report->machine_bytes, text, sizeof text);
    if (lacks)
        fprintf(out, "\ndoes not fit on %s (%s): short by %s\n", report->machine, text,
                human((double)lacks, rest, sizeof rest));
    else
        fprintf(out, "\nfits on %s (%s): %s left\n", report->machine, text,
                human((double)(report->machine_bytes - most), rest, sizeof rest));
}

void report_print(const struct report *report, FILE *out)
{
    const int *degree = report->layout.shape.degree;
    fprintf(out, "%s: %lld parameters, %s, sequences of %lld tokens, on %s\n",
            report->config.model.preset[0] ? report->config.model.preset : "model",
            (long long)report->params, dtype_name(report->layout.dtype),
            (long long)report->config.data.seq_len, report->on_gpu ? "one GPU a rank" : "CPUs");
    fprintf(out, "%d ranks: %s %d x %s %d x %s %d x %s %d\n", report->ranks, mesh_axis_name(0),
            degree[0], mesh_axis_name(1), degree[1], mesh_axis_name(2), degree[2],
            mesh_axis_name(3), degree[3]);
    fprintf(out, "global batch %lld = %d data ranks x %d micro-batches x %lld sequences%s\n",
            (long long)report->layout.global_batch, report->layout.data_ranks,
            report->layout.micros, (long long)report->layout.micro_batch,
            report->layout.data_ranks * report->layout.micros * report->layout.micro_batch >
                    report->layout.global_batch
                ? ", the rest masked"
                : "");
    fprintf(out, "%.3f TFLOP a step (6 per weight and token, causal attention)\n",
            report->flops / 1e12);
    for (int first = 0, last; first < report->ranks; first = last + 1) {
        for (last = first;
             last + 1 < report->ranks && alike(&report->rank[first], &report->rank[last + 1]);)
            last++;
        print_rank(report, first, last, out);
    }
    print_verdict(report, out);
    if (report->verified)
        fprintf(out,
                "\nverified: no race, no early reuse, every transfer matched on all %d "
                "rank%s, no deadlock\n",
                report->ranks, report->ranks > 1 ? "s" : "");
    else
        fprintf(out, "\nNOT VERIFIED: %s\n", report->verdict.text);
}

struct js *report_json(const struct report *report)
{
    struct js *js = js_object(), *ranks = js_array();
    js_add_int(js, "parameters", report->params);
    js_add_int(js, "ranks", report->ranks);
    js_add_int(js, "micro_batch", report->layout.micro_batch);
    js_add_int(js, "micro_batches", report->layout.micros);
    js_add_real(js, "flops_per_step", report->flops);
    js_add_string(js, "device", report->on_gpu ? "cuda" : "cpu");
    if (report->on_gpu)
        js_add_int(js, "reserve_bytes", (int64_t)report->reserve_bytes);
    if (report->machine[0]) {
        js_add_string(js, "machine", report->machine);
        js_add_int(js, "machine_bytes", (int64_t)report->machine_bytes);
        js_add_int(js, "short_bytes", (int64_t)report_short_bytes(report));
    }
    js_add_bool(js, "verified", report->verified);
    if (!report->verified)
        js_add_string(js, "verdict", report->verdict.text);
    for (int r = 0; r < report->ranks; r++) {
        struct js *rank = js_object(), *pools = js_object();
        for (int pool = 0; pool < POOL_COUNT; pool++)
            js_add_int(pools, mem_pool_name(pool), (int64_t)report->rank[r].pool_bytes[pool]);
        js_add(rank, "pool_bytes", pools);
        js_add_int(rank, "total_bytes", (int64_t)report->rank[r].total_bytes);
        if (report->on_gpu)
            js_add_int(rank, "device_bytes", (int64_t)report->rank[r].device_bytes);
        js_add_int(rank, "instructions", report->rank[r].instrs);
        js_add_int(rank, "transfers", report->rank[r].transfers);
        js_add_int(rank, "sent_bytes_per_step", report->rank[r].sent_bytes);
        js_add(ranks, NULL, rank);
    }
    js_add(js, "rank", ranks);
    return js;
}
