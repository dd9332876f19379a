/* output_path.h - where tokenize may write: over a file of the same kind, and never over a text. */
#ifndef TRIREME_CLI_OUTPUT_PATH_H
#define TRIREME_CLI_OUTPUT_PATH_H

#include "cli/inputs.h"

enum output_path_kind { OUTPUT_TOKENS, OUTPUT_TOKENIZER };

/* May a file of this name (NULL: none is wanted) and kind be written?  What is there may be
 * replaced if it is none of the inputs, and is empty or of that kind: an HDF5 file, or JSON that
 * reads as a tokenizer.  Returns 0, or -1 with err set. */
int output_path_check(const char *path, enum output_path_kind kind, const struct inputs *inputs,
                      struct error *err);

/* Make the folder for a file: below the working directory whatever is missing; elsewhere a missing
 * folder is more likely a mistake, and an error.  Returns 0, or -1 with err set. */
int output_path_make_folder(const char *path, struct error *err);

/* Are these two names of one place in one folder? */
int output_path_is(const char *a, const char *b);

#endif
