/* streams.cc - streams and events: which operation follows which. */
#include <set>

#include "private.h"

struct streams {
    std::set<struct CUstream_st *> all;
    std::set<struct CUevent_st *> events;
    std::vector<struct CUstream_st *> legacy; /* by GPU */
};

static struct streams &streams(void)
{
    static struct streams *s = new struct streams;
    return *s;
}

static struct CUstream_st *make_stream(int device, bool blocking, bool legacy, int priority)
{
    struct CUstream_st *made = new struct CUstream_st;
    made->device = device;
    made->blocking = blocking;
    made->legacy = legacy;
    made->priority = priority;
    streams().all.insert(made);
    return made;
}

struct CUstream_st *stream_find(cudaStream_t handle)
{
    struct streams &s = streams();
    if (handle && handle != cudaStreamLegacy)
        return s.all.count(handle) ? handle : nullptr;
    size_t device = (size_t)emulate_current_device();
    if (s.legacy.size() <= device)
        s.legacy.resize(device + 1);
    if (!s.legacy[device])
        s.legacy[device] = make_stream((int)device, true, true, 0);
    return s.legacy[device];
}

static struct CUevent_st *event_find(cudaEvent_t handle)
{
    return streams().events.count(handle) ? handle : nullptr;
}

/* What a new operation of the stream is behind. */
static std::vector<operation_ptr> tails(const struct CUstream_st *stream)
{
    std::vector<operation_ptr> before = {stream->tail};
    for (const struct CUstream_st *other : streams().all)
        if (stream->blocking && other->blocking && other->device == stream->device &&
            stream->legacy != other->legacy)
            before.push_back(other->tail);
    return before;
}

operation_ptr stream_all(int device)
{
    std::vector<operation_ptr> before;
    for (const struct CUstream_st *stream : streams().all)
        if (stream->device == device)
            before.push_back(stream->tail);
    return schedule_add("", nullptr, false, before);
}

void stream_wait_for_place(cudaStream_t handle)
{
    operation_ptr oldest;
    {
        std::lock_guard<std::mutex> locked(schedule_lock());
        struct CUstream_st *stream = stream_find(handle);
        if (!stream || stream->capture)
            return;
        std::deque<operation_ptr> &queued = stream->queued;
        while (!queued.empty() && queued.front()->done)
            queued.pop_front();
        if (queued.size() < emulate_queue())
            return;
        oldest = queued.front();
    }
    schedule_wait(oldest);
}

void stream_take_places(cudaStream_t handle, int places)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    if (stream && !stream->queued.empty())
        stream->queued.insert(stream->queued.end(), (size_t)places, stream->queued.back());
}

cudaError_t stream_append(struct CUstream_st *stream, const char *name, operation_step step,
                          bool external, operation_ptr *made)
{
    cudaError_t code = capture_implicit(stream);
    if (code != cudaSuccess)
        return code;
    if (stream->capture)
        return capture_append(stream, name, std::move(step), external);
    stream->tail = schedule_add(name, std::move(step), external, tails(stream));
    stream->queued.push_back(stream->tail);
    if (made)
        *made = stream->tail;
    return cudaSuccess;
}

bool stream_capturing(int device)
{
    for (const struct CUstream_st *stream : streams().all)
        if (stream->device == device && stream->blocking && stream->capture)
            return true;
    return false;
}

void stream_leave_capture(const struct capture *capture)
{
    for (struct CUstream_st *stream : streams().all)
        if (stream->capture.get() == capture) {
            stream->capture = nullptr;
            stream->nodes.clear();
        }
}

void stream_each_captured(const struct capture *capture,
                          const std::function<void(struct CUstream_st *)> &call)
{
    for (struct CUstream_st *stream : streams().all)
        if (stream->capture.get() == capture)
            call(stream);
}

static cudaError_t enqueue(cudaStream_t handle, operation_step step, bool external,
                           const char *name)
{
    stream_wait_for_place(handle);
    cudaError_t failure = schedule_failure();
    std::lock_guard<std::mutex> locked(schedule_lock());
    if (failure != cudaSuccess)
        return failure;
    struct CUstream_st *stream = stream_find(handle);
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    return stream_append(stream, name, std::move(step), external, nullptr);
}

cudaError_t emulate_enqueue(cudaStream_t stream, operation_step step, const char *name)
{
    return emulate_last(enqueue(stream, std::move(step), false, name));
}

cudaError_t emulate_enqueue_external(cudaStream_t stream, operation_step step, const char *name)
{
    return emulate_last(enqueue(stream, std::move(step), true, name));
}

int emulate_stream_device(cudaStream_t handle)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    return stream ? stream->device : -1;
}

/* ---- the functions of the runtime ---- */

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    if (!stream || (flags & ~(unsigned)cudaStreamNonBlocking))
        return emulate_last(cudaErrorInvalidValue);
    if (emulate_strict_loading() && schedule_transfers()) /* CUDA may wait until they have ended */
        return emulate_last(cudaErrorNotPermitted);
    std::lock_guard<std::mutex> locked(schedule_lock());
    *stream =
        make_stream(emulate_current_device(), !(flags & cudaStreamNonBlocking), false, priority);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    *priority = stream ? stream->priority : 0;
    return emulate_last(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* What was enqueued is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = handle ? stream_find(handle) : nullptr;
    if (!stream || stream->legacy)
        return emulate_last(cudaErrorInvalidResourceHandle);
    if (stream->capture)
        capture_spoil(stream->capture.get(), cudaSuccess);
    stream_find(nullptr)->tail =
        schedule_add("", nullptr, false, {stream_find(nullptr)->tail, stream->tail});
    streams().all.erase(stream);
    delete stream;
    return cudaSuccess;
}

/* cudaSuccess and what to wait for, or the error. */
static cudaError_t tail_of(cudaStream_t handle, operation_ptr *tail)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    if (stream->capture)
        return capture_spoil(stream->capture.get(), cudaErrorStreamCaptureUnsupported);
    cudaError_t code = capture_implicit(stream);
    if (code == cudaSuccess && stream->legacy)
        *tail = schedule_add("", nullptr, false, tails(stream));
    else
        *tail = stream->tail;
    return code;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    operation_ptr tail;
    cudaError_t code = tail_of(stream, &tail);
    if (code != cudaSuccess)
        return emulate_last(code);
    schedule_wait(tail);
    return emulate_last(schedule_failure());
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    operation_ptr tail;
    cudaError_t code = tail_of(stream, &tail);
    if (code != cudaSuccess)
        return emulate_last(code);
    code = schedule_done(tail);
    if (code == cudaErrorNotReady)
        schedule_nudge(tail);
    return code == cudaErrorNotReady ? code : emulate_last(code);
}

cudaError_t cudaDeviceSynchronize(void)
{
    operation_ptr all;
    {
        std::lock_guard<std::mutex> locked(schedule_lock());
        cudaError_t code = capture_forbids_waiting();
        if (code != cudaSuccess)
            return emulate_last(code);
        all = stream_all(emulate_current_device());
    }
    schedule_wait(all);
    return emulate_last(schedule_failure());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    return emulate_enqueue_external(
        stream,
        [function, data] {
            function(data);
            return EMULATE_DONE;
        },
        "a function of the host");
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    if (!event || (flags & ~7u))
        return emulate_last(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> locked(schedule_lock());
    *event = new struct CUevent_st;
    (*event)->device = emulate_current_device();
    (*event)->timed = !(flags & cudaEventDisableTiming);
    streams().events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    if (!event_find(handle))
        return emulate_last(cudaErrorInvalidResourceHandle);
    streams().events.erase(handle);
    delete handle;
    return cudaSuccess;
}

static cudaError_t record(cudaEvent_t handle, cudaStream_t stream_handle)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUevent_st *event = event_find(handle);
    struct CUstream_st *stream = stream_find(stream_handle);
    if (!event || !stream || event->device != stream->device)
        return cudaErrorInvalidResourceHandle;
    if (stream->capture)
        return capture_record(stream, event);
    event->capture = nullptr;
    return stream_append(stream, "an event", nullptr, false, &event->point);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    stream_wait_for_place(stream);
    cudaError_t failure = schedule_failure();
    return emulate_last(failure != cudaSuccess ? failure : record(event, stream));
}

static cudaError_t wait(cudaStream_t stream_handle, cudaEvent_t handle)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUevent_st *event = event_find(handle);
    struct CUstream_st *stream = stream_find(stream_handle);
    if (!event || !stream)
        return cudaErrorInvalidResourceHandle;
    if (event->capture || stream->capture)
        return capture_wait(stream, event);
    if (!event->point || event->point->done)
        return cudaSuccess;
    std::vector<operation_ptr> before = tails(stream);
    before.push_back(event->point);
    stream->tail = schedule_add("a wait", nullptr, false, before);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    cudaError_t failure = schedule_failure();
    return emulate_last(failure != cudaSuccess ? failure : wait(stream, event));
}

/* What the host waits for when it waits for an event. */
static cudaError_t point_of(cudaEvent_t handle, operation_ptr *point)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUevent_st *event = event_find(handle);
    if (!event)
        return cudaErrorInvalidResourceHandle;
    if (event->capture)
        return capture_spoil(event->capture.get(), cudaErrorCapturedEvent);
    *point = event->point;
    return capture_allows();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    operation_ptr point;
    cudaError_t code = point_of(event, &point);
    if (code != cudaSuccess)
        return emulate_last(code);
    schedule_wait(point);
    return emulate_last(schedule_failure());
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    operation_ptr point;
    cudaError_t code = point_of(event, &point);
    if (code != cudaSuccess)
        return emulate_last(code);
    code = schedule_done(point);
    if (code == cudaErrorNotReady)
        schedule_nudge(point);
    return code == cudaErrorNotReady ? code : emulate_last(code);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUevent_st *a = event_find(from), *b = event_find(to);
    if (!a || !b || !a->timed || !b->timed || !a->point || !b->point)
        return emulate_last(cudaErrorInvalidResourceHandle);
    if (!a->point->done || !b->point->done)
        return cudaErrorNotReady;
    *ms = (float)((double)(b->point->ended_ns - a->point->ended_ns) / 1e6);
    return cudaSuccess;
}

} /* extern "C" */
