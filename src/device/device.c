/* device.c - the functions of device.h: they count memory, check arguments, and call the driver of
 * the device's kind (driver.h). */
#include "device/device.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "device/cpu/run_queue.h"
#include "device/driver.h"

/* DEVICE_OPS() names every op: its ops, and the 4 members name, gemm, gemm_scratch and
 * attention_forms, are all there is in struct device_ops. */
#define ONE(op) +1
_Static_assert(sizeof(struct device_ops) == (4 DEVICE_OPS(ONE)) * sizeof(void *), "DEVICE_OPS()");

/* The drivers of each kind: to run, and to plan, which only computes sizes. */
static const struct {
    const struct device_driver *run, *plan;
} drivers[DEVICE_KINDS] = {
    [DEVICE_CPU] = {.run = &cpu_driver, .plan = &cpu_driver},
    [DEVICE_CUDA] = {.run = &cuda_driver, .plan = &cuda_planning_driver},
};

/* Is it a CPU, where all work is done when a call returns, so that there is nothing to wait for?
 * This asks the kind, not whether the driver has the function: if a GPU's driver lacked one, a wait
 * would be left out in silence. */
static int on_cpu(const struct device *d)
{
    return d->kind == DEVICE_CPU;
}

enum { THREADS_MOST = 4096 }; /* as run.threads */

/* Check OMP_NUM_THREADS, which may be a list; its first number is for the outermost loops.  OpenMP
 * itself ignores a text that is no number, and accepts any number of threads. */
static int check_variable(const char *text, struct error *err)
{
    char *end;
    long threads = strtol(text, &end, 10);
    end += strspn(end, " \t");
    if (end > text && (!*end || *end == ',') && threads > 0 && threads <= THREADS_MOST)
        return 0;
    return error_set(err, "OMP_NUM_THREADS is \"%.40s\": a whole number from 1 to %d is wanted",
                     text, THREADS_MOST);
}

/* The number of threads of a rank: OMP_NUM_THREADS if it is set, else the rank's share of the
 * cores. -1 with err set. */
static int default_threads(int local_ranks, struct error *err)
{
    const char *text = getenv("OMP_NUM_THREADS");
    if (text && *text)
        return check_variable(text, err) ? -1 : omp_get_max_threads();
    int threads = omp_get_num_procs() / (local_ranks > 0 ? local_ranks : 1);
    return threads > 0 ? threads : 1;
}

/* Check that OpenMP gives a kernel all threads: the library would leave out the parts of a product
 * that are the others', and say nothing. */
static int check_limit(int threads, struct error *err)
{
    if (threads <= omp_get_thread_limit())
        return 0;
    return error_set(err,
                     "OMP_THREAD_LIMIT is %d, and a rank has %d threads: leave it out, or give a "
                     "rank fewer threads (run.threads or OMP_NUM_THREADS)",
                     omp_get_thread_limit(), threads);
}

int device_open(struct device **device, const struct device_request *request, struct error *err)
{
    struct device *d = array_make(1, sizeof *d);
    *device = NULL;
    d->kind = request->kind;
    d->planning = request->planning;
    d->any_order = request->any_order;
    d->attention_bytes = request->attention_bytes;
    d->replaced = request->replaced;
    d->index = request->index;
    d->threads =
        request->threads > 0 ? request->threads : default_threads(request->local_ranks, err);
    d->driver = request->planning ? drivers[request->kind].plan : drivers[request->kind].run;
    if (d->threads < 0 || (!d->planning && check_limit(d->threads, err)) ||
        d->driver->open(d, request, err)) {
        free(d);
        return -1;
    }
    *device = d;
    return 0;
}

int device_threads(const struct device *d)
{
    return run_queue_threads(d);
}

void device_close(struct device *d)
{
    if (!d || d->given_up)
        return;
    d->driver->close(d);
    free(d);
}

void device_give_up(struct device *d)
{
    d->given_up = 1;
}

void *device_alloc(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                   struct error *err)
{
    size_t total, left;
    void *block = d->driver->alloc(d, bytes ? bytes : 1);
    if (block) {
        mem_count(mem, pool, bytes);
        return block;
    }
    if (device_memory(d, &total, &left, NULL))
        total = left = 0;
    error_set(err,
              "out of %s memory: %zu bytes for %s; %zu MiB of %zu MiB are free; trireme plan shows "
              "what takes how much, and settings that take less",
              on_cpu(d) ? "host" : "GPU", bytes, mem_pool_name(pool), left >> 20, total >> 20);
    return NULL;
}

void device_free(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes, void *block)
{
    if (!block)
        return;
    if (!d->given_up)
        d->driver->free(d, block);
    mem_uncount(mem, pool, bytes);
}

void *device_host_alloc(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                        struct error *err)
{
    void *block = d->driver->host_alloc(d, bytes ? bytes : 1);
    if (block)
        mem_count(mem, pool, bytes);
    else
        error_set(err, "out of host memory the GPU can reach: %zu bytes for %s", bytes,
                  mem_pool_name(pool));
    return block;
}

void device_host_free(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                      void *block)
{
    if (!block)
        return;
    if (!d->given_up)
        d->driver->host_free(d, block);
    mem_uncount(mem, pool, bytes);
}

int device_memory(struct device *d, size_t *total_bytes, size_t *free_bytes, struct error *err)
{
    return d->driver->memory(d, total_bytes, free_bytes, err);
}

int device_upload(struct device *d, void *to, const void *from, size_t bytes, struct error *err)
{
    return bytes ? d->driver->copy(d, DEVICE_COMPUTE, to, from, bytes, DEVICE_WAIT, err) : 0;
}

int device_download(struct device *d, void *to, const void *from, size_t bytes, struct error *err)
{
    return bytes ? d->driver->copy(d, DEVICE_COMPUTE, to, from, bytes, DEVICE_WAIT, err) : 0;
}

int device_copy_async(struct device *d, enum device_stream stream, void *to, const void *from,
                      size_t bytes, struct error *err)
{
    return bytes ? d->driver->copy(d, stream, to, from, bytes, DEVICE_ENQUEUE, err) : 0;
}

int device_call(struct device *d, enum device_stream stream, void (*function)(void *data),
                void *data, struct error *err)
{
    return d->driver->call(d, stream, function, data, err);
}

void *device_stream_native(struct device *d, enum device_stream stream)
{
    return d->driver->stream_native ? d->driver->stream_native(d, stream) : NULL;
}

void device_ops_on(struct device *d, enum device_stream stream)
{
    if (d->driver->ops_on)
        d->driver->ops_on(d, stream);
}

int device_stream_idle(struct device *d, enum device_stream stream, struct error *err)
{
    return d->driver->stream_idle ? d->driver->stream_idle(d, stream, err) : 1;
}

void device_sum_parts(struct device *d, enum device_stream stream, float *recv, enum dtype dtype,
                      const void *parts, int count, int64_t stride, int64_t elems, int accumulate)
{
    d->driver->sum_parts(d, stream, recv, dtype, parts, count, stride, elems, accumulate);
}

void device_cast(struct device *d, enum device_stream stream, enum dtype to, void *y,
                 enum dtype from, const void *x, int64_t elems)
{
    d->driver->cast(d, stream, to, y, from, x, elems);
}

int device_sync(struct device *d, struct error *err)
{
    if (d->given_up)
        return error_set(err, "GPU %d has work that does not end", d->index);
    return on_cpu(d) ? 0 : d->driver->sync(d, err);
}

int device_check(struct device *d, struct error *err)
{
    return on_cpu(d) ? 0 : d->driver->check(d, err);
}

void device_attention(const struct device *d, struct device_attention *a)
{
    *a = (struct device_attention){0};
    if (d->driver->attention)
        d->driver->attention(d, a);
}

void device_attention_prepare(struct device *d, const struct attention *a, enum device_pass pass)
{
    if (d->driver->attention_prepare)
        d->driver->attention_prepare(d, a, pass);
}

const char *device_attention_name(const struct device *d)
{
    struct device_attention a;
    device_attention(d, &a);
    return a.by_library && a.by_own ? "cudnn+own" : a.by_library ? "cudnn" : a.by_own ? "own" : "";
}

int device_check_head_dim(const struct device *d, int64_t head_dim, struct error *err)
{
    if (!d->head_dim_most || head_dim <= d->head_dim_most)
        return 0;
    return error_set(err,
                     "model.head_dim is %lld; GPUs take %lld at most: change it, or device=cpu",
                     (long long)head_dim, (long long)d->head_dim_most);
}

int device_check_fp8(const struct device *d, struct error *err)
{
    return d->driver->check_fp8 ? d->driver->check_fp8(d, err) : 0;
}

struct device_event *device_event_create(struct device *d, enum device_event_kind kind,
                                         struct error *err)
{
    return d->driver->event_create(d, kind, err);
}

void device_event_destroy(struct device *d, struct device_event *event)
{
    if (event)
        d->driver->event_destroy(d, event);
}

int device_event_record(struct device *d, struct device_event *event, enum device_stream stream,
                        struct error *err)
{
    return d->driver->event_record(d, event, stream, err);
}

int device_event_wait(struct device *d, enum device_stream stream, struct device_event *event,
                      struct error *err)
{
    return on_cpu(d) ? 0 : d->driver->event_wait(d, stream, event, err);
}

int device_event_done(struct device *d, struct device_event *event, struct error *err)
{
    return on_cpu(d) ? 1 : d->driver->event_done(d, event, err);
}

int64_t device_event_ns(struct device *d, struct device_event *from, struct device_event *to)
{
    return d->driver->event_ns(d, from, to);
}

int device_record_begin(struct device *d, struct error *err)
{
    return d->driver->record_begin(d, err);
}

struct device_recording *device_record_end(struct device *d, struct error *err)
{
    return d->driver->record_end(d, err);
}

void device_recording_destroy(struct device *d, struct device_recording *recording)
{
    if (recording)
        d->driver->recording_destroy(d, recording);
}

int device_replay(struct device *d, struct device_recording *recording, struct error *err)
{
    return d->driver->replay(d, recording, err);
}
