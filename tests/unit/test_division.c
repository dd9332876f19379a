/* test_division.c - does division_check() see that a graph divided among ranks forgets an exchange,
 * makes one too many, or one over other ranks?  One right block, each fault in it by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "comm/mesh.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "graph/op.h"
#include "verify/division.h"

enum { HIDDEN = 8, INNER = 12, TENSOR = 1 << MESH_TENSOR, SHARD = 1 << MESH_SHARD };

static const struct graph_group tensor = {.axes = TENSOR, .size = 2};
static const struct graph_group shard = {.axes = SHARD, .size = 2};

/* What is done otherwise than it should be. */
enum fault {
    RIGHT,
    NO_SUM,
    SUM_TWICE,
    SUM_OVER_SHARD,
    SUM_OF_COLUMNS,
    SCATTER_OF_WHOLE,
    GATHER_OF_WHOLE,
    MAXIMUM_OF_TERMS,
    RESIDUAL_IN_TERM,
    RESIDUAL_OF_TERM,
    BIAS_IN_TERM,
    ACTIVATION_OF_TERM,
    PRODUCT_OF_TERM,
    NORM_OF_COLUMNS,
    SWAP_OF_WHOLE,
    SWAP_ONCE,
    TERM_PUT_OUT,
    NO_DIVIDED,
    NO_DIVIDED_INPUT,
    NO_DIVIDED_SUM,
    DIVIDED_OVER_SHARD,
    DIVIDED_WHOLE,
    DIVIDED_AND_WHOLE,
    GATHER_FOR_WHOLE,
    NORM_OF_ROWS,
    FROZEN_NORM_OF_ROWS,
    SUMMED_NORM_OF_ROWS,
    SUMMED_NORM_OF_WHOLE,
    FAULTS
};

/* A matrix whose rows (dim 0) or columns (dim 1) are divided among the ranks of a group; dim -1:
 * that is not divided. */
static int matrix_over(struct graph *graph, struct graph_group group, const char *name,
                       int64_t rows, int64_t columns, int dim)
{
    struct graph_param param = {.tensors = 1,
                                .tensor_rows = {rows},
                                .dims = 2,
                                .dim = {rows, columns},
                                .division = {.group = group, .dim = dim}};
    snprintf(param.tensor_name[0], sizeof param.tensor_name[0], "%s", name);
    if (dim < 0)
        param.division = (struct graph_division){0};
    return build_param(graph, &param);
}

static int matrix(struct graph *graph, const char *name, int64_t rows, int64_t columns, int dim)
{
    return matrix_over(graph, tensor, name, rows, columns, dim);
}

static int vector(struct graph *graph, const char *name, int64_t rows, int divided)
{
    struct graph_param param = {.tensors = 1, .tensor_rows = {rows}, .dims = 1, .dim = {rows}};
    snprintf(param.tensor_name[0], sizeof param.tensor_name[0], "%s", name);
    if (divided)
        param.division.group = tensor;
    return build_param(graph, &param);
}

/* The term that each rank makes of h. */
static int term(struct graph *graph, int h, enum fault fault)
{
    int up = matrix(graph, "up", INNER, HIDDEN, 0), down = matrix(graph, "down", HIDDEN, INNER, 1);
    int b = vector(graph, "up.bias", INNER, 1);
    int g = build_gelu(graph, build_linear(graph, h, up, -1), b);
    if (fault == SUM_OF_COLUMNS)
        g = build_exchange(graph, &op_all_reduce, g, tensor);
    if (fault == NORM_OF_COLUMNS)
        g = build_rmsnorm(graph, g, vector(graph, "norm3", INNER, 1), 1e-5f);
    if (fault != SWAP_OF_WHOLE)
        g = build_exchange(graph, &op_all_to_all, g, tensor);
    if (fault != SWAP_OF_WHOLE && fault != SWAP_ONCE)
        g = build_exchange(graph, &op_all_to_all, g, tensor);
    return build_linear(graph, g, down, -1);
}

/* x and the sum of what the ranks make of norm(x), by way of rows and by an all_reduce. */
static void block(struct graph *graph, enum fault fault)
{
    int x = build_input(graph, HIDDEN), norm1 = vector(graph, "norm1", HIDDEN, 0);
    int norm2 = vector(graph, "norm2", HIDDEN, 0), bias = vector(graph, "bias", HIDDEN, 0);
    int w = matrix(graph, "w", HIDDEN, HIDDEN, -1), up2 = matrix(graph, "up2", INNER, HIDDEN, 0);
    int down2 = matrix(graph, "down2", HIDDEN, INNER, 1), sum;
    int h = fault == NO_DIVIDED_INPUT ? x : build_rmsnorm(graph, x, norm1, 1e-5f);
    if (fault != NO_DIVIDED && fault != NO_DIVIDED_INPUT)
        build_divided(graph, h, fault == DIVIDED_OVER_SHARD ? shard : tensor);
    if (fault == SWAP_OF_WHOLE)
        h = build_exchange(graph, &op_all_to_all, h, tensor);
    int t = term(graph, h, fault);
    if (fault == SCATTER_OF_WHOLE)
        t = build_exchange(graph, &op_all_reduce, t, tensor);
    int q = build_exchange(graph, &op_reduce_scatter, t, tensor);
    if (fault == SUMMED_NORM_OF_WHOLE)
        build_divided(graph, norm2, tensor);
    if (fault == NORM_OF_ROWS || fault == FROZEN_NORM_OF_ROWS || fault == SUMMED_NORM_OF_ROWS) {
        int norm3 = vector(graph, "norm3", HIDDEN, 0);
        graph->params[graph->values[norm3].index].frozen = fault == FROZEN_NORM_OF_ROWS;
        if (fault == SUMMED_NORM_OF_ROWS)
            build_divided(graph, norm3, tensor);
        q = build_rmsnorm(graph, q, norm3, 1e-5f);
    }
    int z = build_exchange(graph, &op_all_gather, fault == GATHER_OF_WHOLE ? h : q, tensor);
    if (fault == GATHER_FOR_WHOLE)
        z = build_linear(graph, z, w, -1);
    t = build_linear(graph, build_linear(graph, z, up2, -1), down2,
                     fault == RESIDUAL_IN_TERM ? x : -1);
    t = fault == BIAS_IN_TERM         ? build_bias(graph, t, bias)
        : fault == ACTIVATION_OF_TERM ? build_gelu(graph, t, bias)
        : fault == PRODUCT_OF_TERM    ? build_linear(graph, t, w, -1)
        : fault == MAXIMUM_OF_TERMS   ? build_exchange(graph, &op_all_reduce_max, t, tensor)
                                      : t;
    if (fault == TERM_PUT_OUT || fault == GATHER_OF_WHOLE) { /* the latter has too many rows */
        build_output(graph, t);
        return;
    }
    int s =
        fault == NO_SUM || fault == RESIDUAL_OF_TERM
            ? t
            : build_exchange(graph, &op_all_reduce, t, fault == SUM_OVER_SHARD ? shard : tensor);
    if (fault == SUM_TWICE)
        s = build_exchange(graph, &op_all_reduce, s, tensor);
    int y = fault == RESIDUAL_OF_TERM ? build_linear(graph, h, w, s)
                                      : build_rmsnorm_residual(graph, x, s, norm2, 1e-5f, &sum);
    if (fault == NO_DIVIDED_SUM)
        y = build_exchange(graph, &op_all_reduce, term(graph, s, fault), tensor);
    if (fault == DIVIDED_WHOLE)
        build_divided(graph, y, tensor);
    if (fault == DIVIDED_AND_WHOLE)
        y = build_linear(graph, h, w, y);
    build_output(graph, build_linear(graph, y, w, -1));
}

static int check(enum fault fault, unsigned mesh, struct error *err)
{
    struct graph *graph = graph_create(2, 4, DTYPE_F32);
    block(graph, fault);
    if (graph->err.text[0])
        fail_msg("fault %d: %s", fault, graph->err.text);
    int rc = division_check(graph, "layers.0", mesh, 1, err);
    graph_destroy(graph);
    return rc;
}

static void test_faults(void **state)
{
    static const char *const expected[FAULTS] = {
        [NO_SUM] = "rmsnorm (norm2) reads the result of linear (down2), over tensor a term of a "
                   "sum: its sum over tensor is missing",
        [SUM_TWICE] = "all_reduce reads the result of all_reduce, over tensor whole: summed again",
        [SUM_OVER_SHARD] = "all_reduce reads the result of linear (down2), over shard own rows",
        [SUM_OF_COLUMNS] = "all_reduce reads the result of gelu (up.bias), over tensor own columns",
        [SCATTER_OF_WHOLE] = "reduce_scatter reads the result of all_reduce, over tensor whole",
        [GATHER_OF_WHOLE] = "all_gather reads the result of rmsnorm (norm1), over tensor whole",
        [MAXIMUM_OF_TERMS] = "all_reduce_max reads the result of linear (down2), over tensor a "
                             "term of a sum: its sum",
        [RESIDUAL_IN_TERM] = "linear (down2) reads the unit's input, over tensor whole: added to a "
                             "term of a sum, it counts once for each rank",
        [RESIDUAL_OF_TERM] = "linear (w) reads the result of linear (down2), over tensor a term",
        [BIAS_IN_TERM] = "bias (bias) reads the result of linear (down2), over tensor a term",
        [ACTIVATION_OF_TERM] = "gelu (bias) reads the result of linear (down2), over tensor a term",
        [PRODUCT_OF_TERM] = "linear (w) reads the result of linear (down2), over tensor a term",
        [NORM_OF_COLUMNS] = "rmsnorm (norm3) reads the result of gelu (up.bias), over tensor own "
                            "columns: it needs whole rows",
        [SWAP_OF_WHOLE] = "all_to_all reads the result of rmsnorm (norm1), over tensor whole",
        [SWAP_ONCE] = "linear (down) reads the result of all_to_all, over tensor spread",
        [TERM_PUT_OUT] = "its output, the result of linear (down2), is over tensor a term",
        [NO_DIVIDED] = "the gradient of parameter norm1 is a term of a sum, because build_divided",
        [NO_DIVIDED_INPUT] =
            "the gradient of the unit's input is a term of a sum from one of its readers",
        [NO_DIVIDED_SUM] = "the gradient of the result of all_reduce is a term of a sum, because "
                           "build_divided() is not said of it: over tensor",
        [DIVIDED_OVER_SHARD] = "the gradient of the result of rmsnorm (norm1) is summed, as "
                               "build_divided() says, but is no term of a sum: over shard",
        [DIVIDED_WHOLE] = "the gradient of the result of rmsnorm (norm2) is summed, as "
                          "build_divided() says, but is no term of a sum",
        [DIVIDED_AND_WHOLE] = "the gradient of the result of rmsnorm (norm1) is a term of a "
                              "sum from one of its readers",
        [GATHER_FOR_WHOLE] = "the gradient of parameter w is a term of a sum",
        [NORM_OF_ROWS] = "the gradient of parameter norm3 is made of a rank's own rows, and no sum",
        [SUMMED_NORM_OF_WHOLE] = "the gradient of parameter norm2 is summed, as build_divided() "
                                 "says, but is no term of a sum: over tensor",
    };
    for (enum fault fault = 0; fault < FAULTS; fault++) {
        struct error err = {0};
        int rc = check(fault, TENSOR | SHARD, &err);
        if (rc != (expected[fault] ? -1 : 0))
            fail_msg("fault %d: %s", fault, rc ? err.text : "not noticed");
        if (!expected[fault])
            continue;
        if (!strstr(err.text, expected[fault]) || strncmp(err.text, "verify: layers.0: ", 18))
            fail_msg("fault %d: \"%s\", not \"%s\"", fault, err.text, expected[fault]);
    }
}

/* A sum over an axis of one rank is none at all. */
static void test_axis_of_one(void **state)
{
    struct error err = {0};
    assert_int_equal(check(SUM_OVER_SHARD, TENSOR, &err), -1);
    assert_non_null(
        strstr(err.text, "over tensor a term of a sum: its sum over tensor is missing"));
    assert_int_equal(check(DIVIDED_OVER_SHARD, TENSOR, &err), -1);
    assert_non_null(strstr(err.text, "parameter norm1 is a term of a sum"));
    assert_int_equal(check(NO_SUM, SHARD, &err), 0);
}

/* Of the nodes that autodiff appends only exchanges are looked at; a graph that is not trained has
 * no gradients. */
static void test_phases(void **state)
{
    struct graph *graph = graph_create(2, 4, DTYPE_F32);
    struct error err = {0};
    block(graph, RIGHT);
    assert_int_equal(autodiff(graph, &err), 0);
    assert_int_equal(division_check(graph, "layers.0", TENSOR, 1, &err), 0);
    graph_destroy(graph);
    graph = graph_create(2, 4, DTYPE_F32);
    block(graph, NO_DIVIDED);
    assert_int_equal(division_check(graph, "layers.0", TENSOR, 0, &err), 0);
    assert_int_equal(division_check(graph, "layers.0", TENSOR, 1, &err), -1);
    graph_destroy(graph);
}

/* Backward makes each exchange that a gradient needs: over the axis, and once. */
static void test_exchanges_of_backward(void **state)
{
    int spoilt[OP_TRANSFERS] = {0};
    struct graph *graph = graph_create(2, 4, DTYPE_F32);
    struct error err = {0};
    block(graph, RIGHT);
    assert_int_equal(autodiff(graph, &err), 0);
    for (int i = 0; i < graph->node_count; i++) {
        struct graph_node *node = &graph->nodes[i];
        if (!node->backward || node->op->transfer == TRANSFER_NONE)
            continue;
        node->attrs.axes = SHARD;
        assert_int_equal(division_check(graph, "layers.0", TENSOR, 1, &err), -1);
        assert_non_null(strstr(err.text, "verify: layers.0: backward makes "));
        node->attrs.axes = TENSOR;
        spoilt[node->op->transfer]++;
    }
    assert_int_equal(division_check(graph, "layers.0", TENSOR, 1, &err), 0);
    assert_true(spoilt[TRANSFER_SUM] && spoilt[TRANSFER_GATHER] && spoilt[TRANSFER_SCATTER] &&
                spoilt[TRANSFER_ALL_TO_ALL]);
    graph_destroy(graph);
}

/* Columns are put where the rank has them in the whole. */
static void test_placed_columns(void **state)
{
    for (int rank = 0; rank < 2; rank++) {
        const struct graph_group group = {.axes = TENSOR, .size = 2, .rank = rank};
        struct graph *graph = graph_create(2, 4, DTYPE_F32);
        struct error err = {0};
        int x = build_input(graph, HIDDEN), w = matrix_over(graph, group, "head", 7, HIDDEN, 0);
        build_output(graph, build_gather_columns(graph, build_linear(graph, x, w, -1), w));
        assert_string_equal(graph->err.text, "");
        assert_int_equal(division_check(graph, "head", TENSOR, 0, &err), 0);
        for (int i = 0; i < graph->node_count; i++) {
            struct op_attrs *attrs = &graph->nodes[i].attrs, was = *attrs;
            if (graph->nodes[i].op != &op_place_columns)
                continue;
            attrs->first = !was.first;
            assert_int_equal(division_check(graph, "head", TENSOR, 0, &err), -1);
            assert_non_null(strstr(err.text, "at the place of other columns"));
            *attrs = was;
            attrs->columns++;
            assert_int_equal(division_check(graph, "head", TENSOR, 0, &err), -1);
            *attrs = was;
        }
        graph_destroy(graph);
    }
}

/* Only an exchange is over axes, whatever the attributes of other ops say. */
static void test_axes_of_other_ops(void **state)
{
    struct error err = {0};
    struct graph *graph = graph_create(2, 4, DTYPE_F32);
    block(graph, RIGHT);
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op->transfer == TRANSFER_NONE)
            graph->nodes[i].attrs.axes = TENSOR | SHARD;
    if (division_check(graph, "layers.0", TENSOR | SHARD, 1, &err))
        fail_msg("%s", err.text);
    graph_destroy(graph);
}

/* Who reads what an exchange makes reads what it is made of. */
static void leave_out(struct graph *graph, enum op_transfer transfer)
{
    for (int i = 0; i < graph->node_count; i++)
        for (int n = 0; graph->nodes[i].op->transfer == transfer && n < graph->node_count; n++)
            for (int k = 0; k < NODE_INS; k++)
                if (graph->nodes[n].in[k] == graph->nodes[i].out[0])
                    graph->nodes[n].in[k] = graph->nodes[i].in[0];
}

/* A head whose vocabulary is divided, and what it lacks without each of its exchanges. */
static void test_head(void **state)
{
    static const struct {
        enum op_transfer left_out;
        int is_term, not_divided;
        const char *text;
    } cases[] = {
        {.left_out = TRANSFER_NONE},
        {.left_out = TRANSFER_MAXIMUM,
         .text =
             "head_term reads the result of head_part (head), over tensor of own columns alone: "
             "its maximum over tensor is missing"},
        {.left_out = TRANSFER_SUM,
         .text = "head_part_loss reads the result of head_term, over tensor a term of a sum: its "
                 "sum over tensor is missing"},
        {.is_term = 1,
         .text = "rmsnorm (norm) reads the result of linear (down), over tensor a term"},
        {.not_divided = 1, .text = "the gradient of parameter norm is a term of a sum"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct graph *graph = graph_create(2, 4, DTYPE_F32);
        struct error err = {0};
        int x = build_input(graph, HIDDEN), w = matrix(graph, "head", 7, HIDDEN, 0);
        if (cases[i].is_term)
            x = build_linear(graph, build_linear(graph, x, matrix(graph, "up", 4, HIDDEN, 0), -1),
                             matrix(graph, "down", HIDDEN, 4, 1), -1);
        int h = build_rmsnorm(graph, x, vector(graph, "norm", HIDDEN, 0), 1e-5f);
        build_head_loss_divided(graph, h, w, build_targets(graph), 7, 1);
        if (cases[i].not_divided)
            graph->values[h].divided = (struct graph_group){0};
        if (cases[i].left_out != TRANSFER_NONE)
            leave_out(graph, cases[i].left_out);
        assert_string_equal(graph->err.text, "");
        int rc = division_check(graph, "head", TENSOR, 1, &err);
        if (rc != (cases[i].text ? -1 : 0) || (rc && !strstr(err.text, cases[i].text)))
            fail_msg("case %d: \"%s\"", (int)i, err.text);
        graph_destroy(graph);
    }
}

/* ---- which columns ---- */

enum reader { BIAS, GELU, SWIGLU, ROPE, ATTENTION, SEPARATE, ADDEND, SWAPS, DOWN };

/* A matrix (width > 0) or vector of stacked tensors, each divided by its rows. */
static int stacked(struct graph *graph, struct graph_group group, const char *name,
                   const int64_t rows[3], int64_t width, int64_t chunks)
{
    int tensors = (rows[0] > 0) + (rows[1] > 0) + (rows[2] > 0);
    struct graph_param param = {.tensors = tensors,
                                .dims = width ? 2 : 1,
                                .dim = {0, width},
                                .division = {.group = group, .chunks = chunks}};
    for (int p = 0; p < tensors; p++) {
        snprintf(param.tensor_name[p], sizeof param.tensor_name[p], "%s.%d", name, p);
        param.tensor_rows[p] = rows[p];
        param.dim[0] += rows[p];
    }
    return build_param(graph, &param);
}

/* What is read of the columns that a rank has of one or more tensors. */
struct reading {
    enum reader reader;
    int rank, ranks;              /* which rank of how many; ranks 0: of two */
    int64_t rows[3], other[3];    /* of the tensors that are divided; of what goes with them */
    int64_t chunks, other_chunks; /* of each of these tensors; 0: its rows */
    int64_t heads, kv_heads;      /* of 4 elements, on the rank */
    const char *text;             /* why it is refused; NULL: it is not */
};

static struct graph_group group_of(const struct reading *r)
{
    return (struct graph_group){.axes = TENSOR, .size = r->ranks ? r->ranks : 2, .rank = r->rank};
}

static int read_columns(struct graph *graph, const struct reading *r, int h)
{
    enum { HEAD = 4 };
    struct graph_group group = group_of(r);
    int up = stacked(graph, group, "up", r->rows, HIDDEN, r->chunks);
    int is_vector = r->reader == BIAS || r->reader == GELU;
    int other = r->other[0] ? stacked(graph, group, "other", r->other, is_vector ? 0 : HIDDEN,
                                      r->other_chunks)
                            : -1;
    int y =
        build_linear(graph, h, up, r->reader == ADDEND ? build_linear(graph, h, other, -1) : -1);
    struct build_attention form = {.q = y,
                                   .kv = -1,
                                   .documents = -1,
                                   .heads = r->heads,
                                   .kv_heads = r->kv_heads,
                                   .head_dim = HEAD};
    switch (r->reader) {
    case BIAS: return build_bias(graph, y, other);
    case GELU: return build_gelu(graph, y, other);
    case SWIGLU: return build_swiglu(graph, y);
    case SWAPS:
        y = build_exchange(graph, &op_all_to_all, build_exchange(graph, &op_all_to_all, y, group),
                           group);
        return build_swiglu(graph, y);
    case ROPE:
        return build_rope(graph, y, build_rope_table(graph, HEAD), -1, r->heads, r->kv_heads, HEAD);
    case SEPARATE: form.kv = build_linear(graph, h, other, -1); /* fall through */
    case ATTENTION: return build_attention_of(graph, &form);
    default: return y;
    }
}

/* Columns of stacked tensors, cut tensor by tensor, are not those of one tensor cut as a whole. */
static void test_columns(void **state)
{
    static const char others[] = "the columns that it belongs to are divided otherwise";
    static const char halves[] = "it needs two tensors, divided alike";
    static const char heads[] =
        "queries, keys and values must each be one tensor, divided by whole heads";
    static const char matrix_of[] = "its matrix is of other columns";
    static const struct reading readings[] = {
        {.reader = BIAS, .rows = {24}, .other = {24}},
        {.reader = BIAS, .rank = 1, .rows = {24}, .other = {24}},
        {.reader = BIAS, .rows = {8, 8, 8}, .other = {24}, .text = others},
        {.reader = BIAS, .rows = {24}, .other = {8, 8, 8}, .text = others},
        {.reader = GELU, .rows = {12, 12}, .other = {16, 8}, .text = others},
        {.reader = SWIGLU, .rows = {12, 12}},
        {.reader = SWIGLU, .rows = {24}, .text = halves},
        {.reader = SWIGLU, .rows = {16, 8}, .text = halves},
        {.reader = SWIGLU, .rows = {12, 6, 6}, .text = halves},
        {.reader = SWAPS, .rows = {12, 12}},
        {.reader = SWAPS, .rows = {24}, .text = halves},
        {.reader = DOWN, .rows = {24}},
        {.reader = DOWN, .rows = {12, 12}, .text = matrix_of},
        {.reader = ADDEND, .rows = {24}, .other = {24}},
        {.reader = ADDEND, .rows = {24}, .other = {12, 12}, .text = "of other columns"},
        {.reader = ROPE, .rows = {24}, .heads = 3},
        {.reader = ROPE, .rank = 1, .rows = {24}, .heads = 3},
        {.reader = ROPE, /* 12 rows from 13 on, within a head */
         .rank = 1,
         .ranks = 3,
         .rows = {37},
         .heads = 3,
         .text = heads},
        {.reader = ROPE, .rows = {24}, .heads = 1, .kv_heads = 1, .text = heads},
        {.reader = ROPE, .rows = {12, 12}, .heads = 3, .text = heads},
        {.reader = ATTENTION, .rows = {8, 8, 8}, .heads = 1, .kv_heads = 1},
        {.reader = ATTENTION, .rows = {24}, .heads = 1, .kv_heads = 1, .text = heads},
        {.reader = ATTENTION, .rows = {16, 8, 8}, .heads = 2, .kv_heads = 1},
        {.reader = ATTENTION, .rows = {16, 16}, .heads = 2, .kv_heads = 1, .text = heads},
        {.reader = ATTENTION, .rows = {24, 12, 12}, .heads = 4, .kv_heads = 1, .text = heads},
        {.reader = ATTENTION, .rows = {8, 8, 16}, .heads = 2, .kv_heads = 1, .text = heads},
        {.reader = SEPARATE, .rows = {16}, .other = {8, 8}, .heads = 2, .kv_heads = 1},
        {.reader = SEPARATE, .rows = {16}, .other = {16}, .heads = 2, .kv_heads = 1, .text = heads},
        {.reader = SEPARATE, .rows = {24}, .other = {8, 8}, .heads = 3, .kv_heads = 1},
        {.reader = SEPARATE, .rank = 1, .rows = {16}, .other = {8, 8}, .heads = 2, .kv_heads = 1},
        {.reader = SEPARATE, /* 8 rows of queries, of 4 and 8 in chunks */
         .rank = 1,
         .rows = {24},
         .chunks = 3,
         .other = {8, 8},
         .heads = 2,
         .kv_heads = 1,
         .text = heads},
    };
    for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++) {
        const struct reading *r = &readings[i];
        struct graph *graph = graph_create(2, 4, DTYPE_F32);
        struct error err = {0};
        int x = build_input(graph, HIDDEN);
        int h = build_rmsnorm(graph, x, vector(graph, "norm", HIDDEN, 0), 1e-5f);
        struct graph_group group = group_of(r);
        build_divided(graph, h, group);
        int y = read_columns(graph, r, h);
        int64_t columns = group.size * graph->values[y].dim[1];
        int down = matrix_over(graph, group, "down", HIDDEN, columns, 1);
        int t = build_linear(graph, y, down, -1);
        build_output(graph, build_exchange(graph, &op_all_reduce, t, group));
        assert_string_equal(graph->err.text, "");
        int rc = division_check(graph, "layers.0", TENSOR, 1, &err);
        if (rc != (r->text ? -1 : 0) || (rc && !strstr(err.text, r->text)))
            fail_msg("case %d: \"%s\"", (int)i, err.text);
        graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),         cmocka_unit_test(test_axis_of_one),
        cmocka_unit_test(test_phases),         cmocka_unit_test(test_exchanges_of_backward),
        cmocka_unit_test(test_placed_columns), cmocka_unit_test(test_axes_of_other_ops),
        cmocka_unit_test(test_head),           cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests_name("division", tests, NULL, NULL);
}
