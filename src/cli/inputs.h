/* inputs.h - listing what tokenize reads: files, those of folders, standard input. */
#ifndef TRIREME_CLI_INPUTS_H
#define TRIREME_CLI_INPUTS_H

#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "io/unpack.h"

/* Files of one kind that were left out, or read in another way than their name says. */
struct inputs_skipped {
    int64_t count;
    char *first; /* path of the first one, for messages; NULL: there is none */
};

enum inputs_format {
    INPUT_ANY,   /* none was asked for: name and first bytes of the file decide */
    INPUT_TEXT,  /* the file is one document */
    INPUT_JSONL, /* each line is a document */
    INPUT_NPY,   /* token ids in a file of numpy or llm.c (npy.h) */
    INPUT_BIN,   /* token ids without a header, or in a file of llm.c */
    INPUT_TOKENS /* a token file, or another file of HDF5 */
};

struct inputs_file {
    char *path; /* "-" is standard input */
    enum inputs_format format;
    const char *packer; /* the program that unpacks it; NULL: it is not compressed */
};

struct inputs {
    enum inputs_format asked; /* format of all files; INPUT_ANY: none was asked for */
    struct inputs_file *list; /* [count] the files to read, in their order */
    int count, capacity;
    struct inputs_skipped not_text; /* left out: a byte of 0 among the first ones */
    struct inputs_skipped hidden;   /* left out: in a folder, with a name that begins with a dot */
    struct inputs_skipped dangling; /* left out: in a folder, a link to a file that is not there */
    struct inputs_skipped card;     /* left out: in a folder, README.md that begins with YAML */
    struct inputs_skipped json;     /* read as text: .json in folders */
    struct inputs_skipped table;    /* read as text: .csv and .tsv in folders */
};

/* List the files that the arguments name, and those of folders in the order of their names.  In
 * folders hidden files, links to files that are not there and the README.md of a dataset are left
 * out; so are, anywhere, files that
 * are not text, unless a format was asked for (inputs->asked).  inputs is for inputs_free(), also
 * after a failure. Returns 0, or -1 with err set: nothing is left, a file cannot be read or
 * unpacked, is Parquet or Arrow, an archive, compressed numbers or a list in JSON, or was named
 * itself and is a table (.csv, .tsv) or numpy's .npz. */
int inputs_list(struct inputs *inputs, char **arguments, int count, struct error *err);

/* Return how many files are of a format. */
int inputs_of(const struct inputs *inputs, enum inputs_format format);

/* Would writing to path overwrite an input, also one that has another name, such as a link? */
int inputs_contain(const struct inputs *inputs, const char *path);

/* An input that is read, from standard input or from its file, which is unpacked on the way. */
struct inputs_stream {
    int fd;
    int is_packed;
    struct unpack unpack;
};

/* Open an input for inputs_close().  Returns 0, or -1 with err set. */
int inputs_open(struct inputs_stream *stream, const struct inputs_file *file, struct error *err);

/* Close it; standard input stays open.  is_read: it was read to its end.  Returns 0, or -1 with err
 * set, as unpack_close() does: what is compressed is damaged or cut. */
int inputs_close(struct inputs_stream *stream, int is_read, struct error *err);

/* Log one line about the files that were left out, if there are any, and warn of JSON and tables
 * that are read as text. */
void inputs_report(const struct inputs *inputs, struct log *log);

void inputs_free(struct inputs *inputs);

#endif
