/* partial.h - files that have a name of their own until they are whole, and the removal of those
 * that killed processes left behind.
 *
 * The name is PATH.partial-BOOT-PID-N.  BOOT is the first 13 letters of Linux's boot id, which no
 * other running kernel has, and the process that writes the file holds a lock (flock) on it as long
 * as it lives.  So if a file has this kernel's BOOT and its lock is free, its process has ended.
 * This also holds on a file system that several nodes share, where a lock may be seen on its own
 * node only, and with containers, where process numbers are not unique.  Whether the process of a
 * file with another BOOT still lives cannot be known here: such files are left alone.
 */
#ifndef TRIREME_IO_PARTIAL_H
#define TRIREME_IO_PARTIAL_H

#include "base/error.h"

/* Create a partial file of path, open for reading and writing and locked.  An existing file or link
 * is never opened: another N is tried.  The process may make further files by appending ".WORD" to
 * the name; once the partial file is renamed or removed, others may remove them.  Returns the
 * descriptor, to be closed after the file has been renamed or removed, and its name in *name, to be
 * free()d; or -1 with err set and *name NULL. */
int partial_create(char **name, const char *path, struct error *err);

/* What partial_sweep() found. */
struct partial_found {
    int removed;       /* number of files whose process has ended */
    int kept;          /* number of files that could not be removed, or whose process may live */
    char example[256]; /* name of a kept file, without its folder */
};

/* Remove the partial files of path whose processes have ended. */
void partial_sweep(const char *path, struct partial_found *found);

#endif
