/* breakdown.c - see breakdown.h. */
#include "execute/breakdown.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"

/* A point of the compute stream. */
struct breakdown_mark {
    struct device_event *at;
    enum breakdown_kind kind; /* begins here */
};

/* Marks are made when a step needs more than any before. */
static int put_mark(struct breakdown *b, enum breakdown_kind kind, struct error *err)
{
    b->mark = array_grow(b->mark, b->marks, &b->capacity, sizeof *b->mark);
    struct breakdown_mark *mark = &b->mark[b->marks];
    mark->kind = kind;
    if (!mark->at && !(mark->at = device_event_create(b->device, 1, err)))
        return -1;
    b->marks++;
    return device_event_record(b->device, mark->at, DEVICE_COMPUTE, err);
}

int breakdown_begin(struct breakdown *b, struct device *device, struct error *err)
{
    memset(b->ms, 0, sizeof b->ms);
    b->device = device;
    b->kind = BREAKDOWN_OTHER;
    b->marks = 0;
    b->since_ns = clock_ns();
    return device->asynchronous ? put_mark(b, b->kind, err) : 0;
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
    return b->device->asynchronous ? put_mark(b, kind, err) : 0;
}

int breakdown_end(struct breakdown *b, struct error *err)
{
    if (b && b->device->asynchronous)
        return put_mark(b, BREAKDOWN_OTHER, err);
    return breakdown_enter(b, BREAKDOWN_KINDS, err);
}

void breakdown_read(struct breakdown *b)
{
    for (int i = 0; i + 1 < b->marks; i++)
        b->ms[b->mark[i].kind] +=
            (double)device_event_ns(b->device, b->mark[i].at, b->mark[i + 1].at) / 1e6;
    b->marks = 0;
}

void breakdown_free(struct breakdown *b)
{
    for (int i = 0; i < b->capacity; i++)
        if (b->mark[i].at)
            device_event_destroy(b->device, b->mark[i].at);
    free(b->mark);
    *b = (struct breakdown){0};
}
