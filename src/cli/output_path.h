/* output_path.h - checking where tokenize writes: it may replace a file of the same kind, never a
 * text. */
#ifndef TRIREME_CLI_OUTPUT_PATH_H
#define TRIREME_CLI_OUTPUT_PATH_H

#include "cli/inputs.h"

enum output_path_kind { OUTPUT_TOKENS, OUTPUT_TOKENIZER };

/* Check that a file of this kind may be written to path (NULL: none is wanted).  A file that is
 * there may be replaced if it is not an input, and is empty or of this kind: an HDF5 file, or JSON
 * that is read as a tokenizer.  Returns 0, or -1 with err set. */
int output_path_check(const char *path, enum output_path_kind kind, const struct inputs *inputs,
                      struct error *err);

/* Make the folders of a file that are missing below the working directory.  Elsewhere (an absolute
 * path, or one with "..") a missing folder is an error: it is more likely a mistake.  Returns 0, or
 * -1 with err set. */
int output_path_make_folder(const char *path, struct error *err);

/* Do two paths name the same file in the same folder, whether or not the file exists? */
int output_path_is(const char *a, const char *b);

#endif
