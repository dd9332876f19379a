/* private.h - what the files of the emulated CUDA runtime call of one another, by file.
 *
 * "Locked" and "not locked" say whether the caller has to hold schedule_lock().
 */
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
int emulate_nccl_version(void);
enum emulate_fault { EMULATE_LAST_TERM, EMULATE_NO_ADDEND, EMULATE_REFUSAL };
int64_t emulate_wrong_k(void);
int emulate_wrong_algorithm(void);
enum emulate_fault emulate_wrong(void);
int emulate_fp8_status(void);

/* ---- errors.cc, runtime.cc ---- */

/* Let the calling thread's next cudaGetLastError() return code, unless this is cudaSuccess. Returns
 * code. */
cudaError_t emulate_last(cudaError_t code);
int emulate_current_device(void);

/* ---- schedule.cc ---- */

struct operation;
typedef std::shared_ptr<struct operation> operation_ptr;
typedef std::function<enum emulate_status()> operation_step;

/* Work that may run when all operations before it are done. */
struct operation {
    const char *name = "";
    operation_step step;   /* may be empty */
    bool external = false; /* other processes may wait for it (stream.h) */
    bool done = false;
    bool needed = false;  /* the host, or a needed operation, waits for it */
    int blocked = 0;      /* number of operations before it that are not done */
    int round = 0;        /* in which its step last returned EMULATE_LATER */
    int slot = -1;        /* its index in the list of operations that may run */
    int64_t ended_ns = 0; /* when it was done */
    std::vector<operation_ptr> before, after;
};

/* The one lock of streams, events, captures and operations.  Steps run without it. */
std::mutex &schedule_lock(void);

/* Add an operation behind others; NULL among before is allowed.  Locked. */
operation_ptr schedule_add(const char *name, operation_step step, bool external,
                           const std::vector<operation_ptr> &before);

/* Add the time that an operation takes on the emulated GPU to the time of the host that emulates
 * it: events recorded from now on are so much later.  Called by steps. */
void schedule_take_time(int64_t ns);

/* Run what an operation needs, and the operation, until it is done.  Not locked. */
void schedule_wait(const operation_ptr &operation);

/* Run a little of what an operation needs, for a caller that asks again.  Not locked. */
void schedule_nudge(const operation_ptr &operation);

/* Return cudaSuccess when the operation is done (or NULL), else cudaErrorNotReady; after a failure
 * of the GPU its error. */
cudaError_t schedule_done(const operation_ptr &operation);

/* Return the error with which the GPU failed, which every call answers from then on; cudaSuccess:
 * none. */
cudaError_t schedule_failure(void);

/* Drop all pending operations, and the GPU's error.  Not locked. */
void schedule_reset(void);

/* Is a transfer to other ranks under way that has been given to a stream?  Not locked. */
bool schedule_transfers(void);

/* Return the name of the step that is running, for messages; NULL: none is. */
const char *schedule_running(void);

/* ---- streams.cc, capture.cc ---- */

struct capture;

struct CUstream_st {
    int device;
    bool blocking; /* it and the NULL stream wait for one another */
    bool legacy;   /* it is the NULL stream of its GPU */
    int priority;
    operation_ptr tail;               /* the last operation, or NULL */
    std::deque<operation_ptr> queued; /* operations of calls; done ones are dropped now and then */
    std::shared_ptr<struct capture> capture; /* NULL: the stream is not being captured */
    std::vector<int> nodes; /* of the captured graph: those that the stream's next node follows */
};

struct CUevent_st {
    int device;
    bool timed;
    operation_ptr point;                     /* where it was recorded in a stream */
    std::shared_ptr<struct capture> capture; /* in which it was recorded; NULL: in none */
    std::vector<int> nodes;                  /* of the captured graph: those that it stands for */
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

/* Find the stream of a handle; the handle NULL is the current device's NULL stream.  NULL: there is
 * no such stream.  Locked. */
struct CUstream_st *stream_find(cudaStream_t handle);

/* Append an operation to a stream, or to the graph into which it is captured.  Locked. */
cudaError_t stream_append(struct CUstream_st *stream, const char *name, operation_step step,
                          bool external, operation_ptr *made);

/* Make an operation that follows all work of a device.  Locked. */
operation_ptr stream_all(int device);

/* Is a stream of the device being captured that blocks with the NULL stream?  Locked. */
bool stream_capturing(int device);

/* Take all streams out of a capture that has ended.  Locked. */
void stream_leave_capture(const struct capture *capture);
/* Call a function for each stream of a capture.  Locked. */
void stream_each_captured(const struct capture *capture,
                          const std::function<void(struct CUstream_st *)> &call);

/* May the calling thread do something that waits or allocates?  Returns cudaSuccess; or an error,
 * after spoiling the capture that forbids it.  Locked. */
cudaError_t capture_allows(void);
/* Ask the same about waiting for the whole GPU.  Locked. */
cudaError_t capture_forbids_waiting(void);
/* Ask the same about work on the NULL stream, if stream is one.  Locked. */
cudaError_t capture_implicit(struct CUstream_st *stream);

/* Append a node to the capture of a stream.  Locked. */
cudaError_t capture_append(struct CUstream_st *stream, const char *name, operation_step step,
                           bool external);
cudaError_t capture_spoil(struct capture *capture, cudaError_t code);
cudaError_t capture_record(struct CUstream_st *stream, struct CUevent_st *event);
cudaError_t capture_wait(struct CUstream_st *stream, struct CUevent_st *event);

/* ---- loading.cc ---- */

/* Say why a kernel cannot be loaded at this launch, or NULL: it can, or it is loaded.  kernel: a
 * text that no other kernel has.  With TRIREME_EMULATE_STRICT_LOADING=0 always NULL.  Not locked.
 */
const char *loading_refuses(const std::string &kernel, cudaStream_t stream);

/* ---- memory.cc ---- */

/* Allocate and free blocks of device memory, and of pinned host memory.  Return what the API's
 * functions do. */
cudaError_t memory_alloc(void **block, int device, size_t bytes);
cudaError_t memory_free(void *block);
cudaError_t memory_host_alloc(void **block, size_t bytes);
cudaError_t memory_host_free(void *block);
size_t memory_used(int device);

/* Copy, and fill, in a step.  The GPU fails where memory of either side is gone. */
void memory_copy(void *to, const void *from, size_t bytes);
void memory_fill(void *to, int value, size_t bytes);

/* Open the page of device memory at which a step faulted.  Returns 1, or 0 where address is not
 * device memory. */
int memory_open(void *address);

/* Close all device memory that steps opened, so that the host faults where it touches it.  Called
 * when no step runs any more. */
void memory_close(void);

/* Describe an address in words, for messages. */
void memory_describe(const void *address, char text[160]);

/* Free all memory of a device. */
void memory_reset(int device);

/* ---- fault.cc ---- */

/* Run the body of a step.  Returns false where it touched memory that it may not, after failing the
 * GPU. */
bool fault_guard(const std::function<void()> &body);

/* Begin to catch faults: of the process; of the thread that runs steps, which calls it. */
void fault_install(void);
void fault_thread(void);

/* ---- simt.cc ---- */

struct emulate_launch;
void simt_run(const struct emulate_launch *launch, const std::function<void()> &body);

/* Describe where the running thread of a kernel is; "": none runs. */
void simt_where(char text[160]);
/* Is an address on a stack of the kernel's threads, or in its guard? */
bool simt_is_stack(const void *address);

/* Return, and set, a kernel's limit of dynamic shared memory in bytes. */
size_t simt_shared_limit(const void *kernel);
cudaError_t simt_set_shared_limit(const void *kernel, int bytes);

#endif
