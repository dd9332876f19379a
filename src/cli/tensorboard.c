/* tensorboard.c - trireme tensorboard: what metrics.jsonl of runs has, as event files.
 *
 * Each run has a folder of its own name, and in it one event file of this command.  With --follow
 * lines are added as the run writes them.  A run that goes on from an earlier step cuts the later
 * steps off its metrics.jsonl, or replaces it by one without them: then a further event file
 * begins, from the first step on, which makes TensorBoard forget what the one before says.
 */
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "base/special_file.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "io/disk.h"
#include "io/event_file.h"

/* BEFORE_BYTES: enough for the last line's beginning, which has its time. */
enum { MOST_CURVES = 64, BEFORE_BYTES = 1024 };

/* What names of event files begin with, and what is in those of this command. */
static const char front[] = "events.out.tfevents.", ours[] = ".trireme.";

/* A run whose metrics are read. */
struct source {
    char *metrics, *folder; /* paths: its metrics.jsonl, and where its event files go */
    FILE *in;               /* NULL: not open */
    ino_t inode;            /* of the file that is open */
    struct event_file *out; /* NULL: no line was read yet */
    int outs;               /* event files that were begun */
    int64_t lines;          /* that became events */
    char *line;             /* what was read of a line that may not be whole yet */
    int line_bytes, line_capacity;
    char before[BEFORE_BYTES]; /* what lies before the place up to which `in` was read */
};

/* Seconds since 1970 of a line's time, "2026-11-28T10:39:03.805Z"; 0: it has none. */
static double seconds_of(const char *text)
{
    struct tm tm = {0};
    double fraction = 0;
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    if (!end)
        return 0;
    if (*end == '.')
        fraction = strtod(end, NULL);
    return (double)timegm(&tm) + fraction;
}

static int begin_events(struct source *s, double wall_s, int64_t step, struct error *err)
{
    char *path =
        array_format("%s/%s%lld%s%04d", s->folder, front, (long long)time(NULL), ours, s->outs++);
    int rc =
        disk_make_folders(s->folder, err) || event_file_create(&s->out, path, wall_s, step, err);
    free(path);
    return rc ? -1 : 0;
}

/* Add the numbers of a line; a line that is no object, or has no step, says nothing. */
static int add_line(struct source *s, struct error *err)
{
    struct event_file_value value[MOST_CURVES];
    struct js *js = js_parse(s->line, NULL);
    int64_t step = js_get_int(js, "step", -1);
    double wall_s = seconds_of(js_get_string(js, "time", NULL));
    int count = 0;
    for (const char *key = js_next_key(js, NULL); key && count < MOST_CURVES;
         key = js_next_key(js, key)) {
        double number = js_get_real(js, key, NAN);
        if (strcmp(key, "step") != 0 && isfinite(number))
            value[count++] = (struct event_file_value){key, (float)number};
    }
    int rc = 0;
    if (step >= 0 && count) {
        rc = (!s->out && begin_events(s, wall_s, step, err)) ||
             event_file_add(s->out, wall_s, step, value, count, err);
        s->lines++;
    }
    js_free(js);
    return rc ? -1 : 0;
}

/* Read what lies before the place up to which metrics are read.  Returns its bytes. */
static ssize_t read_before(const struct source *s, char before[BEFORE_BYTES])
{
    off_t at = ftello(s->in), from = at > BEFORE_BYTES ? at - BEFORE_BYTES : 0;
    return pread(fileno(s->in), before, (size_t)(at - from), from);
}

/* Is this the file that is open, with all that was read of it?  One that was cut and has grown
 * since has other lines there, as the time is in each. */
static int is_same(const struct source *s, const struct stat *info)
{
    char before[BEFORE_BYTES] = {0};
    return s->in && info->st_ino == s->inode && info->st_size >= ftello(s->in) &&
           read_before(s, before) >= 0 && !memcmp(before, s->before, BEFORE_BYTES);
}

/* Open metrics.jsonl where it is another file than before.  Returns 1; 0: it is not there; or -1
 * with err set. */
static int open_metrics(struct source *s, struct error *err)
{
    struct stat info;
    if (stat(s->metrics, &info))
        return errno == ENOENT ? 0 : error_errno(err, "cannot read %s", s->metrics);
    if (is_same(s, &info))
        return 1;
    if (special_file_refuse(s->metrics, err))
        return -1;
    FILE *in = fopen(s->metrics, "r");
    if (!in)
        return errno == ENOENT ? 0 : error_errno(err, "cannot read %s", s->metrics);
    if (s->in)
        fclose(s->in);
    s->in = in;
    s->inode = info.st_ino;
    s->line_bytes = 0;
    s->lines = 0;
    struct event_file *out = s->out;
    s->out = NULL;
    return event_file_close(out, err) ? -1 : 1;
}

static void add_character(struct source *s, int c)
{
    s->line = array_grow(s->line, s->line_bytes, &s->line_capacity, 1);
    s->line[s->line_bytes++] = (char)c;
}

/* Read on in a line.  Returns 1 where it is whole, a text without its newline; 0 where the file has
 * no more yet. */
static int read_line(struct source *s)
{
    int c;
    while ((c = getc(s->in)) != EOF && c != '\n')
        add_character(s, c);
    if (c == '\n')
        add_character(s, 0);
    clearerr(s->in); /* a file that grows goes on after its end */
    return c == '\n';
}

/* Add the lines that are new.  Returns 0, or -1 with err set. */
static int read_new(struct source *s, struct error *err)
{
    int is_open = open_metrics(s, err);
    if (is_open <= 0)
        return is_open;
    while (read_line(s)) {
        int rc = add_line(s, err);
        s->line_bytes = 0;
        if (rc)
            return -1;
    }
    memset(s->before, 0, sizeof s->before);
    read_before(s, s->before);
    return s->out ? event_file_flush(s->out, err) : 0;
}

static void close_source(struct source *s)
{
    if (s->in)
        fclose(s->in);
    event_file_close(s->out, NULL);
    free(s->metrics);
    free(s->folder);
    free(s->line);
}

static int is_ours(const char *name)
{
    return !strncmp(name, front, sizeof front - 1) && strstr(name, ours);
}

/* Take a run; its name is the last part of its path, also of "." and of one that ends in '/'. */
static int take_run(struct source *s, const char *run, const char *folder, struct error *err)
{
    char *whole = realpath(run, NULL);
    if (!whole)
        return error_errno(err, "cannot read run %s", run);
    *s = (struct source){.metrics = array_format("%s/metrics.jsonl", whole)};
    s->folder = array_format("%s/%s", folder, basename(whole));
    free(whole);
    return 0;
}

static int check_names(const struct source *sources, char **runs, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(sources[i].folder, sources[j].folder))
                return error_set(err, "%s and %s have one name; write them to two folders", runs[j],
                                 runs[i]);
    return 0;
}

/* Remove the event files that this command wrote before: the new one has all that they have. */
static int remove_old(const struct source *s, struct error *err)
{
    DIR *folder = opendir(s->folder);
    int rc = 0;
    for (struct dirent *entry; folder && !rc && (entry = readdir(folder));)
        if (is_ours(entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0))
            rc = error_errno(err, "cannot remove %s/%s", s->folder, entry->d_name);
    if (folder)
        closedir(folder);
    return rc;
}

static int remove_all_old(const struct source *sources, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (remove_old(&sources[i], err))
            return -1;
    return 0;
}

static int read_all(struct source *sources, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (read_new(&sources[i], err))
            return -1;
    return 0;
}

/* Read all runs once; those without steps are left out with a warning, unless all are. */
static int read_once(struct app *app, struct source *sources, char **runs, int count,
                     struct error *err)
{
    int without = 0;
    if (read_all(sources, count, err))
        return -1;
    for (int i = 0; i < count; i++)
        if (!sources[i].lines && ++without < count)
            log_warn(&app->log, "%s has no metrics.jsonl with steps, and is left out", runs[i]);
    if (without < count)
        return 0;
    return error_set(err,
                     "%s has no metrics.jsonl with steps: it is no run, or has just begun "
                     "(--follow waits for steps)",
                     runs[count - 1]);
}

static int follow(struct app *app, struct source *sources, int count, const char *folder,
                  struct error *err)
{
    const struct timespec pause = {.tv_sec = 1};
    log_info(&app->log, "writing to %s until Ctrl-C; look at it with tensorboard --logdir %s",
             folder, folder);
    while (!read_all(sources, count, err))
        nanosleep(&pause, NULL);
    return -1;
}

int command_tensorboard(struct app *app, int argc, char **argv, struct error *err)
{
    int follows = arguments_flag("--follow", &argc, argv);
    const char *folder = arguments_option("-o", &argc, argv);
    int count = argc - 1, rc = 0;
    char **runs = argv + 1;
    if (!count || !folder)
        return error_set(err, "no %s: trireme tensorboard RUN... -o FOLDER",
                         count ? "folder to write to" : "run");
    struct source *sources = array_make((size_t)count, sizeof *sources);
    for (int i = 0; i < count && !rc; i++)
        rc = take_run(&sources[i], runs[i], folder, err);
    rc = rc || check_names(sources, runs, count, err) || remove_all_old(sources, count, err) ||
         (follows ? follow(app, sources, count, folder, err)
                  : read_once(app, sources, runs, count, err));
    for (int i = 0; i < count; i++) {
        struct event_file *out = sources[i].out;
        sources[i].out = NULL;
        rc = event_file_close(out, rc ? NULL : err) || rc;
        if (!rc && sources[i].lines)
            printf("%s: %lld steps\n", sources[i].folder, (long long)sources[i].lines);
        close_source(&sources[i]);
    }
    free(sources);
    return rc ? -1 : 0;
}
