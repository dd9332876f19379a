/* partial.h - a file under a name of its own until it is whole, and those that killed processes
 * left.
 *
 * The name is PATH.partial-BOOT-PID-N.  BOOT are the first 13 letters of Linux's boot id, which no
 * other running kernel has, and the process that writes the file holds a lock (flock) on it as long
 * as it lives.  A file with this kernel's BOOT whose lock is free therefore has no process any
 * more. That is also true on a file system that several nodes share, where a lock may be seen on
 * its own node only, and beside containers, where process numbers are not unique.  Whether the
 * process of any other file lives cannot be known from here: such files are left alone.
 */
#ifndef TRIREME_IO_PARTIAL_H
#define TRIREME_IO_PARTIAL_H

#include "base/error.h"

/* Create the file, for reading and writing; what is there, a link planted there too, is left alone.
 * Other files of the same start may append ".WORD" to its name and must be gone before it is, or
 * not be needed any more.  Returns its descriptor, to be closed once the file is renamed or
 * removed, and its name in *name (free()); or -1 with err set and *name NULL. */
int partial_create(char **name, const char *path, struct error *err);

/* What partial_sweep() found. */
struct partial_found {
    int removed;       /* files of processes that ended */
    int kept;          /* files of which that cannot be known, or which could not be removed */
    char example[256]; /* name of one that was kept, without its folder */
};

/* Remove the files of ended processes to this path. */
void partial_sweep(const char *path, struct partial_found *found);

#endif
