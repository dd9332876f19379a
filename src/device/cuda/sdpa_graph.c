/* sdpa_graph.c - cuDNN's backend descriptors: tensors, operations, a graph of them, its plan.
 *
 * cuDNN takes a computation as a graph of small operations, asks its heuristics which engines can
 * do it as one kernel, and makes a plan with one of them.
 */
#include <stdbool.h>
#include <string.h>

#include "device/cuda/sdpa_graph.h"

/* The first failure of g, with cuDNN's own words. */
static void failed(struct sdpa_graph *g, const char *what, cudnnStatus_t status)
{
    char words[256] = "";
    if (g->failed)
        return;
    g->failed = 1;
    cudnnGetLastErrorString(words, sizeof words);
    words[strcspn(words, "\n")] = 0;
    error_set(g->err, "cuDNN: %s: %s%s%s", what, cudnnGetErrorString(status), words[0] ? ": " : "",
              words);
}

static int check(struct sdpa_graph *g, const char *what, cudnnStatus_t status)
{
    if (status != CUDNN_STATUS_SUCCESS)
        failed(g, what, status);
    return g->failed;
}

static sdpa_node create(struct sdpa_graph *g, cudnnBackendDescriptorType_t type, const char *what)
{
    sdpa_node node = NULL;
    if (g->failed)
        return NULL;
    if (g->made_count == SDPA_DESCRIPTORS) {
        failed(g, "more descriptors than there is most for", CUDNN_STATUS_INTERNAL_ERROR);
        return NULL;
    }
    if (!check(g, what, cudnnBackendCreateDescriptor(type, &node)))
        g->made[g->made_count++] = node;
    return node;
}

static void set(struct sdpa_graph *g, sdpa_node node, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values,
                const char *what)
{
    if (!g->failed)
        check(g, what, cudnnBackendSetAttribute(node, name, type, count, values));
}

#define SET(g, node, name, type, count, values) \
    set(g, node, CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, values, #name)

static void set_node(struct sdpa_graph *g, sdpa_node node, cudnnBackendAttributeName_t name,
                     sdpa_node value, const char *what)
{
    if (value)
        set(g, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

#define SET_NODE(g, node, name, value) set_node(g, node, CUDNN_ATTR_##name, value, #name)

static void finalize(struct sdpa_graph *g, sdpa_node node, const char *what)
{
    if (!g->failed)
        check(g, what, cudnnBackendFinalize(node));
}

static void add_op(struct sdpa_graph *g, sdpa_node op, const char *what)
{
    finalize(g, op, what);
    if (g->op_count == SDPA_OPS)
        failed(g, "more operations than there is most for", CUDNN_STATUS_INTERNAL_ERROR);
    else if (!g->failed)
        g->op[g->op_count++] = op;
}

static sdpa_node make_tensor(struct sdpa_graph *g, int64_t uid, cudnnDataType_t type,
                             const struct sdpa_shape *shape, int in_host)
{
    const int64_t align = uid == SDPA_LSE || uid == SDPA_ROWS ? 4 : 16; /* a part of them */
    const int64_t unique = uid != SDPA_NONE ? uid : SDPA_TENSORS + g->made_count;
    const bool yes = true;
    sdpa_node t = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    SET(g, t, TENSOR_DATA_TYPE, DATA_TYPE, 1, &type);
    SET(g, t, TENSOR_DIMENSIONS, INT64, 4, shape->dims);
    SET(g, t, TENSOR_STRIDES, INT64, 4, shape->strides);
    SET(g, t, TENSOR_UNIQUE_ID, INT64, 1, &unique);
    SET(g, t, TENSOR_BYTE_ALIGNMENT, INT64, 1, &align);
    if (uid == SDPA_NONE)
        SET(g, t, TENSOR_IS_VIRTUAL, BOOLEAN, 1, &yes);
    if (in_host)
        SET(g, t, TENSOR_IS_BY_VALUE, BOOLEAN, 1, &yes);
    finalize(g, t, "a tensor");
    g->tensors |= uid == SDPA_NONE ? 0 : 1U << uid;
    return t;
}

sdpa_node sdpa_tensor(struct sdpa_graph *g, enum sdpa_tensor uid, cudnnDataType_t type,
                      struct sdpa_shape shape)
{
    return make_tensor(g, uid, type, &shape, 0);
}

sdpa_node sdpa_host_float(struct sdpa_graph *g, enum sdpa_tensor uid)
{
    const struct sdpa_shape single = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return make_tensor(g, uid, CUDNN_DATA_FLOAT, &single, 1);
}

void sdpa_matmul(struct sdpa_graph *g, sdpa_node c, sdpa_node a, sdpa_node b)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    sdpa_node rule = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product");
    SET(g, rule, MATMUL_COMP_TYPE, DATA_TYPE, 1, &compute);
    finalize(g, rule, "a product");
    sdpa_node op = create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product's operation");
    SET_NODE(g, op, OPERATION_MATMUL_ADESC, a);
    SET_NODE(g, op, OPERATION_MATMUL_BDESC, b);
    SET_NODE(g, op, OPERATION_MATMUL_CDESC, c);
    SET_NODE(g, op, OPERATION_MATMUL_DESC, rule);
    add_op(g, op, "a product's operation");
}

/* axis below 0: none */
static void pointwise(struct sdpa_graph *g, cudnnPointwiseMode_t mode, int64_t axis, sdpa_node y,
                      sdpa_node x, sdpa_node b, sdpa_node t)
{
    const cudnnDataType_t compute =
        mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    sdpa_node rule = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an elementwise rule");
    SET(g, rule, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
    SET(g, rule, POINTWISE_MATH_PREC, DATA_TYPE, 1, &compute);
    if (axis >= 0)
        SET(g, rule, POINTWISE_AXIS, INT64, 1, &axis);
    finalize(g, rule, "an elementwise rule");
    sdpa_node op =
        create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an elementwise operation");
    SET_NODE(g, op, OPERATION_POINTWISE_PW_DESCRIPTOR, rule);
    SET_NODE(g, op, OPERATION_POINTWISE_XDESC, x);
    SET_NODE(g, op, OPERATION_POINTWISE_YDESC, y);
    SET_NODE(g, op, OPERATION_POINTWISE_BDESC, b);
    SET_NODE(g, op, OPERATION_POINTWISE_TDESC, t);
    add_op(g, op, "an elementwise operation");
}

void sdpa_pointwise(struct sdpa_graph *g, cudnnPointwiseMode_t mode, sdpa_node y, sdpa_node x,
                    sdpa_node b, sdpa_node t)
{
    pointwise(g, mode, -1, y, x, b, t);
}

void sdpa_index(struct sdpa_graph *g, sdpa_node y, sdpa_node x, int64_t axis)
{
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, axis, y, x, NULL, NULL);
}

void sdpa_reduce(struct sdpa_graph *g, cudnnReduceTensorOp_t how, sdpa_node y, sdpa_node x)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    sdpa_node rule = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
    SET(g, rule, REDUCTION_COMP_TYPE, DATA_TYPE, 1, &compute);
    SET(g, rule, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, &how);
    finalize(g, rule, "a reduction");
    sdpa_node op =
        create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction's operation");
    SET_NODE(g, op, OPERATION_REDUCTION_DESC, rule);
    SET_NODE(g, op, OPERATION_REDUCTION_XDESC, x);
    SET_NODE(g, op, OPERATION_REDUCTION_YDESC, y);
    add_op(g, op, "a reduction's operation");
}

void sdpa_reshape(struct sdpa_graph *g, sdpa_node y, sdpa_node x)
{
    sdpa_node op = create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a reshape");
    SET_NODE(g, op, OPERATION_RESHAPE_XDESC, x);
    SET_NODE(g, op, OPERATION_RESHAPE_YDESC, y);
    add_op(g, op, "a reshape");
}

/* ---- plans ---- */

static sdpa_node make_graph(struct sdpa_graph *g, const struct sdpa_target *target)
{
    sdpa_node graph = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph");
    SET(g, graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, g->op_count, g->op);
    if (target->handle)
        SET(g, graph, OPERATIONGRAPH_HANDLE, HANDLE, 1, &target->handle);
    finalize(g, graph, "the graph");
    return graph;
}

/* The heuristics' answer for the graph; 0 or more configurations in config[]. */
static int64_t ask(struct sdpa_graph *g, sdpa_node graph, const struct sdpa_target *target,
                   sdpa_node config[], int64_t most)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    sdpa_node heuristics = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristics");
    SET_NODE(g, heuristics, ENGINEHEUR_OPERATION_GRAPH, graph);
    SET(g, heuristics, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
    SET_NODE(g, heuristics, ENGINEHEUR_DEVICEPROP, target->properties);
    finalize(g, heuristics, "the heuristics");
    for (int64_t i = 0; i < most; i++)
        config[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine");
    if (!g->failed)
        check(g, "the heuristics' results",
              cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, config));
    return g->failed ? 0 : count < most ? count : most;
}

/* The engine of a configuration; 0 where the library notes that its results differ from run to run.
 *
 * No note proves nothing: cuDNN 9.19 has none for backward with atomic additions either.  What
 * makes backward reproducible is the form of the graph (sdpa_shape.c: dq is a product itself), and
 * what shows that it is are `trireme doctor` and tests/unit/test_cuda_sdpa on a GPU, which run it
 * again in other memory and compare the bits. */
static int is_not_noted_random(struct sdpa_graph *g, sdpa_node config, int64_t *index)
{
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, notes = 0;
    sdpa_node engine = create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
    if (g->failed ||
        check(g, "ENGINECFG_ENGINE",
              cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine)) ||
        check(g, "ENGINE_GLOBAL_INDEX",
              cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                       &count, index)) ||
        check(g, "ENGINE_NUMERICAL_NOTE",
              cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                       &notes, note)))
        return 0;
    for (int64_t i = 0; i < notes; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return 0;
    return 1;
}

int sdpa_plan_finalize(struct sdpa_plan *plan, cudnnStatus_t status)
{
    int64_t bytes = 0, count = 0;
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(plan->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count, &bytes);
    plan->workspace_bytes = (size_t)bytes;
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    sdpa_plan_drop(plan);
    return -1;
}

/* A plan of one configuration, outliving the graph; 0, or -1 where the engine refuses. */
static int make_plan(struct sdpa_graph *g, sdpa_node config, struct sdpa_plan *plan)
{
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    plan->tensors = g->tensors;
    return sdpa_plan_finalize(plan, status);
}

int sdpa_finish(struct sdpa_graph *g, struct sdpa_plan *plan, const struct sdpa_target *target)
{
    enum { CHOICES = 8 };
    sdpa_node config[CHOICES];
    sdpa_node graph = make_graph(g, target);
    int64_t count = ask(g, graph, target, config, CHOICES);
    *plan = (struct sdpa_plan){0};
    for (int64_t i = 0; i < count && !g->failed; i++)
        if (is_not_noted_random(g, config[i], &plan->engine) && !make_plan(g, config[i], plan))
            return 0;
    failed(g, "no engine for this shape", CUDNN_STATUS_NOT_SUPPORTED);
    return -1;
}

void sdpa_drop(struct sdpa_graph *g)
{
    while (g->made_count > 0)
        cudnnBackendDestroyDescriptor(g->made[--g->made_count]);
}

void sdpa_plan_drop(struct sdpa_plan *plan)
{
    if (plan->plan)
        cudnnBackendDestroyDescriptor(plan->plan);
    *plan = (struct sdpa_plan){0};
}
