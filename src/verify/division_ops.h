/* division_ops.h - what a rank has of a result, by the op and by what it has of the inputs; for
 * division.c alone. */
#ifndef TRIREME_VERIFY_DIVISION_OPS_H
#define TRIREME_VERIFY_DIVISION_OPS_H

#include "graph/op.h"

/* What a rank has of a value.  SPREAD: what an all_to_all made of own columns.  PART: what a row of
 * logits comes to, of own columns alone. */
enum division_share { WHOLE, TERM, ROWS, COLUMNS, SPREAD, PART };

/* What it has of the gradient.  OWN: of its own rows or columns. */
enum division_grad_share { NO_GRAD, GRAD_WHOLE, GRAD_TERM, GRAD_OWN };

/* Ops that do the same to every element, row or head.  Inputs by bits. */
struct division_rule {
    const struct op *op;
    unsigned same;    /* those that must be like the first one, which get the same gradient */
    unsigned columns; /* parameters with an element for each column */
    int linear;       /* a sum of results is the result of the sum */
    int all_columns;  /* needs all of a row */
    int in_sequence;  /* depends on the place of a row in its sequence, */
    unsigned places;  /* unless one of these inputs says it */
    int heads;        /* columns are heads, packed or in the first two inputs */
    int halves;       /* columns are two halves */
    int first;        /* the result's columns are those of the first tensor alone */
};

/* The rule of an op; NULL: it has none. */
const struct division_rule *division_rule(const struct op *op);

/* What ranks exchange: forward, values; backward, the gradients of these. */
struct division_exchange {
    enum division_share takes; /* what a rank has of the input, */
    enum division_share gives; /* and then of the result */
    int takes_its_result; /* 1: an input that already is what the exchange gives is right, too */
    const char *why_not;  /* any other input is wrong: why */
    /* What a rank has of the result's gradient; NO_GRAD: anything. */
    enum division_grad_share grad_needed;
    const char *why_wrong_grad; /* any other gradient is wrong: why */
    /* What it then has of the input's gradient, */
    enum division_grad_share grad_given;
    enum op_transfer back; /* which backward takes by this exchange */
};

/* That of a transfer between ranks, which is not TRANSFER_NONE. */
const struct division_exchange *division_exchange(enum op_transfer transfer);

/* Are the rows that a node names those that the graph's rank has of its sequences? */
int division_is_own_part(const struct graph *graph, const struct graph_node *node);

/* The axes over which something in a graph is divided, by bits. */
unsigned division_axes(const struct graph *graph);

/* Why a gradient is wrong that is a term where the sum is needed: of the result of an all_reduce,
 * and of a unit's input. */
extern const char division_no_sum[];

#endif
