/* line_file.h - a text file that grows by whole lines.
 *
 * A line is written by one write(2) to the end of the file (O_APPEND).  Where a full disk takes
 * only a part of a line, the file is cut back to the end of the previous line; where that fails
 * too, the rest of the line is the first thing that is written once the disk has space.  From then
 * on a line is written only where the file system says that it has space for it, so that readers do
 * not see parts of lines that are cut off again.  Lines that cannot be written are kept in memory,
 * and written in order before the next line.  One thread may use a line_file.
 */
#ifndef TRIREME_BASE_LINE_FILE_H
#define TRIREME_BASE_LINE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { LINE_FILE_KEPT_BYTES = 16 << 20 }; /* lines beyond these bytes are lost */

/* Zero-initialised: closed. */
struct line_file {
    int is_open, fd;
    char *kept; /* text that could not be written yet */
    size_t kept_bytes;
    int64_t lost_lines; /* lines for which neither disk nor memory had space */
    int why;            /* errno of the last write; 0: all lines are in the file */
};

/* Open path for appending, created if absent.  Returns 0, or -1 with err set. */
int line_file_open(struct line_file *file, const char *path, struct error *err);

enum line_file_outcome {
    LINE_FILE_WRITTEN, /* this line is in the file, and so was the line before it */
    LINE_FILE_KEPT,    /* this line could not be written, nor could the line before it */
    LINE_FILE_FAILED,  /* this line could not be written; the line before it was */
    LINE_FILE_RESUMED  /* this line and all kept ones are in the file; the last call had failed */
};

/* Write the kept lines, then text, one line with its newline.  Does nothing, and returns
 * LINE_FILE_WRITTEN, when the file is closed.  FAILED and RESUMED are for a warning to be printed
 * once, not per line. */
enum line_file_outcome line_file_append(struct line_file *file, const char *text);

/* Try to write the kept lines once more, and close.  Returns how many lines since
 * line_file_open() are not in the file. */
int64_t line_file_close(struct line_file *file);

#endif
