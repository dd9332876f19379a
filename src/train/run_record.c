/* run_record.c - see run_record.h.
 *
 * The line of a branch is its own checkpoints, and those of branches before up to its base:
 *
 *     branch 0   10 --- 20 --- 30          set aside in branches/0: 30
 *                        \
 *     branch 1            25 --- 30        base 20: the line is 10, 20, 25, 30
 */
#include "train/run_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "io/disk.h"

enum { RECORD_FORMAT = 1 };

static void copy(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from ? from : "");
}

static void read_start(struct run_record *record, const struct js *start)
{
    record->has_start = 1;
    record->start = run_point_of(start, js_get_int(start, "step", 0));
    copy(record->start_path, sizeof record->start_path, js_get_string(start, "path", ""));
    copy(record->asked, sizeof record->asked, js_get_string(start, "asked", ""));
}

/* Are the numbers of a record numbers?  One that is not would count as absent, and another
 * checkpoint as the run's. */
static int check_numbers(const struct js *js, struct error *err)
{
    static const char *const names[] = {"branch", "base", "saved", "exported", "moving"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (js_check(js, names[i], JS_WHOLE, err))
            return -1;
    const struct js *start = js_get(js, "start");
    return start && (js_check(start, "branch", JS_WHOLE, err) ||
                     js_check(start, "step", JS_WHOLE, err))
               ? -1
               : 0;
}

static int check(const struct js *js, const char *path, struct error *err)
{
    if (js_get_int(js, "format", -1) != RECORD_FORMAT)
        return error_set(err, "%s is of another version of trireme", path);
    if (strlen(js_get_string(js, "run", "")) != RUN_ID - 1)
        return error_set(err, "%s names no run", path);
    return check_numbers(js, err) ? error_prefix(err, "%s", path) : 0;
}

static void fill(struct run_record *record, const struct js *js)
{
    copy(record->run, sizeof record->run, js_get_string(js, "run", ""));
    record->branch = js_get_int(js, "branch", 0);
    record->base = js_get_int(js, "base", -1);
    record->saved = js_get_int(js, "saved", -1);
    record->exported = js_get_int(js, "exported", -1);
    record->moving = js_get_int(js, "moving", 0) != 0;
    copy(record->job, sizeof record->job, js_get_string(js, "job", ""));
    copy(record->writer, sizeof record->writer, js_get_string(js, "writer", ""));
    if (js_get(js, "start"))
        read_start(record, js_get(js, "start"));
}

int run_record_read(struct run_record *record, const char *dir, const char *name, struct error *err)
{
    *record = (struct run_record){.base = -1, .saved = -1, .exported = -1};
    char *path = array_format("%s/%s", dir, name);
    struct stat about;
    int is_there = !stat(path, &about), is_absent = !is_there && errno == ENOENT;
    record->empty = is_there && about.st_size == 0;
    if (is_absent || record->empty) {
        free(path);
        return 0;
    }
    struct js *js = js_read(path, err);
    int rc = js && !check(js, path, err) ? 0 : -1;
    if (rc)
        error_prefix(err, "the record of the run cannot be read (without it the newest checkpoint "
                          "would be taken for the run's)");
    else
        fill(record, js);
    js_free(js);
    free(path);
    return rc;
}

int run_record_write(const struct run_record *record, const char *dir, const char *name,
                     enum whole_file_care care, struct error *err)
{
    char *path = array_format("%s/%s", dir, name);
    struct js *js = js_object();
    js_add_int(js, "format", RECORD_FORMAT);
    js_add_string(js, "run", record->run);
    js_add_int(js, "branch", record->branch);
    js_add_int(js, "base", record->base);
    js_add_int(js, "saved", record->saved);
    if (record->exported >= 0)
        js_add_int(js, "exported", record->exported);
    js_add_string(js, "job", record->job);
    js_add_string(js, "writer", record->writer);
    if (record->moving)
        js_add_int(js, "moving", 1);
    if (record->has_start) {
        struct js *start = js_object();
        js_add_string(start, "run", record->start.run);
        js_add_int(start, "branch", record->start.branch);
        js_add_int(start, "step", record->start.step);
        js_add_string(start, "path", record->start_path);
        js_add_string(start, "asked", record->asked);
        js_add(js, "start", start);
    }
    int rc = js_write(js, JS_INDENTED, care, path, err);
    if (!rc && care == WHOLE_FILE_DURABLE)
        rc = disk_sync(dir, err);
    js_free(js);
    free(path);
    return rc;
}

void run_record_set_job(struct run_record *record)
{
    copy(record->job, sizeof record->job, getenv("SLURM_JOB_ID"));
}

int run_record_requeued(const struct run_record *record)
{
    const char *job = getenv("SLURM_JOB_ID"), *restarts = getenv("SLURM_RESTART_COUNT");
    return job && restarts && atoi(restarts) > 0 && record->job[0] && !strcmp(job, record->job);
}

/* Write `bytes` random bytes to text, in hexadecimal.  Returns 0, or -1 with err set. */
static int write_random(char *text, size_t bytes, struct error *err)
{
    unsigned char bits[RUN_ID];
    if (getrandom(bits, bytes, 0) != (ssize_t)bytes)
        return error_errno(err, "no random bits to name the run by");
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bits[i]);
    return 0;
}

int run_record_new(struct run_record *record, const char *writer, struct error *err)
{
    *record = (struct run_record){.base = -1, .saved = -1, .exported = -1};
    copy(record->writer, sizeof record->writer, writer);
    run_record_set_job(record);
    return write_random(record->run, (RUN_ID - 1) / 2, err);
}

int run_record_writer(char text[RUN_WRITER], struct error *err)
{
    char host[64] = "", bits[17];
    if (write_random(bits, 8, err))
        return -1;
    gethostname(host, sizeof host - 1); /* a longer name is cut off */
    snprintf(text, RUN_WRITER, "%s, process %d, start %s", host, (int)getpid(), bits);
    return 0;
}

struct run_point run_point_of(const struct js *meta, int64_t step)
{
    struct run_point point = {.branch = js_get_int(meta, "branch", 0), .step = step};
    copy(point.run, sizeof point.run, js_get_string(meta, "run", ""));
    return point;
}

int run_record_owns(const struct run_record *record, const struct run_point *point)
{
    if (point->run[0] && strcmp(point->run, record->run))
        return 0;
    return point->branch == record->branch || point->step <= record->base;
}
