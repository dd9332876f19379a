/* tokenizer_file.h - opening a tokenizer.json and the files beside it. */
#ifndef TRIREME_IO_TOKENIZER_FILE_H
#define TRIREME_IO_TOKENIZER_FILE_H

#include "io/tokenizer_private.h"

/* Fill tokenizer, whose roles and end_of_text are -1, from a tokenizer.json or the folder that
 * holds one.  Returns 0, or -1 with err naming the file; in both cases tokenizer_close() frees it.
 */
int tokenizer_file_open(struct tokenizer *tokenizer, const char *path, struct error *err);

/* tokenizer_roles.c: set roles, end_of_text and the tokens that stop generation, from the files
 * beside tokenizer->path or from well-known names.  Returns 0, or -1 with err naming a file that is
 * not JSON. */
int tokenizer_roles_read(struct tokenizer *tokenizer, struct error *err);

#endif
