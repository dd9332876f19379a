/* inputs.h - what tokenize reads: files, folders, standard input. */
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

enum inputs_format {
    INPUT_ANY,   /* as the file shows */
    INPUT_TEXT,  /* a document */
    INPUT_JSONL, /* a document a line */
    INPUT_NPY,   /* numbers: numpy's or llm.c's (npy.h) */
    INPUT_BIN    /* numbers alone, or llm.c's */
};

struct inputs_file {
    char *path; /* "-" is standard input */
    enum inputs_format format;
};

struct inputs {
    enum inputs_format asked; /* of all files; INPUT_ANY: as each shows */
    struct inputs_file *list;
    int count, capacity;
    struct inputs_skipped not_text; /* a byte of 0 among the first ones */
    struct inputs_skipped hidden;   /* a name with a dot in front, in a folder */
    struct inputs_skipped json;     /* in folders: read as text, although JSON is more */
    struct inputs_skipped table;    /* .csv and .tsv in folders, the same */
};

/* List what the arguments name: files, and those of folders in the order of their names.  Hidden
 * files are left out, and unless a format is asked for those that are not text.  Returns 0, or -1
 * with err set: nothing is left, a file that cannot be read, is compressed, is Parquet or a list in
 * JSON, or was named and is a token file, a table (.csv, .tsv) or numpy's .npz.  inputs_free() in
 * any case. */
int inputs_list(struct inputs *inputs, char **arguments, int count, struct error *err);

/* How many are of a format? */
int inputs_of(const struct inputs *inputs, enum inputs_format format);

/* Would writing this path overwrite an input, by whatever name? */
int inputs_contain(const struct inputs *inputs, const char *path);

/* Log one line of the files that were left out, if there are any, and warn of JSON. */
void inputs_report(const struct inputs *inputs, struct log *log);

void inputs_free(struct inputs *inputs);

#endif
