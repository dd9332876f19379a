/* capture.cc - streams that collect operations into a graph, and graphs that are launched.
 *
 * A captured operation follows the last ones of its stream; events carry them to other streams,
 * which join the capture.  What CUDA forbids meanwhile spoils the capture.
 */
#include <pthread.h>

#include <set>

#include "private.h"

struct capture {
    struct CUgraph_st *graph; /* NULL once it ended */
    struct CUstream_st *origin;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    bool spoilt;
};

static std::set<struct capture *> &captures(void)
{
    static std::set<struct capture *> *all = new std::set<struct capture *>;
    return *all;
}

cudaError_t capture_spoil(struct capture *capture, cudaError_t code)
{
    capture->spoilt = true;
    return code;
}

cudaError_t capture_allows(void)
{
    cudaError_t code = cudaSuccess;
    for (struct capture *c : captures()) {
        bool own = pthread_equal(c->thread, pthread_self());
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal && own))
            code = capture_spoil(c, cudaErrorStreamCaptureUnsupported);
    }
    return code;
}

cudaError_t capture_forbids_waiting(void)
{
    cudaError_t code = cudaSuccess;
    for (struct capture *c : captures())
        if (c->origin->device == emulate_current_device())
            code = capture_spoil(c, cudaErrorStreamCaptureUnsupported);
    return code;
}

cudaError_t capture_implicit(struct CUstream_st *stream)
{
    if (!stream->legacy || !stream_capturing(stream->device))
        return cudaSuccess;
    for (struct capture *c : captures())
        capture_spoil(c, cudaSuccess);
    return cudaErrorStreamCaptureImplicit;
}

cudaError_t capture_append(struct CUstream_st *stream, const char *name, operation_step step,
                           bool external)
{
    struct capture *c = stream->capture.get();
    if (c->spoilt)
        return cudaErrorStreamCaptureInvalidated;
    c->graph->nodes.push_back({name, std::move(step), external, stream->nodes});
    stream->nodes = {(int)c->graph->nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t capture_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (stream->capture->spoilt)
        return cudaErrorStreamCaptureInvalidated;
    event->capture = stream->capture;
    event->nodes = stream->nodes;
    return cudaSuccess;
}

cudaError_t capture_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (stream->capture && stream->capture->spoilt)
        return cudaErrorStreamCaptureInvalidated;
    if (!event->capture) /* recorded outside, or never */
        return event->point ? capture_spoil(stream->capture.get(), cudaErrorStreamCaptureIsolation)
                            : cudaSuccess;
    if (!event->capture->graph)
        return cudaErrorInvalidValue;
    if (stream->capture && stream->capture != event->capture)
        return capture_spoil(stream->capture.get(), cudaErrorStreamCaptureMerge);
    if (!stream->capture && stream->legacy)
        return capture_spoil(event->capture.get(), cudaErrorStreamCaptureImplicit);
    stream->capture = event->capture;
    for (int node : event->nodes)
        stream->nodes.push_back(node);
    return cudaSuccess;
}

/* Are all nodes the ends of captured streams hold behind those of the origin? */
static bool joined(const struct capture *c)
{
    std::vector<char> reached(c->graph->nodes.size(), 0);
    for (int node : c->origin->nodes)
        reached[(size_t)node] = 1;
    for (size_t i = reached.size(); i-- > 0;)
        if (reached[i])
            for (int before : c->graph->nodes[i].before)
                reached[(size_t)before] = 1;
    bool all = true;
    stream_each_captured(c, [&](struct CUstream_st *stream) {
        for (int node : stream->nodes)
            all = all && reached[(size_t)node];
    });
    return all;
}

/* Put the nodes behind `before`; returns what is behind them all. */
static operation_ptr spread(const std::vector<struct graph_node> &nodes,
                            const std::vector<operation_ptr> &before)
{
    std::vector<operation_ptr> made(nodes.size());
    std::vector<char> last(nodes.size(), 1);
    for (size_t i = 0; i < nodes.size(); i++) {
        std::vector<operation_ptr> behind;
        for (int b : nodes[i].before) {
            behind.push_back(made[(size_t)b]);
            last[(size_t)b] = 0;
        }
        made[i] = schedule_add(nodes[i].name, nodes[i].step, nodes[i].external,
                               nodes[i].before.empty() ? before : behind);
    }
    std::vector<operation_ptr> ends = before;
    for (size_t i = 0; i < nodes.size(); i++)
        if (last[i])
            ends.push_back(made[i]);
    return schedule_add("the end of a graph", nullptr, false, ends);
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    if (!stream)
        return emulate_last(cudaErrorInvalidResourceHandle);
    if (stream->legacy)
        return emulate_last(cudaErrorStreamCaptureUnsupported);
    if (stream->capture)
        return emulate_last(cudaErrorIllegalState);
    stream->capture = std::make_shared<struct capture>();
    *stream->capture = {new struct CUgraph_st, stream, mode, pthread_self(), false};
    stream->nodes.clear();
    captures().insert(stream->capture.get());
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    cudaError_t code = cudaSuccess;
    *graph = nullptr;
    if (!stream)
        return emulate_last(cudaErrorInvalidResourceHandle);
    if (!stream->capture)
        return emulate_last(cudaErrorIllegalState);
    std::shared_ptr<struct capture> c = stream->capture;
    if (c->origin != stream)
        return emulate_last(capture_spoil(c.get(), cudaErrorStreamCaptureUnmatched));
    if (c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return emulate_last(cudaErrorStreamCaptureWrongThread);
    if (c->spoilt)
        code = cudaErrorStreamCaptureInvalidated;
    else if (!joined(c.get()))
        code = cudaErrorStreamCaptureUnjoined;
    if (code == cudaSuccess)
        *graph = c->graph;
    else
        delete c->graph;
    c->graph = nullptr;
    captures().erase(c.get());
    stream_leave_capture(c.get());
    return emulate_last(code);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    if (!stream)
        return emulate_last(cudaErrorInvalidResourceHandle);
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->spoilt ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    if (!exec || !graph)
        return emulate_last(cudaErrorInvalidValue);
    *exec = new struct CUgraphExec_st;
    (*exec)->nodes = graph->nodes;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    stream_wait_for_place(handle);
    cudaError_t failure = schedule_failure();
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    if (failure != cudaSuccess)
        return emulate_last(failure);
    if (!stream || !exec)
        return emulate_last(cudaErrorInvalidResourceHandle);
    if (stream->capture) /* graphs in graphs are not emulated */
        return emulate_last(
            capture_spoil(stream->capture.get(), cudaErrorStreamCaptureUnsupported));
    cudaError_t code = stream_append(stream, "a graph", nullptr, false, nullptr);
    if (code == cudaSuccess) {
        exec->last = stream->tail = spread(exec->nodes, {stream->tail, exec->last});
        stream->queued.back() = stream->tail;
    }
    return emulate_last(code);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (!graph || !count)
        return emulate_last(cudaErrorInvalidValue);
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = i < graph->nodes.size() ? (cudaGraphNode_t)&graph->nodes[i] : nullptr;
    if (!nodes || *count > graph->nodes.size())
        *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* A launch under way has its own copy of the steps. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    delete exec;
    return cudaSuccess;
}

} /* extern "C" */
