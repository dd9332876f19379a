/* segment_run.c - the inner loop of a step: ops, one after another. */
#include "segment/segment.h"

#include "device/ops.h"

static void *at(const struct segment_ref *ref, void *const *base)
{
    return ref->space < 0 ? NULL : (char *)base[ref->space] + ref->offset;
}

static void zero_pads(const struct flat *flat, struct device *device, char *grad)
{
    size_t size = dtype_bytes(flat->grad_dtype);
    for (int i = 0; i < flat->pads; i++)
        device->ops->fill_zero(device, grad + (size_t)flat->pad[i].start * size,
                               (size_t)flat->pad[i].count * size);
}

/* Is the gradient of section 0 written here, not added to?  Then so is the padding. */
static int writes_pads(const struct segment *segment, int piece, const struct flat *const *flat,
                       int use, uint64_t accumulate)
{
    return segment_piece_sections(segment, piece, use, flat[use]) & 1 &&
           !(accumulate & segment_adds(use, 0));
}

/* Outputs of one op are written by the same segments, so they are of one section. */
static int adds(const struct segment_step *step, const struct flat *const *flat,
                uint64_t accumulate)
{
    int k = 0;
    while (step->tensor[k] < 0)
        k++;
    int section = flat[step->grad_use]->tensor[step->tensor[k]].section;
    return !!(accumulate & segment_adds(step->grad_use, section));
}

static int run_step(const struct segment *segment, const struct segment_step *step, int layer,
                    const struct flat *const *flat, struct device *device, void *const *base,
                    uint64_t accumulate, struct error *err)
{
    const struct graph_node node = segment_step_node(segment, step);
    struct op_call call = {
        .device = device,
        .graph = segment->graph,
        .node = &node,
        .shape = segment->graph->values[node.in[0]].dim,
        .layer = layer,
    };
    for (int k = 0; k < NODE_INS; k++)
        call.in[k] = at(&step->in[k], base);
    for (int k = 0; k < NODE_OUTS; k++)
        call.out[k] = at(&step->out[k], base);
    call.scratch = at(&step->scratch, base);
    if (step->grad_use >= 0)
        call.accumulate = node.accumulate || adds(step, flat, accumulate);
    if (step->adds_input >= 0)
        call.accumulate = !!(accumulate & segment_adds_input(step->adds_input));
    if (!node.op->run(&call, err))
        return 0;
    return error_prefix(err, "op %s", node.op->name);
}

int segment_run_piece(const struct segment *segment, int piece, int layer,
                      const struct flat *const *flat, struct device *device, void *const *base,
                      uint64_t accumulate, struct segment_watch *watch, struct error *err)
{
    for (int use = 0; use < FLAT_USES; use++)
        if (writes_pads(segment, piece, flat, use, accumulate))
            zero_pads(flat[use], device, base[SPACE_GRAD + use]);
    for (int s = segment->piece[piece].first; s < segment->piece[piece].end; s++) {
        const char *name = segment_node(segment, &segment->step[s])->op->name;
        if ((watch && watch->begins(watch, name, err)) ||
            run_step(segment, &segment->step[s], layer, flat, device, base, accumulate, err) ||
            (watch && watch->ended(watch, name, err)))
            return -1;
    }
    return 0;
}
