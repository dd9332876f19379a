/* segment_run.c - the inner loop of a step: ops, one after another. */
#include "segment/segment.h"

#include <string.h>

#include "device/ops.h"

static void *at(const struct segment_ref *ref, void *const *base)
{
    return ref->space < 0 ? NULL : (char *)base[ref->space] + ref->offset;
}

static void zero_pads(const struct flat *flat, struct device *device, float *grad)
{
    for (int i = 0; i < flat->pads; i++)
        device->ops->fill_zero(device, grad + flat->pad[i].start,
                               (size_t)flat->pad[i].count * sizeof *grad);
}

static int is_shared(const struct graph *graph, const char *name)
{
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i].shared && !strcmp(graph->params[i].part[0], name))
            return 1;
    return 0;
}

/* The first gradients in another unit's flat parameter: that unit adds to them all later, also to
 * those of tensors that are its own alone. */
static void zero_others(const struct segment *segment, struct device *device, float *grad)
{
    const struct flat *flat = segment->shared;
    zero_pads(flat, device, grad);
    for (int t = 0; t < flat->tensors; t++)
        if (!is_shared(segment->graph, flat->tensor[t].name))
            device->ops->fill_zero(device, grad + flat->tensor[t].offset,
                                   (size_t)flat->tensor[t].elems * sizeof *grad);
}

static int run_step(const struct segment *segment, const struct segment_step *step,
                    struct device *device, void *const *base, unsigned accumulate,
                    struct error *err)
{
    const struct graph_node *node = &segment->graph->nodes[step->node];
    struct op_call call = {.device = device, .graph = segment->graph, .node = node};
    for (int k = 0; k < NODE_INS; k++)
        call.in[k] = at(&step->in[k], base);
    for (int k = 0; k < NODE_OUTS; k++)
        call.out[k] = at(&step->out[k], base);
    call.scratch = at(&step->scratch, base);
    if (step->grad_space >= 0)
        call.accumulate = node->accumulate || (accumulate >> step->grad_space & 1);
    if (!node->op->run(&call, err))
        return 0;
    return error_prefix(err, "op %s", node->op->name);
}

int segment_run(const struct segment *segment, struct device *device, void *const *base,
                unsigned accumulate, struct segment_watch *watch, struct error *err)
{
    unsigned fresh = segment->writes & ~accumulate;
    if (fresh & 1u << SPACE_GRAD)
        zero_pads(segment->own, device, base[SPACE_GRAD]);
    if (fresh & 1u << SPACE_SHARED_GRAD)
        zero_others(segment, device, base[SPACE_SHARED_GRAD]);
    for (int s = 0; s < segment->steps; s++) {
        const char *name = segment->graph->nodes[segment->step[s].node].op->name;
        if ((watch && watch->begins(watch, name, err)) ||
            run_step(segment, &segment->step[s], device, base, accumulate, err) ||
            (watch && watch->ended(watch, name, err)))
            return -1;
    }
    return 0;
}
