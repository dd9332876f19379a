/* private.h - what the parts of the emulated CUDA runtime know of each other. */
#ifndef TRIREME_EMULATE_PRIVATE_H
#define TRIREME_EMULATE_PRIVATE_H

#include <stddef.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory.h"
#include "stream.h"

/* ---- settings.cc ---- */

enum { MAX_SHARED = 227 * 1024, USUAL_SHARED = 48 * 1024 };

uint64_t emulate_seed(void);
int emulate_gpus(void);
size_t emulate_gpu_bytes(void);
size_t emulate_queue(void);
bool emulate_strict_loading(void);
int emulate_fastest_algorithm(void);
int emulate_driver(void);
int emulate_level(void);
size_t emulate_cublaslt_version(void);
int emulate_fp8_status(void);

/* ---- errors.cc, runtime.cc ---- */

/* What the caller's cudaGetLastError() says next, unless it is cudaSuccess; returns code. */
cudaError_t emulate_last(cudaError_t code);
int emulate_current_device(void);

/* ---- schedule.cc ---- */

struct operation;
typedef std::shared_ptr<struct operation> operation_ptr;
typedef std::function<enum emulate_status()> operation_step;

/* One thing to be done once the operations before it are. */
struct operation {
    const char *name = "";
    operation_step step; /* may be empty */
    bool external = false;
    bool done = false;
    bool needed = false; /* somebody waits for it */
    int blocked = 0;     /* by so many that are not done */
    int round = 0;       /* when it last said EMULATE_LATER */
    int slot = -1;       /* in the list of those ready */
    int64_t ended_ns = 0;
    std::vector<operation_ptr> before, after;
};

/* One lock for all that is not done by steps. */
std::mutex &schedule_lock(void);

/* Add an operation behind others; NULL among before is allowed.  Locked. */
operation_ptr schedule_add(const char *name, operation_step step, bool external,
                           const std::vector<operation_ptr> &before);

/* What an operation takes on the emulated GPU beside the time of the host that emulates it: events
 * recorded from now on are so much later.  Called by steps. */
void schedule_take_time(int64_t ns);

/* Run what is needed until it is done.  Not locked. */
void schedule_wait(const operation_ptr &operation);

/* Run a little of what is needed for it.  Not locked. */
void schedule_nudge(const operation_ptr &operation);

/* cudaSuccess when it is done (or NULL), cudaErrorNotReady, or the sticky error. */
cudaError_t schedule_done(const operation_ptr &operation);

/* The sticky error, or cudaSuccess. */
cudaError_t schedule_failure(void);

/* Drop everything pending, and the sticky error.  Not locked. */
void schedule_reset(void);

/* The step under way, for messages; NULL outside. */
const char *schedule_running(void);

/* ---- streams.cc, capture.cc ---- */

struct capture;

struct CUstream_st {
    int device;
    bool blocking; /* with the NULL stream */
    bool legacy;   /* the NULL stream of its GPU */
    int priority;
    operation_ptr tail;
    std::deque<operation_ptr> queued; /* what calls gave it; those done are dropped now and then */
    std::shared_ptr<struct capture> capture;
    std::vector<int> nodes; /* of the capture: what the next one follows */
};

struct CUevent_st {
    int device;
    bool timed;
    operation_ptr point;
    std::shared_ptr<struct capture> capture;
    std::vector<int> nodes;
};

struct graph_node {
    const char *name;
    operation_step step;
    bool external;
    std::vector<int> before;
};

struct CUgraph_st {
    std::vector<struct graph_node> nodes;
};

struct CUgraphExec_st {
    std::vector<struct graph_node> nodes;
    operation_ptr last;
};

/* The stream behind a handle: NULL is the device's own; NULL when it is none.  Locked. */
struct CUstream_st *stream_find(cudaStream_t handle);

/* Append to a stream, or its capture.  Locked. */
cudaError_t stream_append(struct CUstream_st *stream, const char *name, operation_step step,
                          bool external, operation_ptr *made);

/* Something that is behind all work of a device.  Locked. */
operation_ptr stream_all(int device);

/* Is a stream of the device being captured that blocks with the NULL stream?  Locked. */
bool stream_capturing(int device);

/* The capture ended.  Locked. */
void stream_leave_capture(const struct capture *capture);
void stream_each_captured(const struct capture *capture,
                          const std::function<void(struct CUstream_st *)> &call);

/* The same for waiting for the whole GPU, and for work on the NULL stream.  Locked. */
cudaError_t capture_forbids_waiting(void);
cudaError_t capture_implicit(struct CUstream_st *stream);

/* May the calling thread do something that waits or allocates?  cudaSuccess, or the error, and
 * the capture that forbids it is spoilt.  Locked. */
cudaError_t capture_allows(void);

/* Append to the capture of a stream.  Locked. */
cudaError_t capture_append(struct CUstream_st *stream, const char *name, operation_step step,
                           bool external);
cudaError_t capture_spoil(struct capture *capture, cudaError_t code);
cudaError_t capture_record(struct CUstream_st *stream, struct CUevent_st *event);
cudaError_t capture_wait(struct CUstream_st *stream, struct CUevent_st *event);

/* ---- memory.cc ---- */

/* Blocks; cudaSuccess or what the API answers. */
cudaError_t memory_alloc(void **block, int device, size_t bytes);
cudaError_t memory_free(void *block);
cudaError_t memory_host_alloc(void **block, size_t bytes);
cudaError_t memory_host_free(void *block);
size_t memory_used(int device);

/* Copy in a step; fails the GPU when either side is memory that is gone. */
void memory_copy(void *to, const void *from, size_t bytes);
void memory_fill(void *to, int value, size_t bytes);

/* A fault of a step at address: 1 when it was memory of the GPU, which may be touched now. */
int memory_open(void *address);

/* No step runs any more: the host may not touch what they touched. */
void memory_close(void);

/* Words about an address, for messages. */
void memory_describe(const void *address, char text[160]);

/* Drop all of a device. */
void memory_reset(int device);

/* ---- fault.cc ---- */

/* Run body in a step; false when it touched memory it may not, which has failed the GPU. */
bool fault_guard(const std::function<void()> &body);

/* Catch faults of the process; of the thread that runs steps. */
void fault_install(void);
void fault_thread(void);

/* ---- simt.cc ---- */

struct emulate_launch;
void simt_run(const struct emulate_launch *launch, const std::function<void()> &body);

/* Where the running thread is, "" when none runs. */
void simt_where(char text[160]);
bool simt_is_stack(const void *address);

/* The kernel's limit of dynamic shared memory. */
size_t simt_shared_limit(const void *kernel);
cudaError_t simt_set_shared_limit(const void *kernel, int bytes);

#endif
