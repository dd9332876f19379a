/* driver.h - the table of functions that each kind of device has, which device.c calls.
 *
 * Private to device/.  A member has the type and the meaning of its namesake in device.h, except
 * where it is written out here.  device.c counts memory and checks arguments before it calls one.
 */
#ifndef TRIREME_DEVICE_DRIVER_H
#define TRIREME_DEVICE_DRIVER_H

#include "device/device.h"
#include "device/ops.h"
#include "device/product.h"
#include "device/shape_check.h"

/* Does a copy return when it is enqueued, or when it is done? */
enum device_wait { DEVICE_ENQUEUE, DEVICE_WAIT };

struct device_driver {
    /* Set up d, in which device_open() has filled in what it takes from the request, and set ops,
     * name, level and state.  Returns 0, or -1 with err set; close() is not called then. */
    int (*open)(struct device *d, const struct device_request *request, struct error *err);
    void (*close)(struct device *d);
    void *(*alloc)(struct device *d, size_t bytes); /* NULL: out of memory */
    void (*free)(struct device *d, void *block);
    void *(*host_alloc)(struct device *d, size_t bytes);
    void (*host_free)(struct device *d, void *block);
    __typeof__(device_memory) *memory;

    /* Copy as part of stream; `to` and `from` may each be the device's or the host's. */
    int (*copy)(struct device *d, enum device_stream stream, void *to, const void *from,
                size_t bytes, enum device_wait wait, struct error *err);
    __typeof__(device_call) *call;

    __typeof__(device_event_create) *event_create;
    __typeof__(device_event_destroy) *event_destroy;
    __typeof__(device_event_record) *event_record;
    __typeof__(device_event_ns) *event_ns;

    /* These are NULL in the CPU's row: there the work of a call is done when it returns, and
     * nothing is recorded.  Where check_fp8 is NULL, products in fp8 are always offered. */
    __typeof__(device_stream_native) *stream_native;
    __typeof__(device_ops_on) *ops_on;
    __typeof__(device_stream_idle) *stream_idle;
    __typeof__(device_sum_parts) *sum_parts;
    __typeof__(device_cast) *cast;
    __typeof__(device_sync) *sync;
    __typeof__(device_check) *check;
    __typeof__(device_event_wait) *event_wait;
    __typeof__(device_event_done) *event_done;
    __typeof__(device_record_begin) *record_begin;
    __typeof__(device_record_end) *record_end;
    __typeof__(device_recording_destroy) *recording_destroy;
    __typeof__(device_replay) *replay;
    __typeof__(device_attention) *attention;
    __typeof__(device_attention_prepare) *attention_prepare;
    __typeof__(device_check_fp8) *check_fp8;
    __typeof__(device_products_library) *products_library;
    __typeof__(device_products_note) *products_note;
    __typeof__(device_products_noted) *products_noted;
    __typeof__(device_product_shape) *product_shape;
    __typeof__(device_product_tune) *product_tune;
    __typeof__(device_product_take) *product_take;
    __typeof__(device_shapes_noted) *shapes_noted;
    __typeof__(device_shape) *shape;
    __typeof__(device_shape_check) *shape_check;
    __typeof__(device_shape_replace) *shape_replace;
};

extern const struct device_driver cpu_driver, cuda_driver;

/* The planning driver of GPUs, in every build: opens, computes sizes, closes; nothing else may be
 * called. */
extern const struct device_driver cuda_planning_driver;

#endif
