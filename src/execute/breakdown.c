/* breakdown.c - see breakdown.h. */
#include "execute/breakdown.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"

/* A point of the compute stream. */
struct breakdown_event {
    struct device_event *at;
    enum breakdown_kind kind; /* begins here */
};

/* An event is created when a step needs more of them than any before. */
static int put_event(struct breakdown *b, enum breakdown_kind kind, struct error *err)
{
    b->event = array_grow(b->event, b->events, &b->capacity, sizeof *b->event);
    struct breakdown_event *event = &b->event[b->events];
    event->kind = kind;
    if (!event->at && !(event->at = device_event_create(b->device, DEVICE_EVENT_TIMED, err)))
        return -1;
    b->events++;
    return device_event_record(b->device, event->at, DEVICE_COMPUTE, err);
}

int breakdown_begin(struct breakdown *b, struct device *device, struct error *err)
{
    memset(b->ms, 0, sizeof b->ms);
    b->device = device;
    b->kind = BREAKDOWN_OTHER;
    b->events = 0;
    b->since_ns = clock_ns();
    return device->asynchronous ? put_event(b, b->kind, err) : 0;
}

int breakdown_enter(struct breakdown *b, enum breakdown_kind kind, struct error *err)
{
    if (!b || b->kind == kind)
        return 0;
    int64_t now_ns = clock_ns();
    if (!b->device->asynchronous)
        b->ms[b->kind] += (double)(now_ns - b->since_ns) / 1e6;
    b->kind = kind;
    b->since_ns = now_ns;
    return b->device->asynchronous ? put_event(b, kind, err) : 0;
}

int breakdown_end(struct breakdown *b, struct error *err)
{
    if (b && b->device->asynchronous)
        return put_event(b, BREAKDOWN_OTHER, err);
    return breakdown_enter(b, BREAKDOWN_KINDS, err);
}

void breakdown_read(struct breakdown *b)
{
    for (int i = 0; i + 1 < b->events; i++)
        b->ms[b->event[i].kind] +=
            (double)device_event_ns(b->device, b->event[i].at, b->event[i + 1].at) / 1e6;
    b->events = 0;
}

void breakdown_free(struct breakdown *b)
{
    for (int i = 0; i < b->capacity; i++)
        if (b->event[i].at)
            device_event_destroy(b->device, b->event[i].at);
    free(b->event);
    *b = (struct breakdown){0};
}
