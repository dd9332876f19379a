/* op_dropout.c - dropout (Srivastava et al. 2014, JMLR 15).
 *
 * Inputs x [rows, cols], samples [batch, 2], addend [rows, cols] or none; output y = addend +
 * drop(x), where drop() sets some numbers to 0 and divides the others by 1 - share.  Nothing is
 * kept for backward, which drops the same numbers by the same op:
 *
 *   forward     y = addend + drop(x)
 *   backward    d addend = dy,  dx = drop(dy) + the gradient that x already has
 *
 * struct dropout_mask says which numbers are dropped, under a key made of seed, layer and site. The
 * sample numbers are read on the device when the op runs, so that a replayed CUDA graph and a
 * recomputed forward use those of their micro-batch.
 */
#include "base/philox.h"
#include "device/ops.h"
#include "graph/autodiff.h"
#include "graph/op.h"

enum { X, SAMPLES, ADDEND };

struct dropout_mask op_dropout_mask(const struct op_call *call, int k)
{
    const struct graph_dropout *d = &call->node->attrs.dropped;
    struct dropout_mask mask = dropout_mask_of(d->share);
    mask.key = philox_u64(philox_key(call->graph->seed, "dropout") ^ d->site,
                          (uint64_t)(call->layer + d->block));
    mask.samples = call->in[k];
    return mask;
}

static void shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[X]];
    const struct graph_dropout *d = &node->attrs.dropped;
    int64_t ranks = d->row_group.size > 1 ? d->row_group.size : 1;
    if (d->share < 0 || d->share >= 1)
        graph_fail(graph, "dropout: a share of %g is not from 0 to below 1", d->share);
    if (x.dim[0] * ranks < graph->batch * node->attrs.seq ||
        (ranks == 1 && x.dim[0] != graph->batch * node->attrs.seq))
        graph_fail(graph, "dropout: %lld rows on %lld ranks are not %lld sequences of %lld",
                   (long long)x.dim[0], (long long)ranks, (long long)graph->batch,
                   (long long)node->attrs.seq);
    if (node->in[ADDEND] >= 0 && graph_elems(graph, node->in[ADDEND]) != x.dim[0] * x.dim[1])
        graph_fail(graph, "dropout: addend has another shape than what is dropped");
    if (node->in[ADDEND] >= 0 && graph->values[node->in[ADDEND]].dtype != x.dtype)
        graph_fail(graph, "dropout: addend is in another format than what is dropped");
    op_shaped_as_first(graph, node);
}

static void gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    if (node->in[ADDEND] >= 0)
        autodiff_give(ad, node->in[ADDEND], dy);
    int before = autodiff_take(ad, node->in[X]);
    int back =
        autodiff_node(ad, &op_dropout, (int[]){dy, node->in[SAMPLES], before}, 3, &node->attrs);
    autodiff_give(ad, node->in[X], ad->graph->nodes[back].out[0]);
}

static int run(const struct op_call *call, struct error *err)
{
    const struct op_attrs *a = &call->node->attrs;
    const struct graph_group *own = &a->dropped.row_group;
    const struct dropout p = {
        .dt = call->graph->values[call->node->in[X]].dtype,
        .rows = call->shape[0],
        .cols = call->shape[1],
        .first = a->dropped.first,
        .batch = call->graph->batch,
        .seq = a->seq,
        .part = a->part,
        .ranks = own->size > 1 ? own->size : 1,
        .rank = own->size > 1 ? own->rank : 0,
        .row_chunks = own->size > 1 && own->row_chunks > 1 ? own->row_chunks : 1,
        .mask = op_dropout_mask(call, SAMPLES),
    };
    call->device->ops->dropout(call->device, &p, call->out[0], call->in[X], call->in[ADDEND]);
    return 0;
}

const struct op op_dropout = {
    .name = "dropout",
    .shapes = shapes,
    .gradient = gradient,
    .flops_each = 2,
    .run = run,
    .in_place = 1u << X | 1u << ADDEND,
};
