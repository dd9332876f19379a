/* driver.c - a GPU as a device: streams, memory, marks (events), recordings (graphs). */
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/sizes.h"
#include "device/cuda/state.h"

enum { LEAST_MAJOR = 8 }; /* bf16 and asynchronous copies came with compute capability 8.0 */

static int make_streams(struct cuda_state *state, struct error *err)
{
    int least, most; /* transfers go first: they are short of multiprocessors, not of work */
    if (CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &most), err))
        return -1;
    for (int s = 0; s < DEVICE_STREAMS; s++)
        if (CUDA_CHECK(cudaStreamCreateWithPriority(&state->stream[s], cudaStreamNonBlocking,
                                                    s == DEVICE_COMPUTE ? least : most),
                       err))
            return -1;
    return 0;
}

static int take_gpu(struct device *d, struct error *err)
{
    struct cuda_state *state = d->state;
    struct device_gpu gpu;
    char why[128];
    int gpus = cuda_discovery.count(why);
    if (!gpus)
        return error_set(err, "device=cuda, but there is no GPU to use: %s", why);
    if (state->index < 0 || state->index >= gpus)
        return error_set(err, "GPU %d was asked for, %d visible", state->index, gpus);
    if (cuda_discovery.describe(state->index, &gpu, err))
        return -1;
    if (gpu.major < LEAST_MAJOR)
        return error_set(err,
                         "GPU %d (%s) has compute capability %d.%d; trireme needs 8.0 or newer",
                         state->index, gpu.name, gpu.major, gpu.minor);
    snprintf(state->level, sizeof state->level, "sm_%d%d", gpu.major % 100, gpu.minor % 100);
    snprintf(state->name, sizeof state->name, "%s", gpu.name);
    return CUDA_CHECK(cudaSetDevice(state->index), err);
}

static void close_cuda(struct device *d)
{
    struct cuda_state *state = d->state;
    if (!state)
        return;
    cuda_sdpa_close(d);
    cuda_gemm_close(d);
    cudaFree(state->partial);
    for (int s = 0; s < DEVICE_STREAMS; s++)
        if (state->stream[s])
            cudaStreamDestroy(state->stream[s]);
    free(state);
    d->state = NULL;
}

static int open_gpu(struct device *d, struct error *err)
{
    struct cuda_state *state = d->state;
    if (take_gpu(d, err) || make_streams(state, err) ||
        CUDA_CHECK(cudaMalloc((void **)&state->partial, CUDA_PARTIALS * sizeof(double)), err))
        return -1;
    return cuda_gemm_open(d, err) || cuda_sdpa_open(d, err) ? -1 : 0;
}

static int open_cuda(struct device *d, const struct device_request *request, struct error *err)
{
    struct cuda_state *state = calloc(1, sizeof *state);
    if (!state)
        return error_set(err, "out of memory: a device");
    d->state = state;
    d->ops = &cuda_ops;
    d->asynchronous = 1;
    d->threads = request->threads > 0 ? request->threads : omp_get_max_threads();
    d->name = state->name;
    d->level = state->level;
    d->logits_bytes = CUDA_LOGITS_BYTES;
    d->reserve_bytes = CUDA_RESERVE_BYTES;
    state->index = request->index;
    if (!open_gpu(d, err))
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
    cudaGetLastError(); /* the caller says it */
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
                size_t bytes, int wait, struct error *err)
{
    cudaStream_t stream = cuda_state(d)->stream[which];
    if (CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), err))
        return -1;
    return wait ? CUDA_CHECK(cudaStreamSynchronize(stream), err) : 0;
}

static int call(struct device *d, enum device_stream stream, void (*function)(void *), void *data,
                struct error *err)
{
    return CUDA_CHECK(cudaLaunchHostFunc(cuda_state(d)->stream[stream], function, data), err);
}

static int check(struct device *d, struct error *err)
{
    const struct cuda_state *state = cuda_state(d);
    if (state->failure[0])
        return error_set(err, "%s", state->failure);
    return cuda_checked(cudaGetLastError(), "a kernel could not be started", err);
}

static int sync_all(struct device *d, struct error *err)
{
    for (int s = 0; s < DEVICE_STREAMS; s++)
        if (cuda_checked(cudaStreamSynchronize(cuda_state(d)->stream[s]),
                         "the GPU failed in work given to it before", err))
            return -1;
    return check(d, err);
}

struct device_mark {
    cudaEvent_t event;
};

static struct device_mark *mark_create(struct device *d, int timed, struct error *err)
{
    struct device_mark *mark = calloc(1, sizeof *mark);
    unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    if (mark && !CUDA_CHECK(cudaEventCreateWithFlags(&mark->event, flags), err))
        return mark;
    if (!mark)
        error_set(err, "out of memory: a mark");
    free(mark);
    return NULL;
}

static void mark_destroy(struct device *d, struct device_mark *mark)
{
    cudaEventDestroy(mark->event);
    free(mark);
}

static int mark_record(struct device *d, struct device_mark *mark, enum device_stream stream,
                       struct error *err)
{
    return CUDA_CHECK(cudaEventRecord(mark->event, cuda_state(d)->stream[stream]), err);
}

static int mark_wait(struct device *d, enum device_stream stream, struct device_mark *mark,
                     struct error *err)
{
    return CUDA_CHECK(cudaStreamWaitEvent(cuda_state(d)->stream[stream], mark->event, 0), err);
}

static int mark_done(struct device *d, struct device_mark *mark, struct error *err)
{
    cudaError_t code = cudaEventQuery(mark->event);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* not an error */
        return 0;
    }
    return cuda_checked(code, "the GPU failed in work given to it before", err) ? -1 : 1;
}

static int64_t mark_ns(struct device *d, struct device_mark *from, struct device_mark *to)
{
    float ms = 0;
    if (cudaEventElapsedTime(&ms, from->event, to->event) != cudaSuccess)
        cudaGetLastError(); /* a time of 0 tells */
    return (int64_t)((double)ms * 1e6);
}

struct device_recording {
    cudaGraphExec_t graph;
};

static int record_begin(struct device *d, struct error *err)
{
    return CUDA_CHECK(cudaStreamBeginCapture(cuda_compute(d), cudaStreamCaptureModeThreadLocal),
                      err);
}

static struct device_recording *record_end(struct device *d, struct error *err)
{
    struct device_recording *recording = calloc(1, sizeof *recording);
    cudaGraph_t graph = NULL;
    int rc = CUDA_CHECK(cudaStreamEndCapture(cuda_compute(d), &graph), err);
    if (!rc && !recording)
        rc = error_set(err, "out of memory: a recording");
    if (!rc)
        rc = CUDA_CHECK(cudaGraphInstantiate(&recording->graph, graph, 0), err);
    if (graph)
        cudaGraphDestroy(graph);
    if (!rc)
        return recording;
    free(recording);
    return NULL;
}

static void recording_destroy(struct device *d, struct device_recording *recording)
{
    cudaGraphExecDestroy(recording->graph);
    free(recording);
}

static int replay(struct device *d, struct device_recording *recording, struct error *err)
{
    return CUDA_CHECK(cudaGraphLaunch(recording->graph, cuda_compute(d)), err);
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
    .sync = sync_all,
    .check = check,
    .mark_create = mark_create,
    .mark_destroy = mark_destroy,
    .mark_record = mark_record,
    .mark_wait = mark_wait,
    .mark_done = mark_done,
    .mark_ns = mark_ns,
    .record_begin = record_begin,
    .record_end = record_end,
    .recording_destroy = recording_destroy,
    .replay = replay,
    .attention = cuda_sdpa_tell,
};
