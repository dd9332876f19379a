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
#include "base/log.h"

/* Write a size for messages, "1.94 MB" or "976 B", into text.  Returns text. */
enum { DISK_SIZE = 16 };
const char *disk_size(double bytes, char text[DISK_SIZE]);

/* Returns 1 if this process may make a file of so many bytes, else 0 and in *limit the most that a
 * file may have (ulimit -f). */
int disk_allows_file(double bytes, double *limit);

/* Returns the first of PATH.1, PATH.2 and so on that does not exist, to be free()d. */
char *disk_free_name(const char *path);

/* Returns 1 if path is folder or something inside it; 0 also where either does not exist. */
int disk_is_inside(const char *path, const char *folder);

/* Returns 1 if folder has a file or folder of this name; 0 also where the system cannot say. */
int disk_has(const char *folder, const char *name);

/* Returns 1 or 0 likewise, or -1 with err set where the system cannot say. */
int disk_look(const char *folder, const char *name, struct error *err);

/* Does a failed read deserve another try?  Not where what was read is at fault.  Where the system
 * is (err->by_system), say so in the log (NULL: do not), clear err, wait some seconds and return 1;
 * the waits come to DISK_WAITS_S in all, and after the last the code of err becomes EXIT_NODE.
 * *tries: 0 before the first.  Ranks with the same err decide the same. */
enum { DISK_WAITS_S = 7 };
int disk_try_again(int *tries, struct log *log, struct error *err);

/* Call open() with these flags and mode 0666; refuse a pipe or a device (special_file.h).  Returns
 * a descriptor for disk_finish() or close(). */
int disk_open(const char *path, int flags, struct error *err);

/* Write or read exactly `bytes` bytes at byte `offset` of the file; a file that ends before is an
 * error.  path is for messages, here and below where there is an fd. */
int disk_write(int fd, const void *data, size_t bytes, int64_t offset, const char *path,
               struct error *err);
int disk_read(int fd, void *data, size_t bytes, int64_t offset, const char *path,
              struct error *err);

/* Write `bytes` bytes of the file, from byte `from` on, from the page cache to the disk, and wait
 * for it.  Done in pieces of 64 MiB with alive_note() after each (base/alive.h), which one long
 * fsync() could not do.  Does nothing on a file system that does not support it. */
int disk_flush(int fd, int64_t from, int64_t bytes, const char *path, struct error *err);

/* For a file that is being written from its front, of which `end` bytes are: call disk_flush() for
 * bytes [*flushed, end) and set *flushed to end, once these are 64 MiB or more; else do nothing. */
int disk_flush_behind(int fd, int64_t *flushed, int64_t end, const char *path, struct error *err);

/* fsync() and close the file; on failure too it is closed. */
int disk_finish(int fd, const char *path, struct error *err);

/* fsync() the file or folder at path. */
int disk_sync(const char *path, struct error *err);

/* fsync() the folder that path is in, so that the name at path survives a crash: folder a for "a/b"
 * and for "a/b/". */
int disk_sync_parent(const char *path, struct error *err);

/* Make the folder at path and those above it, where they do not exist. */
int disk_make_folders(const char *path, struct error *err);

/* Copy the file at `from` to TO.partial, which is then renamed to `to`.  The contents of the copy
 * are on the disk when this returns 0; else there is no TO.partial, `to` is as it was, and err is
 * set. */
int disk_copy(const char *from, const char *to, struct error *err);

/* Remove the file at path, or the folder with all that is in it; an absent one is no error. */
int disk_remove(const char *path, struct error *err);

/* Set *bytes to the bytes that this user may still write on the file system that path is on. */
int disk_free(const char *path, double *bytes, struct error *err);

/* Set *files to how many files and folders (inodes) this user may still make there, or to -1 where
 * the file system has no such limit. */
int disk_free_files(const char *path, int64_t *files, struct error *err);

/* Write XXH3 of a whole file as hexadecimal digits into digest. */
enum { DISK_DIGEST = 17 };
int disk_digest(const char *path, char digest[DISK_DIGEST], struct error *err);

#endif
