/* tokenizer_file.h - a tokenizer.json to a tokenizer. */
#ifndef TRIREME_IO_TOKENIZER_FILE_H
#define TRIREME_IO_TOKENIZER_FILE_H

#include "io/tokenizer_private.h"

/* Fill tokenizer, whose roles and end_of_text are -1, from a file or the folder that holds it.
 * Returns 0, or -1 with err naming the file; what was made is freed by tokenizer_close(). */
int tokenizer_file_open(struct tokenizer *tokenizer, const char *path, struct error *err);

/* tokenizer_roles.c: roles, end_of_text and stops, from the files beside tokenizer->path or from
 * names.  Returns 0, or -1 with err naming one of those files, which is none of JSON. */
int tokenizer_roles_read(struct tokenizer *tokenizer, struct error *err);

#endif
