/* line_file.h - a text file that grows by whole lines.
 *
 * A line is written by one write(2) to the end of the file (O_APPEND).  Where a full disk takes
 * only a part of a line, the file is cut back to the end of the line before; where that fails too,
 * the rest of the line is written first as soon as the disk has space.  Lines that cannot be
 * written are kept in memory and written, in order, before the next one.  Used by one thread.
 */
#ifndef TRIREME_BASE_LINE_FILE_H
#define TRIREME_BASE_LINE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { LINE_FILE_KEPT_BYTES = 16 << 20 }; /* most that is kept in memory */

/* Zero-initialised: closed. */
struct line_file {
    int is_open, fd;
    char *kept; /* what could not be written yet */
    size_t kept_bytes;
    int64_t lost_lines; /* neither disk nor memory had space for them */
    int why;            /* errno of the last write; 0: all lines are in the file */
};

/* Open path for appending, created if absent.  Returns 0, or -1 with err set. */
int line_file_open(struct line_file *file, const char *path, struct error *err);

/* Append text, which ends with a newline, after what was kept.  Does nothing when closed. */
enum line_file_outcome {
    LINE_FILE_WRITTEN, /* the line is in the file, like the one before it */
    LINE_FILE_KEPT,    /* the line is kept, like the one before it */
    LINE_FILE_FAILED,  /* the first line that could not be written */
    LINE_FILE_RESUMED  /* the first line written after failures, with all that was kept */
};
enum line_file_outcome line_file_append(struct line_file *file, const char *text);

/* Write what is kept if that is possible now, and close.  Returns the number of lines that did not
 * reach the file since it was opened. */
int64_t line_file_close(struct line_file *file);

#endif
