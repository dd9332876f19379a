/* metrics_resume.c - see metrics_resume.h. */
#include "train/metrics_resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/special_file.h"
#include "base/whole_file.h"

/* Every line of metrics.jsonl begins so. */
static const char first_key[] = "{\"step\"";

/* Lines that are not copied. */
struct left_out {
    int64_t later, torn;
};

/* The step of a line of metrics; -1: it is none. */
static int64_t step_of(const char *line)
{
    struct js *js = js_parse(line, NULL);
    int64_t step = js_get_int(js, "step", -1);
    js_free(js);
    return step;
}

/* The last object in a line that begins with an incomplete one; NULL: there is none. */
static const char *after_torn(const char *line)
{
    const char *last = NULL;
    for (const char *at = strstr(line, first_key); at; at = strstr(at + 1, first_key))
        last = at;
    return last && last > line && step_of(last) >= 0 ? last : NULL;
}

/* Copy the lines up to a step; to may be NULL: only count.  getline() ends alike at the end of the
 * file, where it cannot read and without memory: only the first is the end. */
static int copy_lines(FILE *from, FILE *to, int64_t until, struct left_out *out)
{
    *out = (struct left_out){0};
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&line, &size, from)) > 0) {
        const char *good = line;
        int whole = line[length - 1] == '\n' && strlen(line) == (size_t)length;
        int64_t step = whole ? step_of(line) : -1;
        if (step < 0) {
            out->torn++;
            good = whole ? after_torn(line) : NULL;
            step = good ? step_of(good) : -1;
        }
        if (step > until)
            out->later++;
        else if (good && step >= 0 && to)
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
        rc = rewrite(from, path, step, err);
    fclose(from);
    if (!rc && out.torn)
        log_warn(log, "%s: %lld line%s could not be read and %s left out", path,
                 (long long)out.torn, out.torn > 1 ? "s" : "", out.torn > 1 ? "were" : "was");
    return rc;
}
