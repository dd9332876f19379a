/* tokens_format.h - what is inside token files, shared by their reader and writer. */
#ifndef TRIREME_IO_TOKENS_FORMAT_H
#define TRIREME_IO_TOKENS_FORMAT_H

#include "io/h5.h"

#define TOKENS_DATASET   "tokens"
#define TOKENS_DOCUMENTS "documents"
#define TOKENS_MASK      "loss_mask"

#define TOKENS_CHAT_TEMPLATE "chat_template" /* attribute */

/* Formats: without checksums, and with those of seal.h. */
enum { TOKENS_PLAIN = 1, TOKENS_SEALED = 2 };

/* Where the datasets lie in the file. */
struct tokens_parts {
    struct h5_dataset tokens, documents, mask;
};

#endif
