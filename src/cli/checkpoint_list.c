/* checkpoint_list.c - see checkpoint_list.h.
 *
 *     name                 size tensors ...
 *     branch 1, at work; it began at step 15 of branch 0
 *     step-00000015     1.94 MB      29 ...
 *     branch 0, left, in RUN/branches/0; it began with the run
 *     step-00000020     1.94 MB      29 ...
 */
#include "cli/checkpoint_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"
#include "train/run_record.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* "2026-11-22 06:30 f3231799/0 2.5314", as far as meta.json holds them. */
static void describe_meta(const struct js *meta, char *text, size_t bytes)
{
    char loss[16] = "-", run[40] = "-";
    double number = js_get_real(meta, "loss", 0);
    const char *name = js_get_string(meta, "run", NULL), *time = js_get_string(meta, "time", "-");
    if (number > 0)
        snprintf(loss, sizeof loss, "%.4f", number);
    if (name)
        snprintf(run, sizeof run, "%.8s/%lld", name, (long long)js_get_int(meta, "branch", 0));
    const char *clock = strchr(time, 'T');
    snprintf(text, bytes, "%-10.10s %-5.5s  %-10s %8s", time, clock ? clock + 1 : "", run, loss);
}

/* The row of a checkpoint of which only the name is known. */
static void print_unread(const char *name, const char *state, const char *why)
{
    printf("%-14s %10s %7s %5s  %-46s %s%s\n", name, "-", "-", "-", "-", state, why);
}

static void print_rows(const struct checkpoint_entry *entries, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        const struct checkpoint_entry *entry = &entries[i];
        struct checkpoint *checkpoint;
        struct error why = {0};
        char size[DISK_SIZE], about[80];
        const char *name = base_name(entry->path);
        if (!entry->committed) {
            print_unread(name, "not committed", "");
        } else if (checkpoint_open(&checkpoint, entry->path, &why)) {
            print_unread(name, "damaged: ", why.text);
        } else {
            int damaged = checkpoint_sizes(checkpoint, &why);
            describe_meta(checkpoint->meta, about, sizeof about);
            int is_stable_end = js_get_bool(checkpoint->meta, "stable_end", 0);
            printf("%-14s %10s %7d %5d  %s  %s%s\n", name,
                   disk_size((double)checkpoint->bytes, size), checkpoint->tensors,
                   checkpoint->ranks, about, damaged ? "damaged: " : "committed",
                   damaged         ? why.text
                   : is_stable_end ? ", the decay begins here"
                                   : "");
            checkpoint_close(checkpoint);
        }
    }
}

/* Branches */

/* A record that cannot be read counts as none. */
static struct run_record read_record(const char *dir, const char *name)
{
    struct run_record record;
    struct error why = {0};
    if (run_record_read(&record, dir, name, &why))
        record.run[0] = 0;
    return record;
}

static void print_origin(const struct run_record *record)
{
    const struct run_point *start = &record->start;
    if (!record->run[0])
        printf("where it began is not recorded\n");
    else if (!record->has_start)
        printf("it began with the run\n");
    else if (start->run[0] && strcmp(start->run, record->run) != 0)
        printf("it began at step %lld of run %.8s, branch %lld\n", (long long)start->step,
               start->run, (long long)start->branch);
    else
        printf("it began at step %lld of branch %lld\n", (long long)start->step,
               (long long)start->branch);
}

static int is_number(const struct dirent *item)
{
    return text_is_digits(item->d_name);
}

static int print_left(const char *run, const char *number, struct error *err)
{
    struct checkpoint_entry *entries = NULL;
    char *dir = array_format("%s/branches/%s", run, number);
    char *folder = array_format("%s/branches/%s/checkpoints", run, number);
    int count = checkpoint_list(&entries, folder, err);
    if (count >= 0) {
        struct run_record record = read_record(dir, BRANCH_RECORD);
        printf("branch %s, left, in %s; ", number, dir);
        print_origin(&record);
        print_rows(entries, count);
    }
    checkpoint_list_free(entries, count > 0 ? count : 0);
    free(folder);
    free(dir);
    return count < 0 ? -1 : 0;
}

/* The current branch may have a folder too: copies made by a start that was killed before it left
 * the branch. */
static int print_branches(const char *run, int64_t current, struct error *err)
{
    struct dirent **items = NULL;
    char *dir = array_format("%s/branches", run);
    int count = scandir(dir, &items, is_number, versionsort), rc = 0;
    if (count < 0 && errno != ENOENT)
        rc = error_errno(err, "cannot read folder %s", dir);
    for (int i = count - 1; i >= 0; i--) {
        if (!rc && atoll(items[i]->d_name) != current)
            rc = print_left(run, items[i]->d_name, err);
        free(items[i]);
    }
    free(items);
    free(dir);
    return rc;
}

int checkpoint_list_print(const struct checkpoint_selection *selection, struct error *err)
{
    const char *run = selection->run;
    struct run_record record = {0};
    if (run)
        record = read_record(run, RUN_RECORD);
    printf("%-14s %10s %7s %5s  %-16s  %-10s %8s  %s\n", "name", "size", "tensors", "ranks",
           "saved (UTC)", "run/branch", "loss", "state");
    if (record.run[0] && record.branch) {
        printf("branch %lld, at work; ", (long long)record.branch);
        print_origin(&record);
    }
    print_rows(selection->entries, selection->count);
    return run ? print_branches(run, record.run[0] ? record.branch : -1, err) : 0;
}
