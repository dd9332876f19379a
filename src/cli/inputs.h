/* inputs.h - the texts that tokenize reads: files, folders, standard input. */
#ifndef TRIREME_CLI_INPUTS_H
#define TRIREME_CLI_INPUTS_H

#include <stdint.h>

#include "base/error.h"
#include "base/log.h"

/* Files left out, and the first of them, for a person to look at. */
struct inputs_skipped {
    int64_t count;
    char *first;
};

struct inputs {
    char **paths; /* "-" is standard input */
    int count, capacity;
    struct inputs_skipped not_text; /* a byte of 0 among the first ones */
    struct inputs_skipped hidden;   /* a name with a dot in front, in a folder */
    struct inputs_skipped json;     /* read like the others, although JSON is more than text */
};

/* List what the arguments name: files, and those of folders in the order of their names.  Files
 * that are not text and hidden ones are left out.  Returns 0, or -1 with err set: nothing is left,
 * a file that cannot be read, is compressed, or is a token file and was named.  inputs_free() in
 * any case. */
int inputs_list(struct inputs *inputs, char **arguments, int count, struct error *err);

/* Would writing this path overwrite an input, by whatever name? */
int inputs_contain(const struct inputs *inputs, const char *path);

/* Log one line of the files that were left out, if there are any, and warn of JSON. */
void inputs_report(const struct inputs *inputs, struct log *log);

void inputs_free(struct inputs *inputs);

#endif
