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

/* Ops run on COMPUTE, updates of the optimizer also on UPDATE (device_ops_on()); transfers, copies
 * of offloaded state, and reads and writes of its file on the others.  Each is in order; they
 * advance side by side. */
enum device_stream {
    DEVICE_COMPUTE,
    DEVICE_GATHER,
    DEVICE_REDUCE,
    DEVICE_POINT,
    DEVICE_POINT_1,
    DEVICE_POINT_2,
    DEVICE_POINT_3,
    DEVICE_POINT_4,
    DEVICE_POINT_5,
    DEVICE_POINT_6,
    DEVICE_POINT_7,
    DEVICE_FETCH,
    DEVICE_SPILL,
    DEVICE_READ,
    DEVICE_WRITE,
    DEVICE_UPDATE,
    DEVICE_STREAMS
};

enum device_pass { DEVICE_FORWARD, DEVICE_BACKWARD };

/* Implementations of libraries on a GPU that own kernels can replace ("parts"), one bit each:
 *
 *   0 to 11    products by cuBLASLt: 4 * (fp32 0, bf16 1, fp16 2) + 2 * trans_a + trans_b
 *   12         products by cuBLASLt in fp8, however their operands lie
 *   13 to 16   attention by cuDNN: 13 + 2 * (bf16 0, fp16 1) + (backward 1)
 *
 * Where the self-check found a part wrong, its bit is in struct device's `replaced`.  In place of
 * products in fp8 come products in bf16 of what own kernels rounded to fp8. */
enum device_part { DEVICE_FP8_PART = 1 << 12 }; /* the others by the functions below */
enum { DEVICE_PRODUCT_PARTS = 13, DEVICE_ATTENTION_PARTS = 4 }; /* how many there are */

static inline unsigned device_product_part(enum dtype dt, int trans_a, int trans_b)
{
    int format = dt == DTYPE_BF16 ? 1 : dt == DTYPE_F16 ? 2 : 0;
    return 1u << (4 * format + 2 * !!trans_a + !!trans_b);
}

static inline unsigned device_attention_part(enum dtype dt, enum device_pass pass) /* 0 of fp32 */
{
    int is_backward = pass == DEVICE_BACKWARD;
    return dt == DTYPE_F32 ? 0 : 1u << (DEVICE_PRODUCT_PARTS + 2 * (dt == DTYPE_F16) + is_backward);
}

/* Scratch of a part of attention's backward on a GPU, where no other is asked for. */
enum { DEVICE_ATTENTION_BYTES = 1200 << 20 };

struct device {
    const struct device_ops *ops; /* the functions of ops.h for this machine */
    const struct device_driver *driver;
    enum device_kind kind;
    int asynchronous; /* 1: calls only enqueue */
    int planning;     /* 1: only for planning: computes sizes, runs nothing */
    const char *name; /* of the GPU, as its driver gives it; "CPU" */
    int index;        /* of the GPU among those visible */
    int threads;      /* CPU threads that a kernel, or the host's part of the work, may use */
    int any_order;    /* 1: a GPU may add up in the order in which its parts end, where that is
                         faster; the same inputs then give other last bits at each run */
    size_t attention_bytes; /* of scratch, for the parts in which a GPU does a reproducible backward
                               of attention; 0: DEVICE_ATTENTION_BYTES */
    unsigned replaced;      /* GPU: bits of enum device_part, of implementations not to be used */
    const char *level;      /* "generic", "avx2", "avx512", "amx"; "sm_90" and the like on a GPU */
    /* The loss makes logits in chunks of rows (graph/op_loss.c): of logits_bytes, which fit a CPU's
     * caches or fill a GPU; where that is few rows of a large vocabulary, of up to logits_most. */
    size_t logits_bytes, logits_most;
    int64_t head_dim_most;   /* of attention; 0: any */
    size_t reserve_bytes;    /* device memory beside what is planned: context, library handles */
    void *state;             /* of the device itself (primitive caches, handles) */
    int given_up;            /* 1: device_give_up() */
    int packs_products;      /* CPU: large products are trireme's, not the library's */
    struct run_queue *queue; /* CPU: how many of the threads find cores; NULL: all */
};

struct device_request {
    enum device_kind kind;
    int threads;            /* 0: as many as this process may use, divided by local_ranks */
    int local_ranks;        /* ranks that share this node (for the default above); 0 is 1 */
    const char *level;      /* NULL: the best this machine runs; tests name another */
    int index;              /* the GPU, as CUDA numbers those visible */
    int planning;           /* 1: only for planning: needs no GPU, runs nothing */
    int any_order;          /* as in struct device */
    size_t attention_bytes; /* the same */
    int spare_sms;     /* multiprocessors of a GPU that products leave to what is beside them */
    unsigned replaced; /* as in struct device */
};

/* Open a device.  Not collective.  Returns 0 and a device for device_close(), or
 * -1 with err set (an instruction set this machine lacks, OMP_NUM_THREADS is no number of threads;
 * CUDA: not built in, no GPU). */
int device_open(struct device **device, const struct device_request *request, struct error *err);

/* CPU threads that the host's part of the work should use now: `threads`, or fewer where other
 * processes want the cores.  For the thread that uses the device. */
int device_threads(const struct device *device);

/* Release everything of the device; NULL is allowed. */
void device_close(struct device *device);

/* For a GPU with work that never ends, for which cudaFree() and the like would wait.  From then on
 * device_free(), device_host_free() and device_close() release nothing, which the end of the
 * process does, and device_sync() fails. */
void device_give_up(struct device *device);

/* Instruction set i, from 0, of those compiled in that this machine runs, best first; NULL behind
 * the last. */
const char *device_cpu_level(int i);

/* Name of the library that multiplies matrices, with version ("oneDNN 2.6.3"). */
const char *device_gemm_library(void);

/* Which large products the best level of this machine makes by kernels of its own, "of bf16" or "of
 * bf16 and fp16"; NULL: none. */
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

/* Number of GPUs this process sees, 0 without a driver or in a build without CUDA; why not then
 * says so in a few words. */
int device_gpu_count(char why[128]);

/* Describe GPU index.  Returns 0, or -1 with err set.  Does not open it. */
int device_gpu_describe(int index, struct device_gpu *gpu, struct error *err);

/* May GPU index read the memory of GPU peer directly? */
int device_gpu_peers(int index, int peer);

/* Let the calling thread call libraries that work on GPU index; a thread that opened a device may
 * already. */
void device_gpu_use(int index);

/* device_check_fp8() of a GPU that is not opened. */
int device_gpu_check_fp8(const struct device_gpu *gpu, struct error *err);

/* One line of versions: driver, CUDA, cuBLASLt, cuDNN, as far as they are built in. */
const char *device_gpu_libraries(char text[256]);

/* ---- memory ---- */

/* Memory ops work on, counted in mem exactly; contents undefined.  Returns NULL with err naming
 * pool and size.  Free with device_free() of the same pool and bytes. */
void *device_alloc(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                   struct error *err);
void device_free(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes, void *block);

/* Host memory the device copies from and to at full speed and without waiting (pinned). */
void *device_host_alloc(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                        struct error *err);
void device_host_free(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                      void *block);

/* Memory of the whole device, and what is free of it now.  Returns 0, or -1 with err set; on the
 * CPU the node's. */
int device_memory(struct device *d, size_t *total_bytes, size_t *free_bytes, struct error *err);

/* Copy from or to any host memory, after all work issued before on COMPUTE; done on return.
 * Return 0, or -1 with err set. */
int device_upload(struct device *d, void *to, const void *from, size_t bytes, struct error *err);
int device_download(struct device *d, void *to, const void *from, size_t bytes, struct error *err);

/* Copy as part of a stream, without waiting, within the device's memory or between it and that of
 * device_host_alloc(). */
int device_copy_async(struct device *d, enum device_stream stream, void *to, const void *from,
                      size_t bytes, struct error *err);

/* Have function(data) called by some thread of the host, as part of a stream.  It may take its
 * time, but must not use the device, nor wait for what another such call does.  Where the device
 * has failed it is not called. */
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

/* Two operations on any stream of a GPU, which transfers need; they return without waiting, and
 * must not be called for a CPU.  The sum: recv[i] = (accumulate ? recv[i] : 0) + parts[0][i] +
 * parts[1][i] + ..., in that order, in fp32; part m begins at parts + m * stride elements of dtype
 * (fp32, bf16, fp16).  The cast: y = x in another format. */
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

/* An event to be recorded again and again; timed ones can be subtracted.  NULL with err set on
 * failure. */
struct device_event *device_event_create(struct device *d, enum device_event_kind kind,
                                         struct error *err);
void device_event_destroy(struct device *d, struct device_event *event); /* NULL allowed */

/* Put the event behind what stream has been given so far. */
int device_event_record(struct device *d, struct device_event *event, enum device_stream stream,
                        struct error *err);

/* What stream is given from now on waits for the event as last recorded (never: no wait). */
int device_event_wait(struct device *d, enum device_stream stream, struct device_event *event,
                      struct error *err);

/* 1 when all before the event is done, 0 when not yet, -1 with err set when the device failed. */
int device_event_done(struct device *d, struct device_event *event, struct error *err);

/* Nanoseconds from one timed event to another, both done. */
int64_t device_event_ns(struct device *d, struct device_event *from, struct device_event *to);

/* ---- which attention runs ---- */

/* Of the shapes and directions of attention met since the device was opened: how many a library
 * (cuDNN) does and how many the own kernels.  All 0 on CPUs. */
struct device_attention {
    int by_library, by_own;
    int has_library; /* the build has one */
    int from_text;   /* of by_library: those whose plan was read from text, as all should be */
    char why[1024];  /* what the library does not do though its type is one it takes, and why */
};
void device_attention(const struct device *d, struct device_attention *a);

struct attention;
/* Attention of this shape and pass will be run: begin to compile what a library needs for it,
 * which takes about a second, in a thread of its own; the first call waits for that thread.  a
 * (ops.h): as that call will have it, but its pointers are not looked at.  Not while calls are
 * recorded.  It cannot fail: what could not be begun is compiled by the first call.  Does nothing
 * on CPUs, and for what was begun or run before. */
void device_attention_prepare(struct device *d, const struct attention *a, enum device_pass pass);

/* "cudnn", "own" or "cudnn+own"; "" where none was met. */
const char *device_attention_name(const struct device *d);

/* Does its attention take heads of that many elements?  Returns 0, or -1 with err set. */
int device_check_head_dim(const struct device *d, int64_t head_dim, struct error *err);

/* Does it multiply in fp8 (struct gemm) at the speed of fp8?  CPUs count as such; of GPUs those of
 * compute capability 9.0 do, where the library takes scales of blocks.  A GPU that is only planned
 * for is said to.  Returns 0, or -1 with err (NULL allowed) set to what is lacking, in words to be
 * put behind "needs": "cuBLASLt 12.9 or newer, and this is cuBLASLt 12.4.5". */
int device_check_fp8(const struct device *d, struct error *err);

/* ---- recordings: ops enqueued once, replayed with one call (CUDA graphs) ---- */

struct device_recording;

/* Between these, ops on COMPUTE are recorded and not run; not on CPUs.  end: NULL with err set on
 * failure. */
int device_record_begin(struct device *d, struct error *err);
struct device_recording *device_record_end(struct device *d, struct error *err);
void device_recording_destroy(struct device *d, struct device_recording *recording);

/* Enqueue all of it on COMPUTE. */
int device_replay(struct device *d, struct device_recording *recording, struct error *err);

#endif
