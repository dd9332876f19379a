/* division_private.h - what division.c and division_gradients.c share. */
#ifndef TRIREME_VERIFY_DIVISION_PRIVATE_H
#define TRIREME_VERIFY_DIVISION_PRIVATE_H

#include "comm/mesh.h"
#include "verify/columns.h"
#include "verify/division_ops.h"

struct division {
    const struct graph *graph;
    const char *unit;
    int axis;
    enum division_share *share;     /* per value */
    struct columns *columns;        /* per value, where that is COLUMNS or SPREAD */
    enum division_grad_share *grad; /* per value, so far */
    int *taken; /* per enum op_transfer: exchanges that the gradients need, so far */
    struct error *err;
};

static inline int division_is_data(const struct division *d)
{
    return MESH_DATA >> d->axis & 1;
}

static inline const struct graph_value *division_value(const struct division *d, int v)
{
    return &d->graph->values[v];
}

static inline int division_is_param(const struct division *d, int v)
{
    return division_value(d, v)->role == VALUE_PARAM;
}

static inline int division_is_over(const struct division *d, struct graph_group group)
{
    return graph_axes(group) >> d->axis & 1;
}

/* Has each rank its own rows of a boundary that these have so? */
static inline int division_is_own(const struct division *d, struct graph_group row_group)
{
    return division_is_data(d) || division_is_over(d, row_group);
}

static inline int division_exchanges(const struct division *d, const struct graph_node *n)
{
    return n->op->transfer != TRANSFER_NONE && n->attrs.axes >> d->axis & 1;
}

/* For messages: what a node is, "linear (mlp.down)", and what a value is. */
enum { DIVISION_TEXT = 96 };
const char *division_node_name(const struct division *d, const struct graph_node *n,
                               char text[DIVISION_TEXT]);
const char *division_name(const struct division *d, int v, char text[DIVISION_TEXT]);

/* Follow gradients back through a graph whose shares are known.  0, or -1 with err set. */
int division_check_gradients(const struct division *d);

#endif
