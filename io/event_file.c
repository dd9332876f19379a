/* event_file.c - see event_file.h. */
#include "io/event_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Fields of the messages, with the number of the wire type: 0 a varint, 1 eight bytes, 2 a length
 * and bytes, 5 four bytes. */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3 | 0,
    EVENT_FILE_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION_LOG = 7 << 3 | 2,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5,
    SESSION_STATUS = 1 << 3 | 0,
    SESSION_START = 1
};

/* A message that is written. */
struct message {
    uint8_t *bytes;
    int count, capacity;
};

struct event_file {
    FILE *out;
    char *path;
    struct message event, summary, value; /* used again and again */
};

uint32_t event_file_crc(const void *data, size_t bytes)
{
    const uint32_t polynomial = 0x82f63b78; /* reflected */
    const uint8_t *at = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return ~crc;
}

static uint32_t masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = event_file_crc(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- messages ---- */

static void put_byte(struct message *m, int byte)
{
    m->bytes = array_grow(m->bytes, m->count, &m->capacity, 1);
    m->bytes[m->count++] = (uint8_t)byte;
}

/* Seven bits a byte, the lowest first; all but the last have the highest bit set. */
static void put_varint(struct message *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_byte(m, (int)(value & 0x7f) | 0x80);
    put_byte(m, (int)value);
}

/* The lowest byte first. */
static void put_fixed(struct message *m, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_byte(m, (int)(value >> 8 * i & 0xff));
}

static void put_bytes(struct message *m, int field, const void *data, size_t bytes)
{
    put_varint(m, (uint64_t)field);
    put_varint(m, bytes);
    for (size_t i = 0; i < bytes; i++)
        put_byte(m, ((const uint8_t *)data)[i]);
}

static void begin_event(struct event_file *f, double wall_s, int64_t step)
{
    uint64_t bits;
    memcpy(&bits, &wall_s, sizeof bits);
    f->event.count = 0;
    put_varint(&f->event, EVENT_WALL_TIME);
    put_fixed(&f->event, bits, 8);
    if (!step)
        return; /* what is absent is 0 */
    put_varint(&f->event, EVENT_STEP);
    put_varint(&f->event, (uint64_t)step);
}

static void put_value(struct event_file *f, const struct event_file_value *value)
{
    uint32_t bits;
    memcpy(&bits, &value->value, sizeof bits);
    f->value.count = 0;
    put_bytes(&f->value, VALUE_TAG, value->tag, strlen(value->tag));
    put_varint(&f->value, VALUE_SIMPLE);
    put_fixed(&f->value, bits, 4);
    put_bytes(&f->summary, SUMMARY_VALUE, f->value.bytes, (size_t)f->value.count);
}

/* ---- records ---- */

static int failed(const struct event_file *f, struct error *err)
{
    return error_errno(err, "cannot write %s", f->path);
}

static int write_event(struct event_file *f, struct error *err)
{
    struct message around = {0};
    size_t bytes = (size_t)f->event.count;
    put_fixed(&around, bytes, 8);
    put_fixed(&around, masked_crc(around.bytes, 8), 4);
    put_fixed(&around, masked_crc(f->event.bytes, bytes), 4);
    int ok = fwrite(around.bytes, 12, 1, f->out) == 1 &&
             fwrite(f->event.bytes, bytes, 1, f->out) == 1 &&
             fwrite(around.bytes + 12, 4, 1, f->out) == 1;
    free(around.bytes);
    return ok ? 0 : failed(f, err);
}

int event_file_create(struct event_file **file, const char *path, double wall_s, int64_t step,
                      struct error *err)
{
    static const char version[] = "brain.Event:2";
    FILE *out = fopen(path, "wb");
    *file = NULL;
    if (!out)
        return error_errno(err, "cannot create %s", path);
    struct event_file *f = array_make(1, sizeof *f);
    f->out = out;
    f->path = array_text(path);
    begin_event(f, wall_s, 0);
    put_bytes(&f->event, EVENT_FILE_VERSION, version, sizeof version - 1);
    int rc = write_event(f, err);
    begin_event(f, wall_s, step);
    const uint8_t start[] = {SESSION_STATUS, SESSION_START};
    put_bytes(&f->event, EVENT_SESSION_LOG, start, sizeof start);
    if (rc || write_event(f, err)) {
        event_file_close(f, NULL);
        return -1;
    }
    *file = f;
    return 0;
}

int event_file_add(struct event_file *f, double wall_s, int64_t step,
                   const struct event_file_value *values, int count, struct error *err)
{
    f->summary.count = 0;
    for (int i = 0; i < count; i++)
        put_value(f, &values[i]);
    begin_event(f, wall_s, step);
    put_bytes(&f->event, EVENT_SUMMARY, f->summary.bytes, (size_t)f->summary.count);
    return write_event(f, err);
}

int event_file_flush(struct event_file *f, struct error *err)
{
    return fflush(f->out) ? failed(f, err) : 0;
}

int event_file_close(struct event_file *f, struct error *err)
{
    if (!f)
        return 0;
    int rc = fclose(f->out) ? failed(f, err) : 0;
    free(f->path);
    free(f->event.bytes);
    free(f->summary.bytes);
    free(f->value.bytes);
    free(f);
    return rc;
}
