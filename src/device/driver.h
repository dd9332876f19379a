/* driver.h - the row of a kind of device: what device.h calls.
 *
 * Private to device/.  Functions mean what their namesakes in device.h say; counting memory,
 * checking arguments and NULL are done there.
 */
#ifndef TRIREME_DEVICE_DRIVER_H
#define TRIREME_DEVICE_DRIVER_H

#include "device/device.h"
#include "device/ops.h"

/* Does a copy return when it is enqueued, or when it is done? */
enum device_wait { DEVICE_ENQUEUE, DEVICE_WAIT };

struct device_driver {
    int (*open)(struct device *d, const struct device_request *request, struct error *err);
    void (*close)(struct device *d);
    void *(*alloc)(struct device *d, size_t bytes); /* NULL: out of memory */
    void (*free)(struct device *d, void *block);
    void *(*host_alloc)(struct device *d, size_t bytes);
    void (*host_free)(struct device *d, void *block);
    int (*memory)(struct device *d, size_t *total_bytes, size_t *free_bytes, struct error *err);
    /* Either side may be the host's. */
    int (*copy)(struct device *d, enum device_stream stream, void *to, const void *from,
                size_t bytes, enum device_wait wait, struct error *err);
    int (*call)(struct device *d, enum device_stream stream, void (*function)(void *), void *data,
                struct error *err);
    /* These four are NULL on CPUs. */
    void *(*stream_native)(struct device *d, enum device_stream stream);
    int (*stream_idle)(struct device *d, enum device_stream stream, struct error *err);
    void (*sum_parts)(struct device *d, enum device_stream stream, float *recv, enum dtype dtype,
                      const void *parts, int count, int64_t stride, int64_t elems, int accumulate);
    void (*cast)(struct device *d, enum device_stream stream, enum dtype to, void *y,
                 enum dtype from, const void *x, int64_t elems);
    int (*sync)(struct device *d, struct error *err);
    int (*check)(struct device *d, struct error *err);
    struct device_event *(*event_create)(struct device *d, enum device_event_kind kind,
                                         struct error *err);
    void (*event_destroy)(struct device *d, struct device_event *event);
    int (*event_record)(struct device *d, struct device_event *event, enum device_stream stream,
                        struct error *err);
    int (*event_wait)(struct device *d, enum device_stream stream, struct device_event *event,
                      struct error *err);
    int (*event_done)(struct device *d, struct device_event *event, struct error *err);
    int64_t (*event_ns)(struct device *d, struct device_event *from, struct device_event *to);
    /* These four are NULL on CPUs, where nothing is recorded. */
    int (*record_begin)(struct device *d, struct error *err);
    struct device_recording *(*record_end)(struct device *d, struct error *err);
    void (*recording_destroy)(struct device *d, struct device_recording *recording);
    int (*replay)(struct device *d, struct device_recording *recording, struct error *err);
    void (*attention)(const struct device *d, struct device_attention *a); /* NULL on CPUs */
};

extern const struct device_driver cpu_driver, cuda_driver;

/* The planning driver of GPUs, in every build: opens, computes sizes, closes; nothing else may be
 * called. */
extern const struct device_driver cuda_planning_driver;

#endif
