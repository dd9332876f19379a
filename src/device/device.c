/* device.c - the kinds of device, and what they have in common: counting, arguments. */
#include "device/device.h"

#include <stdlib.h>

#include "device/driver.h"

static const struct device_driver *const drivers[DEVICE_KINDS] = {
    [DEVICE_CPU] = &cpu_driver,
    [DEVICE_CUDA] = &cuda_driver,
};

/* Those that only tell sizes; the CPU's is one and the same. */
static const struct device_driver *const planners[DEVICE_KINDS] = {
    [DEVICE_CPU] = &cpu_driver,
    [DEVICE_CUDA] = &cuda_planning_driver,
};

int device_open(struct device **device, const struct device_request *request, struct error *err)
{
    struct device *d = calloc(1, sizeof *d);
    *device = NULL;
    if (!d)
        return error_set(err, "out of memory: a device");
    d->kind = request->kind;
    d->planning = request->planning;
    d->driver = (request->planning ? planners : drivers)[request->kind];
    if (d->driver->open(d, request, err)) {
        free(d);
        return -1;
    }
    *device = d;
    return 0;
}

void device_close(struct device *d)
{
    if (!d)
        return;
    d->driver->close(d);
    free(d);
}

int device_gpu_built_in(void)
{
    return cuda_discovery.built_in;
}

int device_gpu_count(char why[128])
{
    char unused[128];
    return cuda_discovery.count(why ? why : unused);
}

int device_gpu_describe(int index, struct device_gpu *gpu, struct error *err)
{
    return cuda_discovery.describe(index, gpu, err);
}

int device_gpu_peers(int index, int peer)
{
    return cuda_discovery.peers(index, peer);
}

const char *device_gpu_libraries(char text[256])
{
    return cuda_discovery.libraries(text);
}

static void *counted(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                     void *block, const char *where, struct error *err)
{
    size_t total, left;
    if (block) {
        mem_count(mem, pool, bytes);
        return block;
    }
    if (device_memory(d, &total, &left, NULL))
        total = left = 0;
    error_set(err, "out of %s memory: %zu bytes for %s; %zu MiB of %zu MiB are free", where, bytes,
              mem_pool_name(pool), left >> 20, total >> 20);
    return NULL;
}

void *device_alloc(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes,
                   struct error *err)
{
    void *block = d->driver->alloc(d, bytes ? bytes : 1);
    return counted(d, mem, pool, bytes, block, d->kind == DEVICE_CPU ? "host" : "GPU", err);
}

void device_free(struct device *d, struct mem *mem, enum mem_pool pool, size_t bytes, void *block)
{
    if (!block)
        return;
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
    d->driver->host_free(d, block);
    mem_uncount(mem, pool, bytes);
}

int device_memory(struct device *d, size_t *total_bytes, size_t *free_bytes, struct error *err)
{
    return d->driver->memory(d, total_bytes, free_bytes, err);
}

enum { ENQUEUE, WAIT };

int device_upload(struct device *d, void *to, const void *from, size_t bytes, struct error *err)
{
    return bytes ? d->driver->copy(d, DEVICE_COMPUTE, to, from, bytes, WAIT, err) : 0;
}

int device_download(struct device *d, void *to, const void *from, size_t bytes, struct error *err)
{
    return bytes ? d->driver->copy(d, DEVICE_COMPUTE, to, from, bytes, WAIT, err) : 0;
}

int device_upload_async(struct device *d, void *to, const void *from, size_t bytes,
                        struct error *err)
{
    return bytes ? d->driver->copy(d, DEVICE_COMPUTE, to, from, bytes, ENQUEUE, err) : 0;
}

int device_download_async(struct device *d, void *to, const void *from, size_t bytes,
                          struct error *err)
{
    return bytes ? d->driver->copy(d, DEVICE_COMPUTE, to, from, bytes, ENQUEUE, err) : 0;
}

int device_copy_async(struct device *d, enum device_stream stream, void *to, const void *from,
                      size_t bytes, struct error *err)
{
    return bytes ? d->driver->copy(d, stream, to, from, bytes, ENQUEUE, err) : 0;
}

int device_call(struct device *d, enum device_stream stream, void (*function)(void *data),
                void *data, struct error *err)
{
    return d->driver->call(d, stream, function, data, err);
}

int device_sync(struct device *d, struct error *err)
{
    return d->driver->sync(d, err);
}

int device_check(struct device *d, struct error *err)
{
    return d->driver->check(d, err);
}

void device_attention(const struct device *d, struct device_attention *a)
{
    *a = (struct device_attention){0};
    if (d->driver->attention)
        d->driver->attention(d, a);
}

const char *device_attention_name(const struct device *d)
{
    struct device_attention a;
    device_attention(d, &a);
    return a.by_library && a.by_own ? "cudnn+own" : a.by_library ? "cudnn" : a.by_own ? "own" : "";
}

struct device_mark *device_mark_create(struct device *d, int timed, struct error *err)
{
    return d->driver->mark_create(d, timed, err);
}

void device_mark_destroy(struct device *d, struct device_mark *mark)
{
    if (mark)
        d->driver->mark_destroy(d, mark);
}

int device_mark_record(struct device *d, struct device_mark *mark, enum device_stream stream,
                       struct error *err)
{
    return d->driver->mark_record(d, mark, stream, err);
}

int device_mark_wait(struct device *d, enum device_stream stream, struct device_mark *mark,
                     struct error *err)
{
    return d->driver->mark_wait(d, stream, mark, err);
}

int device_mark_done(struct device *d, struct device_mark *mark, struct error *err)
{
    return d->driver->mark_done(d, mark, err);
}

int64_t device_mark_ns(struct device *d, struct device_mark *from, struct device_mark *to)
{
    return d->driver->mark_ns(d, from, to);
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
