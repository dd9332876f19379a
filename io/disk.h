/* disk.h - files that must be whole or absent: exact reads and writes, durable names, trees.
 *
 * Functions that take err return 0 (disk_open() a descriptor), or -1 with err set and the path
 * named.
 */
#ifndef TRIREME_IO_DISK_H
#define TRIREME_IO_DISK_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A size for people: "1.94 MB", "976 B".  Returns text. */
enum { DISK_SIZE = 16 };
const char *disk_size(double bytes, char text[DISK_SIZE]);

/* The first of PATH.1, PATH.2 ... that is free; for free(). */
char *disk_free_name(const char *path);

/* Does a path lead to a folder, or into it?  Not where either is absent. */
int disk_is_inside(const char *path, const char *folder);

/* Does the folder have a file or folder of that name? */
int disk_has(const char *folder, const char *name);

/* Open with open()'s flags and mode 0666.  Returns a descriptor for disk_finish() or close(). */
int disk_open(const char *path, int flags, struct error *err);

/* Write or read all bytes at an offset.  Reading past the end is an error. */
int disk_write(int fd, const void *data, size_t bytes, int64_t offset, const char *path,
               struct error *err);
int disk_read(int fd, void *data, size_t bytes, int64_t offset, const char *path,
              struct error *err);

/* Write these bytes, which are in the page cache, to the disk and wait for that, in pieces of 64
 * MiB, each of which is a sign of life (base/alive.h), as one long fsync() is not.  Does nothing on
 * a file system that does not support it. */
int disk_flush(int fd, int64_t from, int64_t bytes, const char *path, struct error *err);

/* The same while a file is written: flush from *flushed to `end`, and move *flushed there, once 64
 * MiB lie between. */
int disk_flush_behind(int fd, int64_t *flushed, int64_t end, const char *path, struct error *err);

/* fsync and close; closes in any case. */
int disk_finish(int fd, const char *path, struct error *err);

/* fsync what path names (a file or a folder). */
int disk_sync(const char *path, struct error *err);

/* fsync the folder that path is in, so that its name lasts: a for "a/b" and for "a/b/". */
int disk_sync_parent(const char *path, struct error *err);

/* Make a folder and those above it; existing ones are fine. */
int disk_make_folders(const char *path, struct error *err);

/* Copy a file, in place of what is at `to`; it is on the disk when this returns 0. */
int disk_copy(const char *from, const char *to, struct error *err);

/* Remove a file or a folder with all below it; what is absent is fine. */
int disk_remove(const char *path, struct error *err);

/* Set *bytes to what is free for this user on the file system that path is on. */
int disk_free(const char *path, double *bytes, struct error *err);

/* Checksum of a whole file, as hexadecimal digits. */
enum { DISK_DIGEST = 17 };
int disk_digest(const char *path, char digest[DISK_DIGEST], struct error *err);

#endif
