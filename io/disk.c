/* disk.c - see disk.h. */
#include "io/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/round.h"
#include "base/special_file.h"

/* PIECE_BYTES: most that one system call reads or writes, so that alive_note() is called often;
 * OPEN_FOLDERS: descriptors that disk_remove() may use. */
enum { PIECE_BYTES = 64 << 20, HASH_BYTES = 1 << 20, OPEN_FOLDERS = 16 };

char *disk_free_name(const char *path)
{
    struct stat info;
    for (int n = 1;; n++) {
        char *name = array_format("%s.%d", path, n);
        if (lstat(name, &info))
            return name;
        free(name);
    }
}

int disk_is_inside(const char *path, const char *folder)
{
    char *one = realpath(path, NULL), *other = realpath(folder, NULL);
    size_t length = other && strcmp(other, "/") != 0 ? strlen(other) : 0;
    int inside =
        one && other && !strncmp(one, other, length) && (!one[length] || one[length] == '/');
    free(one);
    free(other);
    return inside;
}

int disk_has(const char *folder, const char *name)
{
    char *path = array_format("%s/%s", folder, name);
    int found = !access(path, F_OK);
    free(path);
    return found;
}

int disk_look(const char *folder, const char *name, struct error *err)
{
    char *path = array_format("%s/%s", folder, name);
    int found = !access(path, F_OK);
    if (!found && error_is_system(errno))
        found = error_errno(err, "cannot look for %s", path);
    free(path);
    return found;
}

int disk_try_again(int *tries, struct log *log, struct error *err)
{
    static const int waits_s[] = {1, 2, DISK_WAITS_S - 3};
    if (!err->by_system)
        return 0;
    if (*tries == sizeof waits_s / sizeof waits_s[0]) {
        err->code = EXIT_NODE;
        return 0;
    }
    int wait_s = waits_s[(*tries)++];
    if (log)
        log_warn(log, "%s; tried again in %d s", err->text, wait_s);
    *err = (struct error){0};
    for (int i = 0; i < wait_s; i++) {
        sleep(1);
        alive_note();
    }
    return 1;
}

const char *disk_size(double bytes, char text[DISK_SIZE])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int unit = 0;
    for (; bytes >= 999.5 && unit < 5; unit++)
        bytes /= 1000;
    snprintf(text, DISK_SIZE, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

int disk_allows_file(double bytes, double *limit)
{
    struct rlimit file;
    if (getrlimit(RLIMIT_FSIZE, &file) || file.rlim_cur == RLIM_INFINITY ||
        bytes <= (double)file.rlim_cur)
        return 1;
    *limit = (double)file.rlim_cur;
    return 0;
}

int disk_open(const char *path, int flags, struct error *err)
{
    if (special_file_refuse(path, err))
        return -1;
    int fd = ALIVE_CALL("opening", path, open(path, flags | O_CLOEXEC, 0666));
    return fd < 0 ? error_errno(err, "cannot %s %s", flags & O_CREAT ? "create" : "open", path)
                  : fd;
}

int disk_write(int fd, const void *data, size_t bytes, int64_t offset, const char *path,
               struct error *err)
{
    const char *from = data;
    while (bytes) {
        size_t piece = min_bytes(bytes, PIECE_BYTES);
        ssize_t wrote = ALIVE_CALL("writing", path, pwrite(fd, from, piece, offset));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return error_errno(err, "cannot write %s", path);
        from += wrote;
        offset += wrote;
        bytes -= (size_t)wrote;
    }
    return 0;
}

int disk_read(int fd, void *data, size_t bytes, int64_t offset, const char *path, struct error *err)
{
    char *to = data;
    while (bytes) {
        size_t piece = min_bytes(bytes, PIECE_BYTES);
        ssize_t got = ALIVE_CALL("reading", path, pread(fd, to, piece, offset));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, "cannot read %s", path);
        if (got == 0)
            return error_set(err, "%s: the file ends at byte %lld, it is truncated", path,
                             (long long)offset);
        to += got;
        offset += got;
        bytes -= (size_t)got;
    }
    return 0;
}

enum { FLUSH_BYTES = 64 << 20 };

/* Write bytes [from, from + bytes) of the file out to the disk, and wait; nothing where the system
 * cannot.  Returns 0, or -1 with err set. */
static int flush_piece(int fd, int64_t from, int64_t bytes, const char *path, struct error *err)
{
    const unsigned whole =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    int rc = ALIVE_CALL("syncing", path, sync_file_range(fd, from, bytes, whole));
    if (rc && errno != EINVAL && errno != ESPIPE && errno != ENOSYS && errno != EOPNOTSUPP)
        return error_errno(err, "cannot write %s", path);
    return 0;
}

int disk_flush(int fd, int64_t from, int64_t bytes, const char *path, struct error *err)
{
    for (int64_t done = 0; done < bytes; done += FLUSH_BYTES)
        if (flush_piece(fd, from + done, min_i64(FLUSH_BYTES, bytes - done), path, err))
            return -1;
    return 0;
}

int disk_flush_behind(int fd, int64_t *flushed, int64_t end, const char *path, struct error *err)
{
    int64_t bytes = end - *flushed;
    if (bytes < FLUSH_BYTES)
        return 0;
    int rc = disk_flush(fd, *flushed, bytes, path, err);
    *flushed = end;
    return rc;
}

int disk_finish(int fd, const char *path, struct error *err)
{
    int rc = ALIVE_CALL("syncing", path, fsync(fd)) ? error_errno(err, "cannot write %s", path) : 0;
    if (ALIVE_CALL("closing", path, close(fd)) && !rc)
        rc = error_errno(err, "cannot close %s", path);
    return rc;
}

int disk_sync(const char *path, struct error *err)
{
    int fd = disk_open(path, O_RDONLY, err);
    return fd < 0 ? -1 : disk_finish(fd, path, err);
}

int disk_sync_parent(const char *path, struct error *err)
{
    char *copy = array_text(path);
    int rc = disk_sync(dirname(copy), err);
    free(copy);
    return rc;
}

int disk_make_folders(const char *path, struct error *err)
{
    if (!*path)
        return error_set(err, "a folder without a name cannot be created");
    char *part = array_text(path);
    int rc = 0;
    for (char *at = part; !rc && at;) {
        at = strchr(at + 1, '/');
        if (at)
            *at = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            rc = error_errno(err, "cannot create folder %s", part);
        if (at)
            *at = '/';
    }
    free(part);
    return rc;
}

int disk_copy(const char *from, const char *to, struct error *err)
{
    enum { BLOCK = 1 << 16 };
    char block[BLOCK], *beside = array_format("%s.partial", to);
    struct stat info;
    int in = disk_open(from, O_RDONLY, err);
    int out = in < 0 ? -1 : disk_open(beside, O_WRONLY | O_CREAT | O_TRUNC, err);
    int rc = out < 0 ? -1 : fstat(in, &info) ? error_errno(err, "cannot read %s", from) : 0;
    for (int64_t at = 0; !rc && at < info.st_size; at += BLOCK) {
        size_t bytes = info.st_size - at < BLOCK ? (size_t)(info.st_size - at) : BLOCK;
        rc = disk_read(in, block, bytes, at, from, err) ||
             disk_write(out, block, bytes, at, beside, err);
    }
    if (in >= 0)
        close(in);
    if (out >= 0 && disk_finish(out, beside, rc ? NULL : err))
        rc = -1;
    if (!rc && ALIVE_CALL("renaming", beside, rename(beside, to)))
        rc = error_errno(err, "cannot rename %s to %s", beside, to);
    if (rc && out >= 0)
        unlink(beside);
    free(beside);
    return rc ? -1 : 0;
}

/* Remove a file or an empty folder, for nftw().  Returns 0, or 1 to stop. */
static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    int failed = ALIVE_CALL("removing", path, remove(path)) && errno != ENOENT;
    return failed;
}

int disk_remove(const char *path, struct error *err)
{
    if (nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        return error_errno(err, "cannot remove %s", path);
    return 0;
}

int disk_free(const char *path, double *bytes, struct error *err)
{
    struct statvfs space;
    if (statvfs(path, &space))
        return error_errno(err, "cannot ask for the free space of %s", path);
    *bytes = (double)space.f_bavail * (double)space.f_frsize;
    return 0;
}

int disk_free_files(const char *path, int64_t *files, struct error *err)
{
    struct statvfs space;
    if (statvfs(path, &space))
        return error_errno(err, "cannot ask for the free files of %s", path);
    *files = space.f_files ? (int64_t)space.f_favail : -1;
    return 0;
}

int disk_digest(const char *path, char digest[DISK_DIGEST], struct error *err)
{
    int fd = disk_open(path, O_RDONLY, err);
    if (fd < 0)
        return -1;
    char *buffer = malloc(HASH_BYTES);
    struct hash *sum = hash_create();
    ssize_t got = 0;
    errno = ENOMEM;
    int rc = buffer ? 0 : error_errno(err, "cannot read %s", path);
    while (!rc && (got = read(fd, buffer, HASH_BYTES)) > 0) {
        hash_add(sum, buffer, (size_t)got);
        alive_note();
    }
    if (got < 0)
        rc = error_errno(err, "cannot read %s", path);
    snprintf(digest, DISK_DIGEST, "%016llx", (unsigned long long)hash_finish(sum));
    free(buffer);
    close(fd);
    return rc;
}
