/* little_endian.h - numbers as files have them, the lowest byte first, at any address. */
#ifndef TRIREME_IO_LITTLE_ENDIAN_H
#define TRIREME_IO_LITTLE_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Return the number of 4 or 8 bytes. */
static inline uint32_t le32(const void *bytes)
{
    uint32_t number;
    memcpy(&number, bytes, sizeof number);
    return le32toh(number);
}

static inline uint64_t le64(const void *bytes)
{
    uint64_t number;
    memcpy(&number, bytes, sizeof number);
    return le64toh(number);
}

#endif
