/* stream_copy.h - copies of memory that nobody reads soon.
 *
 * Ordinary stores read the line they write to into the caches first, which takes a third of the
 * memory's time in a copy, and displaces what will be read.
 */
#ifndef TRIREME_BASE_STREAM_COPY_H
#define TRIREME_BASE_STREAM_COPY_H

#include <stddef.h>

/* Copy `bytes` bytes, which do not overlap, past the caches where the processor can, else as
 * memcpy() does. */
void stream_copy(void *to, const void *from, size_t bytes);

/* The same of memory that another core wrote, which is loaded ahead: processors do not load early
 * enough by themselves what is in another core's cache or in memory. */
void stream_copy_ahead(void *to, const void *from, size_t bytes);

#endif
