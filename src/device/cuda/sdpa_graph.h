/* sdpa_graph.h - attention as graphs of cuDNN's operations.
 *
 * Private to the files of cuDNN.  A graph is built by calls that never fail on the way: the first
 * failure is kept, later calls do nothing, and sdpa_finish() returns it.
 */
#ifndef TRIREME_DEVICE_CUDA_SDPA_GRAPH_H
#define TRIREME_DEVICE_CUDA_SDPA_GRAPH_H

#include <cudnn.h>

#include "device/cuda/sdpa.h"

/* The tensors of a call.  SCALE, MASKED and ONE are single floats in host memory. */
enum sdpa_tensor {
    SDPA_NONE,
    SDPA_Q,
    SDPA_K,
    SDPA_V,
    SDPA_O,
    SDPA_LSE,
    SDPA_DO,
    SDPA_DQ,
    SDPA_DK,
    SDPA_DV,
    SDPA_ROWS,   /* fp32 [batch, heads, seq]: sum of do * o, in scratch */
    SDPA_DQ_SUM, /* fp32 [batch, heads, seq, dim]: what is added to in any order, from 0, in scratch
                  */
    SDPA_SCALE,
    SDPA_MASKED,
    SDPA_ONE,
    SDPA_TENSORS
};

/* For whom plans are made: an opened cuDNN, or a finalized descriptor of a GPU's properties, which
 * needs no GPU; such a plan cannot be run, but its text can be read for an opened cuDNN. */
struct sdpa_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
};

struct sdpa_plan {
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes;
    int64_t engine;
    uint32_t tensors; /* the bit of each enum sdpa_tensor it is run with; cuDNN refuses others */
};

/* What a query sees: keys up to its own, or, in tiles below the diagonal, all. */
enum sdpa_mask { SDPA_CAUSAL, SDPA_ALL };

/* A plan for such parts of attention, forward or backward, whose results are bitwise reproducible
 * but for a backward with a->any_order; forward is causal.
 * Returns 0 and a plan for sdpa_plan_drop(), or -1 with err set. */
int sdpa_plan_make(struct sdpa_plan *plan, const struct attention *a, struct sdpa_part part,
                   enum device_pass pass, enum sdpa_mask mask, const struct sdpa_target *target,
                   struct error *err);
void sdpa_plan_drop(struct sdpa_plan *plan);

/* ---- plans and GPUs as text, by which one thread has what another made (sdpa_text.c) ---- */

/* So many bytes in cuDNN's own form, no string; NULL: none. */
struct sdpa_text {
    char *text;
    int64_t bytes;
    int64_t engine;   /* as of a plan */
    uint32_t tensors; /* as of a plan */
};

/* A plan with its compiled kernels, and the same plan again, for the same GPU and the same version
 * of the library, in milliseconds.  Return 0; -1: not by this engine, or not for this target; then
 * there is no text, and no plan.  The text is for sdpa_text_free(), the plan for sdpa_plan_drop().
 */
int sdpa_plan_write(struct sdpa_text *text, const struct sdpa_plan *plan);
int sdpa_plan_read(struct sdpa_plan *plan, const struct sdpa_text *text,
                   const struct sdpa_target *target);

/* The properties of GPU `index` of this process as text, for sdpa_text_free(), and as a descriptor,
 * to be destroyed.  Return 0; -1: cuDNN fails, or memory is out; then there is nothing. */
int sdpa_gpu_write(struct sdpa_text *text, int index);
int sdpa_gpu_read(cudnnBackendDescriptor_t *properties, const struct sdpa_text *text);

void sdpa_text_free(struct sdpa_text *text);

/* ---- building a graph; tensors have four dimensions ---- */

enum { SDPA_DESCRIPTORS = 128, SDPA_OPS = 32 };

typedef cudnnBackendDescriptor_t sdpa_node;

struct sdpa_graph {
    sdpa_node made[SDPA_DESCRIPTORS]; /* all of it, to be destroyed */
    sdpa_node op[SDPA_OPS];
    int made_count, op_count;
    uint32_t tensors;  /* as of a plan */
    struct error *err; /* of the first failure */
    int failed;
};

struct sdpa_shape {
    int64_t dims[4], strides[4];
};

/* A tensor in memory (a uid above 0), or one between operations (SDPA_NONE). */
sdpa_node sdpa_tensor(struct sdpa_graph *g, enum sdpa_tensor uid, cudnnDataType_t type,
                      struct sdpa_shape shape);
sdpa_node sdpa_host_float(struct sdpa_graph *g, enum sdpa_tensor uid);

/* c = a b over the last two dimensions; heads of a may be a multiple of b's. */
void sdpa_matmul(struct sdpa_graph *g, sdpa_node c, sdpa_node a, sdpa_node b);

/* y = mode(x), mode(x, b), or for BINARY_SELECT: t ? x : b.  What mode does not take is NULL. */
void sdpa_pointwise(struct sdpa_graph *g, cudnnPointwiseMode_t mode, sdpa_node y, sdpa_node x,
                    sdpa_node b, sdpa_node t);

/* y = the index along a dimension, of the shape of x */
void sdpa_index(struct sdpa_graph *g, sdpa_node y, sdpa_node x, int64_t axis);

/* y = sum or maximum of x over the dimensions that are 1, or fewer, in y */
void sdpa_reduce(struct sdpa_graph *g, cudnnReduceTensorOp_t op, sdpa_node y, sdpa_node x);

/* y = x seen with the dimensions and strides of y */
void sdpa_reshape(struct sdpa_graph *g, sdpa_node y, sdpa_node x);

/* Finalize plan->plan, for which cuDNN's status so far is this, and note its workspace.  Returns 0;
 * -1: it failed now or before; then there is no plan. */
int sdpa_plan_finalize(struct sdpa_plan *plan, cudnnStatus_t status);

/* Find the first engine for the graph that is not noted to be random and make its plan. */
int sdpa_finish(struct sdpa_graph *g, struct sdpa_plan *plan, const struct sdpa_target *target);
void sdpa_drop(struct sdpa_graph *g);

#endif
