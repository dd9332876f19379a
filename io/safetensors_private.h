/* safetensors_private.h - what the files that read and write safetensors share. */
#ifndef TRIREME_IO_SAFETENSORS_PRIVATE_H
#define TRIREME_IO_SAFETENSORS_PRIVATE_H

#include "io/safetensors.h"

enum { SAFETENSORS_LENGTH = 8 }; /* bytes of the number before a header, which is its length */

/* Returns what files call a dtype, "BF16"; NULL: it cannot be read, and is not written. */
const char *safetensors_format(enum dtype dtype);

#endif
