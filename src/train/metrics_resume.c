/* metrics_resume.c - see metrics_resume.h.
 *
 * A run of months has a million lines, and all ranks wait while rank 0 looks at them.  So the step
 * of a line is read from its first bytes, {"step": N, and a line is parsed as JSON only where it
 * does not begin so, does not end in }, or has a second {"step", as a line has that was cut off and
 * gone on with.  The lines to be left out nearly always are the last ones: the file is cut there.
 * Only where others follow them is it written anew.
 */
#include "train/metrics_resume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "base/special_file.h"
#include "base/whole_file.h"

/* Every line of metrics.jsonl begins so. */
static const char first_key[] = "{\"step\"";

/* Lines that are not copied. */
struct left_out {
    int64_t later, torn;
    int64_t from;  /* the byte of the file at which the first of them begins */
    int scattered; /* are there lines, or parts of lines, after it that are copied? */
};

/* The step of a line of metrics that is as they are written; -1: it is not.  length: without the
 * NUL. */
static int64_t step_at_front(const char *line, size_t length)
{
    enum { FRONT = sizeof first_key + 1, DIGITS = 18 }; /* with the colon and the space */
    int64_t step = 0;
    size_t at = FRONT;
    if (length < FRONT || memcmp(line, first_key, sizeof first_key - 1) ||
        memcmp(line + FRONT - 2, ": ", 2))
        return -1;
    while (at < FRONT + DIGITS && line[at] >= '0' && line[at] <= '9')
        step = step * 10 + (line[at++] - '0');
    int is_written = at > FRONT && (line[at] == ',' || at == length - 2) &&
                     !strcmp(line + length - 2, "}\n") && !strstr(line + at, first_key);
    return is_written ? step : -1;
}

/* The step of a JSON object; -1: it is none, or has no step. */
static int64_t parsed_step(const char *line)
{
    struct js *js = js_parse(line, NULL);
    int64_t step = js_get_int(js, "step", -1);
    js_free(js);
    return step;
}

/* The step of a line of metrics; -1: it is none. */
static int64_t step_of(const char *line)
{
    int64_t step = step_at_front(line, strlen(line));
    return step >= 0 ? step : parsed_step(line);
}

/* The last object in a line that begins with an incomplete one; NULL: there is none. */
static const char *after_torn(const char *line)
{
    const char *last = NULL;
    for (const char *at = strstr(line, first_key); at; at = strstr(at + 1, first_key))
        last = at;
    return last && last > line && parsed_step(last) >= 0 ? last : NULL;
}

/* Copy the lines up to a step; to may be NULL: only count.  getline() ends alike at the end of the
 * file, where it cannot read and without memory: only the first is the end. */
static int copy_lines(FILE *from, FILE *to, int64_t until, struct left_out *out)
{
    *out = (struct left_out){.from = -1};
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    for (int64_t at = 0; (length = getline(&line, &size, from)) > 0; at += length) {
        const char *good = line;
        int whole = line[length - 1] == '\n' && strlen(line) == (size_t)length;
        int64_t step = whole ? step_of(line) : -1;
        if (step < 0) {
            out->torn++;
            good = whole ? after_torn(line) : NULL;
            step = good ? parsed_step(good) : -1;
        }
        int stays = good && step >= 0 && step <= until;
        out->later += step > until;
        out->scattered |= stays && out->later + out->torn > 0;
        if (!stays && out->from < 0)
            out->from = at;
        if (stays && to)
            fputs(good, to);
    }
    int why = errno;
    free(line);
    errno = why;
    return feof(from) ? 0 : -1;
}

static int rewrite(FILE *from, const char *path, int64_t until, struct error *err)
{
    struct whole_file file;
    struct left_out out;
    if (whole_file_begin(&file, path, err))
        return -1;
    rewind(from);
    if (copy_lines(from, file.out, until, &out)) {
        error_errno(err, "cannot read %s", path);
        whole_file_drop(&file);
        return -1;
    }
    return whole_file_end(&file, WHOLE_FILE_DURABLE, err);
}

/* After a crash the file may be as it was: the next start cuts it. */
static int cut(const char *path, int64_t bytes, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int rc =
        fd < 0 || ftruncate(fd, bytes) || fsync(fd) ? error_errno(err, "cannot cut %s", path) : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

int metrics_resume(const char *path, int64_t step, struct log *log, struct error *err)
{
    if (special_file_refuse(path, err))
        return -1;
    FILE *from = fopen(path, "r");
    if (!from)
        return errno == ENOENT ? 0 : error_errno(err, "cannot open %s", path);
    struct left_out out;
    int rc = 0;
    if (copy_lines(from, NULL, step, &out))
        rc = error_errno(err, "cannot read %s", path);
    else if (out.torn || out.later)
        rc = out.scattered ? rewrite(from, path, step, err) : cut(path, out.from, err);
    fclose(from);
    if (!rc && out.torn)
        log_warn(log, "%s: %lld line%s could not be read and %s left out", path,
                 (long long)out.torn, out.torn > 1 ? "s" : "", out.torn > 1 ? "were" : "was");
    return rc;
}

/* Read the last bytes of a file, as text: *bytes of them, or all where there are fewer, and set
 * *bytes to how many they are.  Returns text for free(), or NULL with errno set. */
static char *read_end(FILE *file, int64_t *bytes)
{
    off_t size = fseeko(file, 0, SEEK_END) ? -1 : ftello(file);
    if (size < 0)
        return NULL;
    *bytes = size < *bytes ? size : *bytes;
    char *text = array_make((size_t)*bytes + 1, 1);
    if (fseeko(file, size - *bytes, SEEK_SET) ||
        fread(text, 1, (size_t)*bytes, file) < (size_t)*bytes) {
        int why = ferror(file) ? errno : EIO;
        free(text);
        errno = why;
        return NULL;
    }
    return text;
}

/* The step of the last line in text that has one; -1: none has.  Lines begin at text and after each
 * newline; is_cut: the first of them is not whole.  Text is overwritten. */
static int64_t last_step_in(char *text, int64_t bytes, int is_cut)
{
    int64_t step = -1;
    for (char *line = text + bytes; step < 0 && line > text; *line = 0) {
        char *before = memrchr(text, '\n', (size_t)(line - text - 1));
        line = before ? before + 1 : text;
        if (line > text || !is_cut)
            step = step_of(line);
    }
    return step;
}

int metrics_last_step(const char *path, int64_t *step, struct error *err)
{
    enum { END = 1 << 16, FACTOR = 16 };
    FILE *file = fopen(path, "r");
    int64_t found = -1, bytes = END / FACTOR, read;
    int rc = 0;
    *step = 0;
    if (!file)
        return errno == ENOENT ? 0 : error_errno(err, "cannot open %s", path);
    do {
        read = bytes *= FACTOR;
        char *text = read_end(file, &read);
        if (text)
            found = last_step_in(text, read, read == bytes);
        else
            rc = error_errno(err, "cannot read %s", path);
        free(text);
    } while (!rc && found < 0 && read == bytes);
    fclose(file);
    *step = found < 0 ? 0 : found;
    return rc;
}
