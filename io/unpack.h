/* unpack.h - reading compressed files, each by the program that made it: gzip, zstd, xz, bzip2.
 *
 * The program reads the file and writes into a pipe, so that it works on a core of its own, and so
 * that nothing is stored on a disk.
 */
#ifndef TRIREME_IO_UNPACK_H
#define TRIREME_IO_UNPACK_H

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

/* Returns the program that made a file of these first bytes, 8 KiB of them or all; NULL: it is not
 * compressed. */
const char *unpack_program(const char *front, size_t bytes);

/* Returns how many characters the ending of a compressed file takes at the end of a path, 3 of
 * "data.jsonl.gz"; 0: it has none. */
size_t unpack_ending(const char *path);

/* A file that is unpacked. */
struct unpack {
    const char *path, *program; /* the caller's */
    pid_t process;
    int fd;       /* to read the unpacked bytes from */
    int messages; /* what the program complains about */
};

/* Start to unpack a file by a program of unpack_program().  Returns 0 and u for unpack_close(), or
 * -1 with err set: the file cannot be opened, or the program is not installed. */
int unpack_open(struct unpack *u, const char *path, const char *program, struct error *err);

/* End.  is_read: fd was read to its end; else the program is stopped, unless it has ended.  Returns
 * 0, or -1 with err set, in the program's words: the file is damaged or cut.  That replaces what
 * err says already, which is probably a consequence, such as a line that is not whole. */
int unpack_close(struct unpack *u, int is_read, struct error *err);

#endif
