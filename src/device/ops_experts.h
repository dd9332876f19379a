/* ops_experts.h - the ops of a mixture of experts: feed-forward networks of which a router chooses
 * some for each row (Shazeer et al. 2017, arXiv 1701.06538; Fedus et al. 2021, arXiv 2101.03961).
 *
 * A slot is a row at one of its chosen experts: `rows` rows have rows * chosen slots.  Slots lie
 * expert by expert, and of each expert in the order of rows, so that an expert has its rows end to
 * end, as many as chose it: no row is dropped, and none is padded.
 *
 *   rows 0 1 2, two of three experts each       0: A C    1: A B    2: C A
 *   slots                                       A0 A1 A2 | B1 | C0 C2
 *
 *   logits -> route -> weights of slots, routes
 *   x      -> dispatch -> x by slots -> experts_gemm -> ... -> experts_gemm -> combine -> y
 */
#ifndef TRIREME_DEVICE_OPS_EXPERTS_H
#define TRIREME_DEVICE_OPS_EXPERTS_H

#include <stdint.h>

#include "base/dtype.h"

/* Limits of all ops here. */
enum { ROUTE_MOST_EXPERTS = 1024, ROUTE_MOST_CHOSEN = 64 };

/* How a router chooses, and what its gradient takes in. */
struct route {
    enum dtype dt;                 /* of dlogits */
    int64_t rows, experts, chosen; /* chosen: experts of each row, at most `experts` */
    int normed;                    /* 1: the weights of a row's slots are divided by their sum */
    /* For the gradient that evens the load out: */
    float balance;          /* its factor; 0: there is none */
    int64_t seq;            /* rows of a sequence, over which the load is counted */
    const int32_t *targets; /* [rows]: rows where it is below 0 do not count; NULL: all count */
};

/* What rows the experts have, int32 [experts + 1 + 3 * rows * chosen]. */
struct routes {
    const int32_t *first;  /* [experts + 1]: first slot of each expert; then how many slots */
    const int32_t *row;    /* [slots]: the row of each slot */
    const int32_t *slot;   /* [rows, chosen]: the slots of each row, by falling weight */
    const int32_t *expert; /* [rows, chosen]: their experts */
};

static inline int64_t routes_elems(int64_t rows, int64_t experts, int64_t chosen)
{
    return experts + 1 + 3 * rows * chosen;
}

static inline struct routes routes_of(const int32_t *routes, int64_t rows, int64_t experts,
                                      int64_t chosen)
{
    const int32_t *row = routes + experts + 1;
    return (struct routes){routes, row, row + rows * chosen, row + 2 * rows * chosen};
}

/* Rows that go to experts and come back. */
struct experts_rows {
    enum dtype dt;     /* of x, and of dispatch's y */
    enum dtype dt_sum; /* combine: of y and addend: dt, or fp32 */
    int64_t rows, columns, experts, chosen;
};

/* The products of all experts, each of its own rows with its own matrix.
 *
 *   forward       c [slots, out]             = a [slots, in] b[e]^T,  b [experts, out, in]
 *   input_grad    c [slots, in]              = a [slots, out] b[e]
 *   weight_grad   c [experts, out, in] fp32 (+)= a[slots of e, out]^T b[slots of e, in] */
enum experts_pass { EXPERTS_FORWARD, EXPERTS_INPUT_GRAD, EXPERTS_WEIGHT_GRAD };
struct experts_gemm {
    enum experts_pass pass;
    enum dtype dt;                   /* of a and b, and of c but in weight_grad */
    int64_t slots, experts, out, in; /* in first[], an expert may have any of the slots, or none */
    int accumulate;                  /* weight_grad, 1: add to c; 0: experts without rows get 0 */
};

#endif
