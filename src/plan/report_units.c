/* report_units.c - see report_units.h. */
#include "plan/report_units.h"

#include <stdlib.h>

#include "base/array.h"

static int is_forward(const struct instr *instr)
{
    return instr->phase == PHASE_FORWARD;
}

static void add_instr(struct report_unit *unit, const struct instr *instr, double seconds)
{
    if (instr->kind == INSTR_RUN)
        *(is_forward(instr) ? &unit->forward_s : &unit->backward_s) += seconds;
    else if (instr_is_transfer(instr))
        *(is_forward(instr) ? &unit->forward_exchange_s : &unit->backward_exchange_s) += seconds;
}

void report_units_fill(struct report *report, const struct forecast_request *request)
{
    const struct program *program = request->program[0];
    const struct units *units = program->units;
    struct cost *cost = cost_create(&(struct cost_request){.machine = request->machine,
                                                           .program = program,
                                                           .device = request->device,
                                                           .per_node = request->per_node,
                                                           .files = request->files,
                                                           .ns_steps = request->ns_steps});
    report->units = units->count;
    report->unit = array_make((size_t)units->count, sizeof *report->unit);
    for (int u = 0; u < units->count; u++) {
        report->unit[u].flops = units->flops[u];
        report->unit[u].kept_bytes = units_segment(units, u, PHASE_FORWARD)->saved_bytes;
    }
    for (int f = 0; f < units->flats; f++) {
        const struct flat *flat = &units->flat[f];
        report->unit[flat->unit].params += flat->elems;
        report->unit[flat->unit].trained += flat->trained ? flat->elems : 0;
    }
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        if (instr->piece >= 0)
            add_instr(&report->unit[instr->unit], instr, cost_instr_s(cost, i));
    }
    cost_destroy(cost);
}
