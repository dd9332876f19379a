/* boundaries.c - see boundaries.h.
 *
 *   unit   0 embed   1 encode   2 end     3 embed   4 decode         5 decode         6 head
 *   reads            hidden     hidden              hidden, encoded  hidden, encoded  hidden
 *   of               0          1                   3, 2             4, 2             5
 *   puts   hidden    hidden     encoded   hidden    hidden           hidden
 */
#include "segment/boundaries.h"

#include <string.h>

static int find_producer(struct graph *const *graph, int unit, const char *name)
{
    while (--unit >= 0)
        if (!strcmp(graph[unit]->output_name, name))
            return unit;
    return -1;
}

static int find_inputs(struct units *units, struct graph *const *all, int unit, struct error *err)
{
    const struct graph *graph = all[unit];
    struct unit_boundaries *own = &units->boundary[unit];
    for (int k = 0; k < graph->inputs; k++) {
        const char *name = graph->input[k].name;
        int from = find_producer(all, unit, name);
        if (from < 0)
            return error_set(err, "model: unit %d reads \"%s\", which no unit before it puts out",
                             unit, name);
        const struct graph *other = all[from];
        const struct graph_value *in = &graph->values[graph->input[k].value],
                                 *out = &other->values[graph_find(other, VALUE_OUTPUT)];
        if (in->dims != out->dims || in->dtype != out->dtype ||
            memcmp(in->dim, out->dim, sizeof in->dim))
            return error_set(err,
                             "model: unit %d reads \"%s\" as [%lld, %lld], and unit %d puts out "
                             "[%lld, %lld]",
                             unit, name, (long long)in->dim[0], (long long)in->dim[1], from,
                             (long long)out->dim[0], (long long)out->dim[1]);
        own->producer[own->inputs++] = from;
        units->boundary[from].readers++;
    }
    int output = graph_find(graph, VALUE_OUTPUT);
    own->bytes = output < 0 ? 0 : graph_bytes(graph, output);
    return 0;
}

int boundaries_find(struct units *units, struct graph *const *graph, struct error *err)
{
    for (int u = 0; u < units->count; u++)
        if (find_inputs(units, graph, u, err))
            return -1;
    /* An output that nobody reads has no gradient: backward of its unit could not begin. */
    for (int u = 0; u < units->count; u++)
        if (units->boundary[u].bytes && !units->boundary[u].readers)
            return error_set(err, "model: unit %d puts out \"%s\", which no unit reads", u,
                             graph[u]->output_name);
    return 0;
}
