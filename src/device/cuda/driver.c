/* driver.c - struct device_driver for GPUs: streams, memory, events, and recordings (CUDA graphs).
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "config/defines.h"
#include "device/cuda/sizes.h"
#include "device/cuda/state.h"

enum { LEAST_MAJOR = 8 }; /* bf16 and asynchronous copies came with compute capability 8.0 */

/* Transfers have the highest priority: they need few multiprocessors, but soon.  Updates of
 * parameters have the priority of COMPUTE, beside which they run. */
static int make_stream(struct cuda_state *state, enum device_stream which, struct error *err)
{
    int least, most;
    if (CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &most), err))
        return -1;
    int priority = which == DEVICE_COMPUTE || which == DEVICE_UPDATE ? least : most;
    return CUDA_CHECK(
        cudaStreamCreateWithPriority(&state->stream[which], cudaStreamNonBlocking, priority), err);
}

cudaStream_t cuda_stream(struct device *d, enum device_stream which)
{
    struct cuda_state *state = cuda_state(d);
    struct error err = {0};
    if (!state->stream[which] && make_stream(state, which, &err))
        cuda_note_failure(d, "%s", err.text);
    return state->stream[which];
}

/* Leave `sms` multiprocessors to transfers; 0: products may use all. */
static int spare(struct cuda_state *state, const struct device_gpu *gpu, int sms, struct error *err)
{
    if (sms >= gpu->multiprocessors)
        return error_set(err,
                         "comm.spare_sms is %d, and %s has %d multiprocessors; products need some",
                         sms, gpu->name, gpu->multiprocessors);
    state->product_sms = sms ? gpu->multiprocessors - sms : 0;
    return 0;
}

static int take_gpu(struct device *d, int spare_sms, struct error *err)
{
    struct cuda_state *state = d->state;
    struct device_gpu gpu;
    char why[128];
    int gpus = device_gpu_count(why);
    if (!gpus)
        return error_set(err, "device=cuda, but there is no GPU to use: %s", why);
    if (d->index < 0 || d->index >= gpus)
        return error_set(
            err,
            "this rank needs GPU %d, but GPUs 0 to %d are visible; start as many ranks "
            "on a node as it has GPUs, and look at CUDA_VISIBLE_DEVICES",
            d->index, gpus - 1);
    if (device_gpu_describe(d->index, &gpu, err))
        return -1;
    if (gpu.major < LEAST_MAJOR)
        return error_set(err,
                         "GPU %d (%s) has compute capability %d.%d, and trireme needs 8.0 or "
                         "newer: take another GPU (CUDA_VISIBLE_DEVICES), or device=cpu",
                         d->index, gpu.name, gpu.major, gpu.minor);
    snprintf(state->level, sizeof state->level, "sm_%d%d", gpu.major % 100, gpu.minor % 100);
    snprintf(state->name, sizeof state->name, "%s", gpu.name);
    if (spare(state, &gpu, spare_sms, err))
        return -1;
    return CUDA_CHECK(cudaSetDevice(d->index), err);
}

/* Start a kernel, to find whether kernels are compiled for this GPU: no call before that shows it.
 */
static int check_code(struct device *d, struct error *err)
{
    struct cuda_state *state = d->state;
    const double none = 0;
    d->ops->set(d, state->partial, &none, 1);
    cudaError_t failed = cudaGetLastError();
    if (failed != cudaErrorNoKernelImageForDevice && failed != cudaErrorUnsupportedPtxVersion)
        return cuda_checked(failed, "the first kernel could not be started", err);
    return error_set(err,
                     "trireme has no kernels for GPU %d (%s, %s): %s; they are compiled for "
                     "CUDA_ARCHS=\"%s\", and for newer ones where the driver is as new as CUDA "
                     "%d.%d; add %s to CUDA_ARCHS of ./configure, or use a newer driver",
                     d->index, state->name, state->level, cudaGetErrorString(failed), CUDA_ARCHS,
                     CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, state->level + 3);
}

static void close_cuda(struct device *d)
{
    struct cuda_state *state = d->state;
    if (!state)
        return;
    cuda_shapes_forget(d);
    cuda_sdpa_close(d);
    cuda_gemm_close(d);
    cudaFree(state->partial);
    for (int s = 0; s < DEVICE_STREAMS; s++)
        if (state->stream[s])
            cudaStreamDestroy(state->stream[s]);
    free(state);
    d->state = NULL;
}

static int open_cuda(struct device *d, const struct device_request *request, struct error *err)
{
    struct cuda_state *state = array_make(1, sizeof *state);
    d->state = state;
    d->ops = &cuda_ops;
    d->asynchronous = 1;
    d->name = state->name;
    d->level = state->level;
    d->logits_bytes = d->logits_most = CUDA_LOGITS_BYTES;
    d->head_dim_most = CUDA_HEAD_DIM_MOST;
    d->reserve_bytes = CUDA_RESERVE_BYTES;
    if (!take_gpu(d, request->spare_sms, err) && !make_stream(state, DEVICE_COMPUTE, err) &&
        !CUDA_CHECK(cudaMalloc((void **)&state->partial, CUDA_PARTIALS * sizeof(double)), err) &&
        !check_code(d, err) && !cuda_gemm_open(d, err) && !cuda_sdpa_open(d, err))
        return 0;
    close_cuda(d);
    return -1;
}

void cuda_note_failure(struct device *d, const char *fmt, ...)
{
    struct cuda_state *state = d->state;
    va_list args;
    if (state->failure[0])
        return;
    va_start(args, fmt);
    vsnprintf(state->failure, sizeof state->failure, fmt, args);
    va_end(args);
}

static void *alloc(struct device *d, size_t bytes)
{
    void *block = NULL;
    if (cudaMalloc(&block, bytes) == cudaSuccess)
        return block;
    cudaGetLastError(); /* clear the error; the caller reports it */
    return NULL;
}

static void release(struct device *d, void *block)
{
    cudaFree(block);
}

static void *host_alloc(struct device *d, size_t bytes)
{
    void *block = NULL;
    if (cudaMallocHost(&block, bytes) == cudaSuccess)
        return block;
    cudaGetLastError();
    return NULL;
}

static void host_free(struct device *d, void *block)
{
    cudaFreeHost(block);
}

static int memory(struct device *d, size_t *total_bytes, size_t *free_bytes, struct error *err)
{
    return CUDA_CHECK(cudaMemGetInfo(free_bytes, total_bytes), err);
}

static int copy(struct device *d, enum device_stream which, void *to, const void *from,
                size_t bytes, enum device_wait wait, struct error *err)
{
    cudaStream_t stream = cuda_stream(d, which);
    if (CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), err))
        return -1;
    return wait == DEVICE_WAIT ? CUDA_CHECK(cudaStreamSynchronize(stream), err) : 0;
}

static int call(struct device *d, enum device_stream stream, void (*function)(void *), void *data,
                struct error *err)
{
    return CUDA_CHECK(cudaLaunchHostFunc(cuda_stream(d, stream), function, data), err);
}

static void *stream_native(struct device *d, enum device_stream stream)
{
    return cuda_stream(d, stream);
}

/* Return 1 where code says that the work asked about is done, 0 where it is not yet, or -1 with err
 * set. */
static int is_done(cudaError_t code, struct error *err)
{
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* not an error */
        return 0;
    }
    return cuda_checked(code, "the GPU failed in work given to it before", err) ? -1 : 1;
}

static void ops_on(struct device *d, enum device_stream stream)
{
    cuda_stream(d, stream);
    cuda_state(d)->ops_on = stream;
}

static int stream_idle(struct device *d, enum device_stream stream, struct error *err)
{
    return is_done(cudaStreamQuery(cuda_stream(d, stream)), err);
}

static int check(struct device *d, struct error *err)
{
    const struct cuda_state *state = cuda_state(d);
    if (state->failure[0]) {
        error_set(err, "%s", state->failure);
        if (err)
            err->code = EXIT_NODE;
        return -1;
    }
    return cuda_checked(cudaGetLastError(), "a kernel could not be started", err);
}

static int sync_all(struct device *d, struct error *err)
{
    for (int s = 0; s < DEVICE_STREAMS; s++)
        if (cuda_state(d)->stream[s] &&
            cuda_checked(cudaStreamSynchronize(cuda_state(d)->stream[s]),
                         "the GPU failed in work given to it before", err))
            return -1;
    return check(d, err);
}

static int check_fp8(const struct device *d, struct error *err)
{
    return cuda_gemm_check_fp8(d->name, d->level, err);
}

/* A struct device_event * is a cudaEvent_t. */
static cudaEvent_t cuda_event(struct device_event *event)
{
    return (cudaEvent_t)event;
}

static struct device_event *event_create(struct device *d, enum device_event_kind kind,
                                         struct error *err)
{
    unsigned flags = kind == DEVICE_EVENT_TIMED ? cudaEventDefault : cudaEventDisableTiming;
    cudaEvent_t event;
    if (CUDA_CHECK(cudaEventCreateWithFlags(&event, flags), err))
        return NULL;
    return (struct device_event *)event;
}

static void event_destroy(struct device *d, struct device_event *event)
{
    cudaEventDestroy(cuda_event(event));
}

static int event_record(struct device *d, struct device_event *event, enum device_stream stream,
                        struct error *err)
{
    return CUDA_CHECK(cudaEventRecord(cuda_event(event), cuda_stream(d, stream)), err);
}

static int event_wait(struct device *d, enum device_stream stream, struct device_event *event,
                      struct error *err)
{
    return CUDA_CHECK(cudaStreamWaitEvent(cuda_stream(d, stream), cuda_event(event), 0), err);
}

static int event_done(struct device *d, struct device_event *event, struct error *err)
{
    return is_done(cudaEventQuery(cuda_event(event)), err);
}

static int64_t event_ns(struct device *d, struct device_event *from, struct device_event *to)
{
    float ms = 0;
    if (cudaEventElapsedTime(&ms, cuda_event(from), cuda_event(to)) != cudaSuccess)
        cudaGetLastError(); /* the time stays 0 */
    return (int64_t)((double)ms * 1e6);
}

static int record_begin(struct device *d, struct error *err)
{
    return CUDA_CHECK(cudaStreamBeginCapture(cuda_compute(d), cudaStreamCaptureModeThreadLocal),
                      err);
}

/* A struct device_recording * is a cudaGraphExec_t. */
static struct device_recording *record_end(struct device *d, struct error *err)
{
    cudaGraphExec_t recording = NULL;
    cudaGraph_t graph = NULL;
    if (!CUDA_CHECK(cudaStreamEndCapture(cuda_compute(d), &graph), err) &&
        CUDA_CHECK(cudaGraphInstantiate(&recording, graph, 0), err))
        recording = NULL;
    if (graph)
        cudaGraphDestroy(graph);
    return (struct device_recording *)recording;
}

static void recording_destroy(struct device *d, struct device_recording *recording)
{
    cudaGraphExecDestroy((cudaGraphExec_t)recording);
}

static int replay(struct device *d, struct device_recording *recording, struct error *err)
{
    return CUDA_CHECK(cudaGraphLaunch((cudaGraphExec_t)recording, cuda_compute(d)), err);
}

const struct device_driver cuda_driver = {
    .open = open_cuda,
    .close = close_cuda,
    .alloc = alloc,
    .free = release,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .memory = memory,
    .copy = copy,
    .call = call,
    .check_fp8 = check_fp8,
    .stream_native = stream_native,
    .ops_on = ops_on,
    .stream_idle = stream_idle,
    .sum_parts = cuda_sum_parts,
    .cast = cuda_cast_on,
    .sync = sync_all,
    .check = check,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_ns = event_ns,
    .record_begin = record_begin,
    .record_end = record_end,
    .recording_destroy = recording_destroy,
    .replay = replay,
    .attention = cuda_report_attention,
    .attention_prepare = cuda_prepare_attention,
    .products_library = cuda_products_library,
    .products_note = cuda_shapes_note,
    .products_noted = cuda_products_noted,
    .product_shape = cuda_product_shape,
    .product_tune = cuda_product_tune,
    .product_take = cuda_product_take,
    .shapes_noted = cuda_shapes_noted,
    .shape = cuda_shape,
    .shape_check = cuda_shape_check,
    .shape_replace = cuda_shape_replace,
};
