/* report.c - see report.h. */
#include "plan/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/compile.h"
#include "program/memory.h"
#include "verify/verify.h"

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
    struct device_request request = {
        .kind = on_gpu ? DEVICE_CUDA : DEVICE_CPU, .threads = threads, .planning = on_gpu};
    if (device_open(&m->device, &request, err) || layout_model(&m->model, config, err))
        return -1;
    layout_device(&m->report->layout, request.kind);
    m->report->on_gpu = on_gpu;
    struct mesh_options options = layout_comm(config);
    m->report->reserve_bytes =
        on_gpu ? m->device->reserve_bytes + mesh_reserve_bytes(&m->report->layout.shape, &options)
               : 0;
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

/* In numbers of instr->dtype. */
static int64_t sent_by(const struct program *program, const struct instr *instr)
{
    struct seat seat = seat_in(&program->request, instr->group);
    switch (instr->kind) {
    case INSTR_SEND: return instr->elems;
    case INSTR_GATHER:
    case INSTR_REDUCE: return instr->elems * (seat.size - 1);
    case INSTR_ALLREDUCE:
        return group_all_reduce_sent(seat.size, seat.rank, instr->elems, instr->dtype) /
               (int64_t)dtype_bytes(instr->dtype);
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
        const struct instr *instr = &train->instr[i];
        if (instr->kind == INSTR_RUN)
            r->flops += units_segment(train->units, instr->unit, instr->phase)->flops;
        if (instr->kind == INSTR_FETCH || instr->kind == INSTR_SPILL)
            r->moved_bytes[instr->stream] += (int64_t)train->buffer[instr->buffer[SLOT_TO]].bytes;
        if (instr->group < 0)
            continue;
        int64_t elems = sent_by(train, instr);
        r->transfers++;
        r->sent_elems += elems;
        r->sent_bytes += elems * (int64_t)dtype_bytes(instr->dtype);
    }
    r->total_bytes = mem_bytes(r->pool_bytes);
    r->host_bytes = report->on_gpu ? r->pool_bytes[POOL_HOST] : r->total_bytes;
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
    for (int r = 0; r < report->measured; r++) {
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

static int make(struct making *m, int threads, struct error *err)
{
    struct report *report = m->report;
    const struct config *config = &report->config;
    int per_node = report->ranks % report->nodes ? 0 : report->ranks / report->nodes;
    if (layout_resolve(&report->layout, config, report->ranks, per_node, err) ||
        open_model(m, config, threads, err) || compile(m, err))
        return -1;
    struct model_flops flops = model_flops_per_token(m->model, config->data.seq_len);
    report->params = model_params(m->model);
    report->flops = flops.causal * (double)(report->layout.global_batch * config->data.seq_len);
    return 0;
}

/* Measure `measured` ranks; check them if that is all. */
static int make_some(struct report *report, int measured, int threads, struct error *err)
{
    struct making m = {.report = report};
    report->measured = measured;
    report->rank = array_make((size_t)measured, sizeof *report->rank);
    m.program = array_make((size_t)measured, sizeof *m.program);
    int rc = make(&m, threads, err);
    if (!rc && measured == report->ranks)
        verify(&m);
    for (int r = 0; r < measured; r++)
        program_destroy(m.program[r]);
    free(m.program);
    units_destroy(m.units);
    model_destroy(m.model);
    device_close(m.device);
    if (rc)
        report_free(report);
    return rc;
}

int report_make(struct report *report, const struct config *config, int ranks, int nodes,
                int threads, struct error *err)
{
    *report = (struct report){.config = *config, .ranks = ranks, .nodes = nodes};
    return make_some(report, ranks, threads, err);
}

int report_measure(struct report *report, const struct config *config, int ranks, int nodes,
                   int threads, struct error *err)
{
    *report = (struct report){.config = *config, .ranks = ranks, .nodes = nodes};
    return make_some(report, 1, threads, err);
}

void report_judge(struct report *report, const char *name, size_t memory_bytes)
{
    snprintf(report->machine, sizeof report->machine, "%s", name);
    report->room.device_bytes = memory_bytes;
}

void report_judge_node(struct report *report, size_t memory_bytes)
{
    size_t per_node = (size_t)((report->ranks + report->nodes - 1) / report->nodes);
    report->room.host_bytes = memory_bytes / per_node;
}

static size_t beyond(size_t wanted, size_t room)
{
    return room && wanted > room ? wanted - room : 0;
}

struct report_room report_lack(const struct report *report, const struct report_room *room)
{
    struct report_room most = {0};
    for (int r = 0; r < report->measured; r++) {
        size_t device = beyond(report->rank[r].device_bytes, room->device_bytes);
        size_t host = beyond(report->rank[r].host_bytes, room->host_bytes);
        most.device_bytes = device > most.device_bytes ? device : most.device_bytes;
        most.host_bytes = host > most.host_bytes ? host : most.host_bytes;
    }
    return most;
}

size_t report_short_bytes(const struct report *report)
{
    return report_lack(report, &report->room).device_bytes;
}

void report_free(struct report *report)
{
    free(report->rank);
    report->rank = NULL;
}
