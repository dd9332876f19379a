/* division_names.c - what nodes and values are called in messages of division.c. */
#include <stdio.h>

#include "verify/division_private.h"

/* "linear (mlp.down)" */
const char *division_node_name(const struct division *d, const struct graph_node *n,
                               char text[DIVISION_TEXT])
{
    const char *param = NULL;
    for (int k = 0; k < NODE_INS && !param; k++)
        if (n->in[k] >= 0 && division_is_param(d, n->in[k]))
            param = d->graph->params[division_value(d, n->in[k])->index].tensor_name[0];
    snprintf(text, DIVISION_TEXT, param ? "%s (%s)" : "%s", n->op->name, param);
    return text;
}

const char *division_name(const struct division *d, int v, char text[DIVISION_TEXT])
{
    char node[DIVISION_TEXT];
    const struct graph_value *value = division_value(d, v);
    if (value->role == VALUE_PARAM)
        snprintf(text, DIVISION_TEXT, "parameter %.60s",
                 d->graph->params[value->index].tensor_name[0]);
    else if (value->producer >= 0)
        snprintf(text, DIVISION_TEXT, "the result of %.80s",
                 division_node_name(d, &d->graph->nodes[value->producer], node));
    else
        snprintf(text, DIVISION_TEXT,
                 value->role == VALUE_INPUT ? "the unit's input" : "a constant");
    return text;
}
