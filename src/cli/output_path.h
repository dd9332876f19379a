/* output_path.h - checking where tokenize and plan write: they may replace a file of the same kind,
 * never a text or another program's file. */
#ifndef TRIREME_CLI_OUTPUT_PATH_H
#define TRIREME_CLI_OUTPUT_PATH_H

#include "base/log.h"
#include "cli/inputs.h"

enum output_path_kind {
    OUTPUT_TOKENS,
    OUTPUT_TOKENIZER,
    OUTPUT_PLAN,     /* of trireme plan: --json */
    OUTPUT_TRACE,    /* --trace */
    OUTPUT_PICTURE,  /* --schedule-svg, --timeline-svg */
    OUTPUT_SCHEDULE, /* --schedule-csv */
    OUTPUT_CONFIG    /* --yaml */
};

/* Check that a file of tokens or a tokenizer may be written to path (NULL: none is wanted).  A file
 * that is there may be replaced if it is not an input, and is empty or of this kind: an HDF5 file,
 * or JSON that is read as a tokenizer.  Returns 0, or -1 with err set. */
int output_path_check(const char *path, enum output_path_kind kind, const struct inputs *inputs,
                      struct error *err);

/* Warn where path (NULL: none), of tokens or of a tokenizer, ends as files of another kind do. */
void output_path_warn_ending(const char *path, enum output_path_kind kind, struct log *log);

/* Check that a file of one of plan's kinds may be written to path (NULL: none is wanted).  A
 * regular file that is there may be replaced if it is empty or begins as those of this kind do, and
 * is neither `input` (NULL: none) nor standard output, whose text would be lost with it; a pipe or
 * a device is written to.  Returns 0, or -1 with err set, also where no file can be made in the
 * folder. */
int output_path_check_report(const char *path, enum output_path_kind kind, const char *input,
                             struct error *err);

/* Make the folders of a file that are missing below the working directory.  Elsewhere (an absolute
 * path, or one with "..") a missing folder is an error: it is more likely a mistake.  Returns 0, or
 * -1 with err set. */
int output_path_make_folder(const char *path, struct error *err);

/* Do two paths name the same file in the same folder, whether or not the file exists? */
int output_path_is(const char *a, const char *b);

#endif
