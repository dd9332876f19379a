/* division_ops.h - what each op makes of what a rank has of its inputs; for division.c alone. */
#ifndef TRIREME_VERIFY_DIVISION_OPS_H
#define TRIREME_VERIFY_DIVISION_OPS_H

#include "graph/op.h"

/* What a rank has of a value.  SPREAD: what an all_to_all made of own columns.  PART: what a row of
 * logits comes to, of own columns alone. */
enum division_share { WHOLE, TERM, ROWS, COLUMNS, SPREAD, PART };

/* What it has of the gradient.  OWN: of its own rows or columns. */
enum division_pull { NO_PULL, PULL_WHOLE, PULL_TERM, PULL_OWN };

/* Ops that do the same to every element, row or head.  Inputs by bits. */
struct division_rule {
    const struct op *op;
    unsigned same;    /* those that must be like the first one, which get the same gradient */
    unsigned columns; /* parameters with an element for each column */
    int linear;       /* a sum of results is the result of the sum */
    int all_columns;  /* needs all of a row */
    int in_sequence;  /* depends on the place of a row in its sequence, */
    unsigned places;  /* unless this input says it */
    int heads;        /* columns are heads, packed or in the first two inputs */
    int halves;       /* columns are two halves */
    int first;        /* the result's columns are those of the first tensor alone */
};

static const struct division_rule rules[] = {
    {.op = &op_rmsnorm, .same = 1 << 0 | 1 << 1, .columns = 1 << 2, .all_columns = 1},
    {.op = &op_layernorm, .same = 1 << 0, .columns = 1 << 1 | 1 << 2, .all_columns = 1},
    {.op = &op_rope, .same = 1 << 0, .linear = 1, .in_sequence = 1, .places = 1 << 2, .heads = 1},
    {.op = &op_attention, .same = 1 << 0 | 1 << 1, .in_sequence = 1, .heads = 1, .first = 1},
    {.op = &op_swiglu, .same = 1 << 0, .halves = 1, .first = 1},
    {.op = &op_add, .same = 1 << 0 | 1 << 1, .linear = 1},
    {.op = &op_bias, .same = 1 << 0, .columns = 1 << 1},
    {.op = &op_gelu, .same = 1 << 0, .columns = 1 << 1},
    {.op = &op_positions, .same = 1 << 0, .columns = 1 << 1, .in_sequence = 1},
    {.op = &op_head_loss, .same = 1 << 0, .all_columns = 1, .in_sequence = 1},
};

/* Why gradients are refused in more than one place. */
static const char no_sum[] = "is a term of a sum, because build_divided() is not said of it",
                  no_term[] = "is summed, as build_divided() says, but is no term of a sum";

/* What ranks exchange: of what, and what they have then; and the same of gradients, backward. */
static const struct exchange {
    enum division_share takes, gives;
    int takes_both;            /* and what it gives */
    const char *why_not;       /* where it is something else */
    enum division_pull pulled; /* NO_PULL: any */
    const char *why_not_pulled;
    enum division_pull pulls;
} of_transfer[] = {
    [TRANSFER_SUM] = {.takes = TERM,
                      .gives = WHOLE,
                      .why_not = "those of different ranks have no sum",
                      .pulled = PULL_WHOLE,
                      .why_not_pulled = no_sum,
                      .pulls = PULL_WHOLE},
    [TRANSFER_SCATTER] = {.takes = TERM,
                          .gives = ROWS,
                          .why_not = "it is no term of the sum that is taken",
                          .pulls = PULL_WHOLE},
    [TRANSFER_MAXIMUM] = {.takes = PART,
                          .gives = WHOLE,
                          .takes_both = 1,
                          .why_not = "those of different ranks have no maximum"},
    [TRANSFER_GATHER] = {.takes = ROWS,
                         .gives = WHOLE,
                         .why_not = "it gathers own rows",
                         .pulled = PULL_TERM,
                         .why_not_pulled = "is summed to each rank's rows, but is no term of a sum",
                         .pulls = PULL_OWN},
    [TRANSFER_SWAP] = {.takes = COLUMNS,
                       .gives = SPREAD,
                       .takes_both = 1,
                       .why_not = "it exchanges rows of own columns",
                       .pulls = PULL_OWN},
};

#endif
