/* sdpa_graph.h - build attention as graphs of cuDNN's operations, and plans that run them.
 *
 * Private to the files sdpa_*.c.  The calls that build a graph return no failure: the graph keeps
 * the first one, later calls do nothing, and sdpa_finish() returns it.
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

/* What a plan is made for: an opened cuDNN (handle), or a finalized descriptor of a GPU's
 * properties, which needs no GPU.  A plan made for properties cannot be run, but its text
 * (sdpa_plan_write()) can be read for an opened cuDNN. */
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

/* The keys that a query sees: those up to its own, or, in tiles below the diagonal, all. */
enum sdpa_mask { SDPA_CAUSAL, SDPA_ALL };

/* Make a plan for slices of attention of this size.  Its results are bitwise reproducible, except
 * in a backward with a->any_order; forward is always causal. Returns 0 and a plan for
 * sdpa_plan_drop(), or -1 with err set. */
int sdpa_plan_make(struct sdpa_plan *plan, const struct attention *a, struct sdpa_slice slice,
                   enum device_pass pass, enum sdpa_mask mask, const struct sdpa_target *target,
                   struct error *err);
void sdpa_plan_drop(struct sdpa_plan *plan);

/* ---- plans and GPUs as text, which one thread writes and another reads (sdpa_text.c) ---- */

/* `bytes` bytes in cuDNN's own format, not a C string; text is NULL where there is none. */
struct sdpa_text {
    char *text;
    int64_t bytes;
    int64_t engine;   /* as of a plan */
    uint32_t tensors; /* as of a plan */
};

/* Write a plan with its compiled kernels as text, and make the plan again from the text, which
 * takes milliseconds, for the same GPU and the same version of cuDNN.  Return 0, or -1, with no
 * text or plan made, where the engine or the target cannot.  The caller frees the text by
 * sdpa_text_free() and the plan by sdpa_plan_drop(). */
int sdpa_plan_write(struct sdpa_text *text, const struct sdpa_plan *plan);
int sdpa_plan_read(struct sdpa_plan *plan, const struct sdpa_text *text,
                   const struct sdpa_target *target);

/* Write the properties of GPU `index` of this process as text, for sdpa_text_free(), and read them
 * into a descriptor, which the caller destroys.  Return 0, or -1, with nothing made, where cuDNN
 * fails or memory is exhausted. */
int sdpa_gpu_write(struct sdpa_text *text, int index);
int sdpa_gpu_read(cudnnBackendDescriptor_t *properties, const struct sdpa_text *text);

void sdpa_text_free(struct sdpa_text *text);

/* ---- building a graph; tensors have four dimensions ---- */

enum { SDPA_DESCRIPTORS = 128, SDPA_OPS = 32 };

typedef cudnnBackendDescriptor_t sdpa_node;

struct sdpa_graph {
    sdpa_node made[SDPA_DESCRIPTORS]; /* all descriptors, to be destroyed */
    sdpa_node op[SDPA_OPS];
    int made_count, op_count;
    uint32_t tensors;  /* as of a plan */
    struct error *err; /* of the first failure */
    int failed;
};

struct sdpa_shape {
    int64_t dims[4], strides[4];
};

/* Add a tensor: one in memory, named by uid, or one between two operations (SDPA_NONE). */
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

/* Finalize plan->plan, unless `status` is a failure, and set its workspace_bytes.  Returns 0, or -1
 * where status or a call here is a failure; then the plan is destroyed. */
int sdpa_plan_finalize(struct sdpa_plan *plan, cudnnStatus_t status);

/* Find the first engine for the graph that is not noted to be random and make its plan. */
int sdpa_finish(struct sdpa_graph *g, struct sdpa_plan *plan, const struct sdpa_target *target);
void sdpa_drop(struct sdpa_graph *g);

#endif
