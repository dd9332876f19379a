/* record.c - see record.h. */
#include "simulate/record.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "program/sent.h"

/* Is it recorded: of few ranks all are. */
static int is_recorded(const struct forecast_request *request, int r)
{
    const struct mesh_coord *own = &request->program[r]->state->coord;
    return request->ranks <= RECORD_FEW || !r ||
           own->at[MESH_PIPELINE] != request->program[r - 1]->state->coord.at[MESH_PIPELINE];
}

void record_begin(struct record *record, const struct forecast_request *request)
{
    size_t ranks = (size_t)request->ranks;
    *record = (struct record){.request = request};
    record->rank = array_make(ranks, sizeof *record->rank);
    record->cost = array_make(ranks, sizeof *record->cost);
    record->index = array_make(ranks, sizeof *record->index);
    for (int r = 0; r < request->ranks; r++) {
        const struct program *program = request->program[r];
        record->index[r] = is_recorded(request, r) ? record->ranks++ : -1;
        if (record->index[r] < 0)
            continue;
        record->rank[record->index[r]].rank =
            mesh_rank(&program->layout->shape, program->state->coord);
        record->cost[record->index[r]] =
            cost_create(&(struct cost_request){.machine = request->machine,
                                               .program = program,
                                               .device = request->device,
                                               .per_node = request->per_node,
                                               .ns_steps = request->ns_steps});
    }
}

static int64_t ns_of(double seconds)
{
    return llrint(1e9 * seconds);
}

static void add(struct record_rank *r, const char *name, int lane, enum play_kind kind,
                double start_s, double end_s, int64_t bytes)
{
    r->kind = array_grow(r->kind, r->trace.events, &r->capacity, sizeof *r->kind);
    r->kind[r->trace.events] = kind;
    trace_add(&r->trace, name, lane, ns_of(start_s), ns_of(end_s), bytes);
}

static int64_t bytes_of(const struct program *program, const struct instr *instr)
{
    if (instr_is_transfer(instr))
        return sent_bytes(program, instr);
    return instr_is_copy(instr) ? (int64_t)program->buffer[instr->buffer[SLOT_FROM]].bytes : 0;
}

/* The ops of a RUN, one after another. */
static void add_ops(struct record *record, int at, const struct program *program,
                    const struct instr *instr, double start_s, double end_s)
{
    const struct segment *segment = program_segment(program, instr->unit, instr->phase);
    const struct segment_piece *piece = &segment->piece[instr->piece];
    double all = 0, done = 0;
    for (int s = piece->first; s < piece->end; s++)
        all += cost_step_s(record->cost[at], segment, &segment->step[s]);
    for (int s = piece->first; s < piece->end && all > 0; s++) {
        double seconds = cost_step_s(record->cost[at], segment, &segment->step[s]);
        double each = (end_s - start_s) / all, from = start_s + done * each;
        done += seconds;
        if (seconds > 0)
            add(&record->rank[at], segment_node(segment, &segment->step[s])->op->name, TRACE_OPS,
                PLAY_KINDS, from, start_s + done * each, 0);
    }
}

void record_instr(struct record *record, int rank, int i, double start_s, double end_s)
{
    const struct program *program = record->request->program[rank];
    const struct instr *instr = &program->instr[i];
    char name[TRACE_NAME];
    int at = record->index[rank];
    if (at < 0)
        return;
    add(&record->rank[at], instr_text(program, i, name, sizeof name), (int)instr->stream,
        play_kind_of(instr), start_s, end_s, bytes_of(program, instr));
    if (instr->kind == INSTR_RUN)
        add_ops(record, at, program, instr, start_s, end_s);
}

void record_end(struct record *record, const struct forecast *forecast)
{
    record->step_s = forecast->step_s;
    for (int r = 0; r < record->ranks; r++)
        cost_destroy(record->cost[r]);
    free(record->cost);
    free(record->index);
    record->cost = NULL;
    record->index = NULL;
    record->request = NULL;
}

void record_free(struct record *record)
{
    for (int r = 0; r < record->ranks; r++) {
        trace_free(&record->rank[r].trace);
        free(record->rank[r].kind);
        if (record->cost)
            cost_destroy(record->cost[r]);
    }
    free(record->cost);
    free(record->index);
    free(record->rank);
    *record = (struct record){0};
}

struct js *record_json(const struct record *record, const char *machine)
{
    struct js *events, *document = trace_document(&events);
    for (int r = 0; r < record->ranks; r++) {
        const struct record_rank *rank = &record->rank[r];
        trace_json(events, rank->rank, machine, rank->trace.event, rank->trace.events);
    }
    return document;
}
