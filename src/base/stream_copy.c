/* stream_copy.c - see stream_copy.h. */
#include "base/stream_copy.h"

#include <stdint.h>
#include <string.h>

enum { LINE_BYTES = 64, CHUNK_BYTES = 512, AHEAD_BYTES = 2048 };

#ifdef __SSE2__
#include <emmintrin.h>

static void store(char *to, const char *from)
{
    _mm_stream_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from));
}

/* Ordinary stores may not pass streamed ones that come before. */
static void end_stores(void)
{
    _mm_sfence();
}
#else
static void store(char *to, const char *from)
{
    memcpy(to, from, 16);
}

static void end_stores(void)
{
}
#endif

/* Copy `bytes` bytes and prefetch those that lie `ahead` after them; ahead 0: none. */
static inline void copy(char *to, const char *from, size_t bytes, size_t ahead)
{
    enum { STORE_BYTES = 16 };
    size_t at = (size_t)(-(uintptr_t)to % STORE_BYTES);
    at = at < bytes ? at : bytes;
    memcpy(to, from, at);
    for (; bytes - at >= CHUNK_BYTES; at += CHUNK_BYTES) {
        for (size_t i = 0; ahead && i < CHUNK_BYTES; i += LINE_BYTES)
            __builtin_prefetch(from + at + ahead + i);
        for (size_t i = 0; i < CHUNK_BYTES; i += STORE_BYTES)
            store(to + at + i, from + at + i);
    }
    memcpy(to + at, from + at, bytes - at);
    end_stores();
}

void stream_copy(void *to, const void *from, size_t bytes)
{
    copy(to, from, bytes, 0);
}

void stream_copy_ahead(void *to, const void *from, size_t bytes)
{
    copy(to, from, bytes, AHEAD_BYTES);
}
