/* event_file.h - event files, which TensorBoard reads: curves of named numbers over steps.
 *
 * A file is a row of records (TFRecord).  A record has the length of its data in 8 bytes, a
 * checksum of these, the data, and a checksum of the data.  The data are an Event in the encoding
 * of Protocol Buffers (tensorflow/core/util/event.proto), of which these fields are used:
 *
 *     wall_time 1: double     step 2: int64     file_version 3: "brain.Event:2", in the first event
 *     summary 5: { value 1: { tag 1: text, simple_value 2: float }, ... }
 *     session_log 7: { status 1: START 1 }      what other files say of this step and of later
 *                                               ones no longer counts
 *
 * A checksum is the CRC-32C, turned right by 15 bits, plus 0xa282ead8.
 */
#ifndef TRIREME_IO_EVENT_FILE_H
#define TRIREME_IO_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct event_file;

/* Create the file at path, or replace it, and say from which step on its events are.  Returns 0 and
 * a file for event_file_close(), or -1 with err set. */
int event_file_create(struct event_file **file, const char *path, double wall_s, int64_t step,
                      struct error *err);

/* A number of a step. */
struct event_file_value {
    const char *tag; /* the name of its curve */
    float value;
};

/* Add the numbers of a step, at seconds since 1970.  Returns 0, or -1 with err set. */
int event_file_add(struct event_file *file, double wall_s, int64_t step,
                   const struct event_file_value *values, int count, struct error *err);

/* Write what was added so far, so that readers see it.  Returns 0, or -1 with err set. */
int event_file_flush(struct event_file *file, struct error *err);

/* Write all, close and free the file; NULL allowed.  Returns 0, or -1 with err set. */
int event_file_close(struct event_file *file, struct error *err);

/* Returns the CRC-32C (Castagnoli; RFC 3720, B.4) of some bytes. */
uint32_t event_file_crc(const void *data, size_t bytes);

#endif
