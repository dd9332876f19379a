/* output_path.h - where tokenize may write: never over a text. */
#ifndef TRIREME_CLI_OUTPUT_PATH_H
#define TRIREME_CLI_OUTPUT_PATH_H

#include "cli/inputs.h"

/* May a file of this name (NULL: none is wanted) be written?  What is there may be replaced if it
 * is empty or an HDF5 file, and none of the inputs.  Returns 0, or -1 with err set. */
int output_path_check(const char *path, const struct inputs *inputs, struct error *err);

/* Make the folder for a file: below the working directory whatever is missing; elsewhere a missing
 * folder is more likely a mistake, and an error.  Returns 0, or -1 with err set. */
int output_path_make_folder(const char *path, struct error *err);

/* Are these two names of one place in one folder? */
int output_path_is(const char *a, const char *b);

#endif
