/* device.h - where segments run: an op set, memory, streams.
 *
 * The CPU defines what every op means; other devices are checked against it.  A device has the
 * streams of a program.  On the CPU everything is done when a call returns; on a GPU
 * calls only enqueue, and streams are related by events.  A device is used by one thread.
 */
#ifndef TRIREME_DEVICE_DEVICE_H
#define TRIREME_DEVICE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/mem.h"

struct device_ops;
struct device_driver;

enum device_kind { DEVICE_CPU, DEVICE_CUDA, DEVICE_KINDS };

/* Streams.  Work on one stream is done in order; streams advance side by side. */
enum device_stream {
    DEVICE_COMPUTE, /* ops */
    DEVICE_GATHER,  /* transfers between ranks: as the streams of comm/group.h */
    DEVICE_REDUCE,
    DEVICE_POINT,
    DEVICE_POINT_1,
    DEVICE_POINT_2,
    DEVICE_POINT_3,
    DEVICE_POINT_4,
    DEVICE_POINT_5,
    DEVICE_POINT_6,
    DEVICE_POINT_7,
    DEVICE_FETCH,  /* copies of offloaded state to the device */
    DEVICE_SPILL,  /* copies of offloaded state away from it */
    DEVICE_READ,   /* reads of the file of offloaded state */
    DEVICE_WRITE,  /* writes of that file */
    DEVICE_UPDATE, /* updates of the optimizer, if device_ops_on() asks for it */
    DEVICE_STREAMS
};

enum device_pass { DEVICE_FORWARD, DEVICE_BACKWARD };

/* Families of kernels of a GPU's libraries, which trireme's own kernels can replace.  One bit each:
 *
 *   0 to 11    products by cuBLASLt: 4 * (fp32 0, bf16 1, fp16 2) + 2 * trans_a + trans_b
 *   12         products by cuBLASLt in fp8, with or without transposition
 *   13 to 16   attention by cuDNN: 13 + 2 * (bf16 0, fp16 1) + (backward 1)
 *
 * struct device's `replaced` has the bits of those that the self-check found wrong.  Products in
 * fp8 are replaced by own kernels that round operands to fp8, and products in bf16 of these. */
enum device_family { DEVICE_FP8_FAMILY = 1 << 12 }; /* the others by the functions below */
enum { DEVICE_PRODUCT_FAMILIES = 13, DEVICE_ATTENTION_FAMILIES = 4 }; /* how many there are */

static inline unsigned device_product_family(enum dtype dt, int trans_a, int trans_b)
{
    int format = dt == DTYPE_BF16 ? 1 : dt == DTYPE_F16 ? 2 : 0;
    return 1u << (4 * format + 2 * !!trans_a + !!trans_b);
}

static inline unsigned device_attention_family(enum dtype dt, enum device_pass pass) /* 0 of fp32 */
{
    int is_backward = pass == DEVICE_BACKWARD;
    int number = DEVICE_PRODUCT_FAMILIES + 2 * (dt == DTYPE_F16) + is_backward;
    return dt == DTYPE_F32 ? 0 : 1u << number;
}

/* The default of struct device's attention_bytes. */
enum { DEVICE_ATTENTION_BYTES = 1200 << 20 };

struct device {
    const struct device_ops *ops; /* the functions of ops.h for this machine */
    const struct device_driver *driver;
    enum device_kind kind;
    int asynchronous; /* 1: calls only enqueue */
    int planning;     /* 1: only for planning: computes sizes, runs nothing */
    const char *name; /* of the GPU, as its driver gives it; "CPU" */
    int index;        /* number of the GPU among those visible to the process */
    int threads;      /* CPU threads that a kernel, or the host's part of the work, may use */
    int any_order;    /* 1: where that is faster, a GPU may add partial sums in the order in which
                         they end; the same inputs then give other last bits at each run */
    size_t attention_bytes; /* scratch for the slices in which a GPU does attention's reproducible
                               backward; 0: DEVICE_ATTENTION_BYTES */
    unsigned replaced;      /* GPU: bits of enum device_family whose library must not be used */
    const char *level; /* "generic", "avx2", "avx512", "avx512_bf16", "amx"; "sm_90" and the like on
                          a GPU */
    /* Bytes of a chunk of logits in the loss (graph/op_loss.c): logits_bytes fit a CPU's caches or
     * fill a GPU; where these hold few rows of a large vocabulary, up to logits_most bytes. */
    size_t logits_bytes, logits_most;
    int64_t head_dim_most;   /* the largest head_dim of attention; 0: any */
    size_t reserve_bytes;    /* device memory beside what is planned: context, library handles */
    void *state;             /* the driver's own: caches of primitives, handles */
    int given_up;            /* 1: device_give_up() was called */
    int packs_products;      /* CPU, 1: trireme multiplies large matrices, not the library */
    struct run_queue *queue; /* CPU: chooses how many threads to use; NULL: always all */
};

struct device_request {
    enum device_kind kind;
    int threads;            /* 0: as many as this process may use, divided by local_ranks */
    int local_ranks;        /* ranks that share this node, for the default of threads; 0 is 1 */
    const char *level;      /* NULL: the best this machine runs; tests name another */
    int index;              /* the GPU, as CUDA numbers those visible */
    int planning;           /* 1: only for planning: needs no GPU, runs nothing */
    int any_order;          /* as in struct device */
    size_t attention_bytes; /* as in struct device */
    int spare_sms;     /* multiprocessors of a GPU that products leave free for other kernels */
    unsigned replaced; /* as in struct device */
};

/* Open a device; request is copied.  Not collective.  Returns 0 and a device for device_close(), or
 * -1 with err set (an instruction set this machine lacks, OMP_NUM_THREADS is no number of threads;
 * CUDA: not built in, no GPU). */
int device_open(struct device **device, const struct device_request *request, struct error *err);

/* CPU threads that the host's part of the work should use now: `threads`, or fewer where other
 * processes want the cores.  For the thread that uses the device. */
int device_threads(const struct device *device);

/* Release everything of the device; NULL is allowed. */
void device_close(struct device *device);

/* Give up a GPU whose work never ends, as cudaFree() and the like would wait for it.  From then on
 * device_free(), device_host_free() and device_close() leave the memory to the end of the process,
 * and device_sync() fails. */
void device_give_up(struct device *device);

/* The name of instruction set i, from 0, of those that are compiled in and that this machine runs:
 * 0 is the one that a run takes; NULL after the last. */
const char *device_cpu_level(int i);

/* Name of the library that multiplies matrices, with version ("oneDNN 2.6.3"). */
const char *device_gemm_library(void);

/* The large products for which the best level of this machine has own kernels: "of bf16" or "of
 * all types"; NULL: none. */
const char *device_own_products(void);

/* ---- GPUs that are there, before one is opened: cuda/discover.c, or cuda/absent.c in a build
 * without CUDA ---- */

struct device_gpu {
    char name[96];
    char uuid[40];    /* hexadecimal: the same GPU has the same one in every process */
    char bus[32];     /* PCI address "0000:17:00.0" */
    int major, minor; /* compute capability */
    int multiprocessors;
    size_t total_bytes;
};

/* 1 in a build with CUDA. */
int device_gpu_built_in(void);

/* Number of GPUs this process sees.  0 without a driver or in a build without CUDA; then `why` says
 * so in a few words. */
int device_gpu_count(char why[128]);

/* Describe GPU index.  Returns 0, or -1 with err set.  Does not open it. */
int device_gpu_describe(int index, struct device_gpu *gpu, struct error *err);

/* May GPU index read the memory of GPU peer directly? */
int device_gpu_peers(int index, int peer);

/* Make GPU index the one that libraries use when this thread calls them.  A thread that opened a
 * device need not call it. */
void device_gpu_use(int index);

/* As device_check_fp8(), of a GPU that is not opened. */
int device_gpu_check_fp8(const struct device_gpu *gpu, struct error *err);

/* One line of versions: driver, CUDA, cuBLASLt, cuDNN, as far as they are built in. */
const char *device_gpu_libraries(char text[256]);

/* ---- memory ---- */

/* Allocate memory for ops to work on, counted in mem exactly; contents undefined.  Returns memory
 * for device_free() with the same pool and bytes, or NULL with err naming pool and size. */
void *device_alloc(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                   struct error *err);
void device_free(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes, void *block);

/* The same for host memory that the device copies from and to at full speed, without waiting
 * (pinned).  The block may be NULL when freed, here and above. */
void *device_host_alloc(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                        struct error *err);
void device_host_free(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                      void *block);

/* Bytes of the device's memory, on the CPU of the node's, and how many are free now.  Returns 0, or
 * -1 with err set. */
int device_memory(struct device *d, size_t *total_bytes, size_t *free_bytes, struct error *err);

/* Copy `bytes` bytes from or to any host memory.  Waits for all work issued before on COMPUTE, and
 * for the copy.  Return 0, or -1 with err set. */
int device_upload(struct device *d, void *to, const void *from, size_t bytes, struct error *err);
int device_download(struct device *d, void *to, const void *from, size_t bytes, struct error *err);

/* Copy as part of a stream, without waiting, within the device's memory or between it and that of
 * device_host_alloc().  Returns 0, or -1 with err set. */
int device_copy_async(struct device *d, enum device_stream stream, void *to, const void *from,
                      size_t bytes, struct error *err);

/* Have a thread of the host call function(data) as part of a stream.  The function may take long,
 * but must not use the device, nor wait for another such function.  It is not called after the
 * device has failed.  data stays the caller's until then.  Returns 0, or -1 with err set. */
int device_call(struct device *d, enum device_stream stream, void (*function)(void *data),
                void *data, struct error *err);

/* The stream in the form in which the device's libraries take it: a cudaStream_t on a GPU.  NULL on
 * CPUs. */
void *device_stream_native(struct device *d, enum device_stream stream);

/* Ops that are called from now on run on this stream, COMPUTE or UPDATE; at first on COMPUTE.  On
 * UPDATE: the optimizer's rules (adamw, sgd), which need no scratch.  On CPUs nothing changes. */
void device_ops_on(struct device *d, enum device_stream stream);

/* 1 when a stream has nothing left to do, 0 when not yet, -1 with err set when the device failed.
 * Does not wait. */
int device_stream_idle(struct device *d, enum device_stream stream, struct error *err);

/* Two operations that transfers need, on any stream of a GPU; they return without waiting, and must
 * not be called for a CPU.
 * device_sum_parts(): recv[i] = (accumulate ? recv[i] : 0) + parts[0][i] + parts[1][i] + ..., in
 * this order, in fp32; part m begins at parts + m * stride elements of dtype (fp32, bf16, fp16).
 * device_cast(): y = x in another format. */
void device_sum_parts(struct device *d, enum device_stream stream, float *recv, enum dtype dtype,
                      const void *parts, int count, int64_t stride, int64_t elems, int accumulate);
void device_cast(struct device *d, enum device_stream stream, enum dtype to, void *y,
                 enum dtype from, const void *x, int64_t elems);

/* Wait for all streams.  Returns 0, or -1 with err saying what failed on the device. */
int device_sync(struct device *d, struct error *err);

/* Did an op enqueued before fail to start?  0, or -1 with err set; does not wait. */
int device_check(struct device *d, struct error *err);

/* ---- events: points in a stream ---- */

struct device_event;

enum device_event_kind { DEVICE_EVENT_UNTIMED, DEVICE_EVENT_TIMED };

/* Make an event, which may be recorded again and again.  The difference of two timed events is a
 * time.  Returns an event for device_event_destroy(), or NULL with err set. */
struct device_event *device_event_create(struct device *d, enum device_event_kind kind,
                                         struct error *err);
void device_event_destroy(struct device *d, struct device_event *event); /* NULL allowed */

/* Record the event after all work that stream has been given so far.  Returns 0, or -1 with err
 * set. */
int device_event_record(struct device *d, struct device_event *event, enum device_stream stream,
                        struct error *err);

/* Make all work that stream is given from now on wait for the event as it was last recorded; an
 * event that never was is not waited for.  Does not wait itself.  Returns 0, or -1 with err set. */
int device_event_wait(struct device *d, enum device_stream stream, struct device_event *event,
                      struct error *err);

/* 1 when all work before the event is done, 0 when not yet, -1 with err set when the device failed.
 * Does not wait. */
int device_event_done(struct device *d, struct device_event *event, struct error *err);

/* Nanoseconds from one timed event to another, both done. */
int64_t device_event_ns(struct device *d, struct device_event *from, struct device_event *to);

/* ---- which attention runs ---- */

/* Who computes attention, by the shapes and directions met since the device was opened.  All 0 on
 * CPUs. */
struct device_attention {
    int by_library, by_own; /* shapes that cuDNN computes, and that own kernels compute */
    int has_library;        /* 1: the build has cuDNN */
    int from_text;  /* of by_library: those whose plan was read from text, as all should be */
    char why[1024]; /* shapes that cuDNN does not compute though it takes their format, and
                       why */
};
void device_attention(const struct device *d, struct device_attention *a);

struct attention;
/* Begin to compile what a library needs for attention of this shape and pass, which takes about a
 * second, in a thread of its own; the first call of that attention waits for the thread.  a (ops.h)
 * is as that call will have it, without pointers.  Not to be called while calls are recorded.  Does
 * not fail: the first call compiles what this could not begin.  Does nothing on CPUs, nor a second
 * time. */
void device_attention_prepare(struct device *d, const struct attention *a, enum device_pass pass);

/* "cudnn", "own" or "cudnn+own": who computes attention so far; "" where none was met. */
const char *device_attention_name(const struct device *d);

/* Does the device's attention take heads of head_dim elements?  Returns 0, or -1 with err set. */
int device_check_head_dim(const struct device *d, int64_t head_dim, struct error *err);

/* Does the device multiply in fp8 (struct gemm) at the speed of fp8?  GPUs of compute
 * capability 9.0 do, where the library takes scales of blocks.  CPUs, and GPUs that are only
 * planned for, are accepted too.  Returns 0, or -1 with err (NULL allowed) set to what is lacking,
 * in words to be put after "needs": "cuBLASLt 12.9 or newer, and this is cuBLASLt 12.4.5". */
int device_check_fp8(const struct device *d, struct error *err);

/* ---- recordings: ops enqueued once, replayed with one call (CUDA graphs) ---- */

struct device_recording;

/* Between these two calls ops on COMPUTE are recorded and not run; not to be called for a CPU.
 * device_record_begin() returns 0, or -1 with err set; device_record_end() a recording for
 * device_recording_destroy() (NULL allowed), or NULL with err set. */
int device_record_begin(struct device *d, struct error *err);
struct device_recording *device_record_end(struct device *d, struct error *err);
void device_recording_destroy(struct device *d, struct device_recording *recording);

/* Enqueue all of a recording on COMPUTE.  Returns 0, or -1 with err set. */
int device_replay(struct device *d, struct device_recording *recording, struct error *err);

#endif
