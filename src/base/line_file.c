/* line_file.c - see line_file.h. */
#include "base/line_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/special_file.h"

int line_file_open(struct line_file *f, const char *path, struct error *err)
{
    *f = (struct line_file){0};
    if (special_file_refuse(path, err))
        return -1;
    f->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    f->is_open = f->fd >= 0;
    return f->is_open ? 0 : error_errno(err, "cannot open %s", path);
}

/* Returns the bytes of text up to and with its last newline; 0: it has none. */
static size_t whole_lines(const char *text, size_t bytes)
{
    const char *last = memrchr(text, '\n', bytes);
    return last ? (size_t)(last - text) + 1 : 0;
}

/* Cut the last `bytes` bytes off the file.  Returns 0, or 1 where that fails. */
static int cut(int fd, size_t bytes)
{
    off_t end = lseek(fd, 0, SEEK_END);
    return end < 0 || ftruncate(fd, end - (off_t)bytes);
}

/* Is there space for the first line of text after the end of the file?  1 where the file system
 * cannot say; else 0 with errno set. */
static int has_space(int fd, const char *text, size_t bytes)
{
    const char *newline = memchr(text, '\n', bytes);
    off_t end = lseek(fd, 0, SEEK_END), line = newline ? newline + 1 - text : (off_t)bytes;
    return end < 0 || !fallocate(fd, FALLOC_FL_KEEP_SIZE, end, line) ||
           (errno != ENOSPC && errno != EDQUOT);
}

/* Write text to the end of the file.  Returns how many of its bytes are in the file now: all of
 * them, f->why being 0; or, with f->why set, those up to the end of a line, or a part of a line too
 * where the file could not be cut back. */
static size_t write_lines(struct line_file *f, const char *text, size_t bytes)
{
    size_t done = 0;
    if (f->why && !has_space(f->fd, text, bytes)) {
        f->why = errno;
        return 0;
    }
    while (done < bytes) {
        ssize_t wrote = write(f->fd, text + done, bytes - done);
        if (wrote >= 0) {
            done += (size_t)wrote;
        } else if (errno != EINTR) {
            f->why = errno;
            size_t whole = whole_lines(text, done);
            return whole < done && cut(f->fd, done - whole) ? done : whole;
        }
    }
    f->why = 0;
    return done;
}

/* Append text to what is kept in memory; count it as lost where there is no space for it. */
static void keep(struct line_file *f, const char *text, size_t bytes)
{
    size_t needed = f->kept_bytes + bytes;
    char *grown = needed <= LINE_FILE_KEPT_BYTES ? realloc(f->kept, needed) : NULL;
    if (!grown) {
        f->lost_lines++;
        return;
    }
    f->kept = grown;
    memcpy(f->kept + f->kept_bytes, text, bytes);
    f->kept_bytes = needed;
}

/* Write what is kept, and keep what could not be written. */
static void write_kept(struct line_file *f)
{
    size_t done = write_lines(f, f->kept, f->kept_bytes);
    f->kept_bytes -= done;
    memmove(f->kept, f->kept + done, f->kept_bytes);
}

enum line_file_outcome line_file_append(struct line_file *f, const char *text)
{
    size_t bytes = strlen(text);
    int failed = f->why != 0;
    if (!f->is_open)
        return LINE_FILE_WRITTEN;
    if (f->kept_bytes) {
        keep(f, text, bytes);
        write_kept(f);
    } else {
        size_t done = write_lines(f, text, bytes);
        if (done < bytes)
            keep(f, text + done, bytes - done);
    }
    if (f->why)
        return failed ? LINE_FILE_KEPT : LINE_FILE_FAILED;
    return failed ? LINE_FILE_RESUMED : LINE_FILE_WRITTEN;
}

int64_t line_file_close(struct line_file *f)
{
    if (!f->is_open)
        return 0;
    if (f->kept_bytes)
        write_kept(f);
    int64_t missing = f->lost_lines;
    for (size_t i = 0; i < f->kept_bytes; i++)
        missing += f->kept[i] == '\n';
    close(f->fd);
    free(f->kept);
    *f = (struct line_file){0};
    return missing;
}
