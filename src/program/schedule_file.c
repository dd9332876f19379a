/* schedule_file.c - a schedule from a file of text, as PyTorch writes them too: a line for each
 * rank, in it the actions in order with commas between.
 *
 *   0F0,0F1,,0B0,0B1        stage, letter, micro-batch; an empty one is time in which a rank waits
 *   ,1F0,1B0,1F1,1B1
 *
 * Letters are F, B, I (input part) and W (weight part).  Where one stage has I and W, all have: a B
 * is then an I and a W.  What a file may not hold are transfers: trireme writes those itself.
 */
#include "program/schedule_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { NUMBER_MOST = 1 << 20 };

struct reader {
    const char *path;
    struct schedule *schedule;
    struct schedule_list *list;
    int line, stages, micros; /* those seen so far */
    struct error *err;
};

static int fail(const struct reader *r, const char *cell, const char *what)
{
    return error_set(r->err, "parallel.schedule %s, line %d: \"%.40s\" %s", r->path, r->line, cell,
                     what);
}

/* The digits at *text, which it leaves behind; -1: there are none, or too large a number. */
static int take_number(const char **text)
{
    int number = 0;
    if (!isdigit((unsigned char)**text))
        return -1;
    for (; isdigit((unsigned char)**text); (*text)++) {
        number = number * 10 + (**text - '0');
        if (number > NUMBER_MOST)
            return -1;
    }
    return number;
}

/* What other tools write into such files beside the actions of computing. */
static int is_transfer(const char *kind)
{
    static const char *const kinds[] = {"SEND_F",  "SEND_B",  "RECV_F",     "RECV_B",
                                        "UNSHARD", "RESHARD", "REDUCE_GRAD"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (!strncmp(kind, kinds[k], strlen(kinds[k])))
            return 1;
    return 0;
}

static int take_action(struct reader *r, const char *cell)
{
    static const struct {
        char letter;
        enum segment_phase phase;
    } letters[] = {{.letter = 'F', .phase = PHASE_FORWARD},
                   {.letter = 'B', .phase = PHASE_BACKWARD},
                   {.letter = 'I', .phase = PHASE_BACKWARD_INPUT},
                   {.letter = 'W', .phase = PHASE_BACKWARD_WEIGHT}};
    const char *at = cell;
    int stage = take_number(&at), known = -1;
    if (stage >= 0 && is_transfer(at))
        return fail(r, cell,
                    "is a transfer; trireme adds those itself: leave only actions such as 0F0, "
                    "0B0, 0I0 and 0W0");
    if (strstr(cell, "OVERLAP"))
        return fail(r, cell, "are two actions at once, which trireme does not have");
    for (size_t k = 0; k < sizeof letters / sizeof letters[0]; k++)
        known = *at && *at == letters[k].letter ? (int)k : known;
    at += known >= 0;
    int micro = take_number(&at);
    if (stage < 0 || known < 0 || micro < 0 || *at)
        return fail(r, cell, "is no action; one is a stage, F, B, I or W, and a micro-batch: 0F0");
    schedule_add(r->list, stage, micro, letters[known].phase);
    r->stages = stage >= r->stages ? stage + 1 : r->stages;
    r->micros = micro >= r->micros ? micro + 1 : r->micros;
    return 0;
}

/* One cell, without spaces and quotes around it. */
static int take_cell(struct reader *r, char *cell)
{
    size_t length;
    cell += strspn(cell, " \t\r\n\"");
    length = strlen(cell);
    while (length && strchr(" \t\r\n\"", cell[length - 1]))
        cell[--length] = 0;
    return length ? take_action(r, cell) : 0;
}

static int take_line(struct reader *r, char *line)
{
    char *rest = line;
    if (r->line >= r->schedule->ranks) {
        if (line[strspn(line, " \t\r\n,")])
            return error_set(r->err,
                             "parallel.schedule %s has more lines than parallel.pipeline %d has "
                             "ranks",
                             r->path, r->schedule->ranks);
        return 0;
    }
    r->schedule->first[r->line++] = r->list->count;
    for (char *cell; (cell = strsep(&rest, ","));)
        if (take_cell(r, cell))
            return -1;
    return 0;
}

/* Does what the file has make a schedule of the run's ranks and micro-batches? */
static int check_sizes(struct reader *r)
{
    struct schedule *s = r->schedule;
    if (r->line < s->ranks)
        return error_set(r->err,
                         "parallel.schedule %s has %d lines, and parallel.pipeline is %d: one for "
                         "each rank is needed",
                         r->path, r->line, s->ranks);
    if (r->micros != s->micros)
        return error_set(r->err,
                         "parallel.schedule %s is of %d micro-batches a step, and the run has %d; "
                         "change train.global_batch or train.micro_batch",
                         r->path, r->micros, s->micros);
    return 0;
}

/* Where each stage is: on the first rank that has an action of it; each rank has one. */
static int find_ranks(struct reader *r)
{
    struct schedule *s = r->schedule;
    s->stages = r->stages;
    s->rank_of = array_make((size_t)s->stages, sizeof *s->rank_of);
    memset(s->rank_of, -1, (size_t)s->stages * sizeof *s->rank_of);
    for (int rank = 0; rank < s->ranks; rank++) {
        if (s->first[rank] == s->first[rank + 1])
            return error_set(r->err,
                             "parallel.schedule %s, line %d has no action: rank %d would have "
                             "nothing to do; give it a stage, or set parallel.pipeline to the "
                             "number of ranks that have one",
                             r->path, rank + 1, rank);
        for (int a = s->first[rank]; a < s->first[rank + 1]; a++) {
            int *of = &s->rank_of[r->list->action[a].stage];
            *of = *of < 0 ? rank : *of;
        }
    }
    for (int stage = 0; stage < s->stages; stage++)
        if (s->rank_of[stage] < 0)
            return error_set(r->err, "parallel.schedule %s has stage %d, but not stage %d", r->path,
                             s->stages - 1, stage);
    return 0;
}

/* Where some backward actions are in two parts, all are. */
static void split_backward(struct reader *r)
{
    struct schedule *s = r->schedule;
    struct schedule_list old = *r->list;
    *r->list = (struct schedule_list){0};
    for (int rank = 0, a = 0; rank < s->ranks; rank++) {
        int first = r->list->count;
        for (; a < s->first[rank + 1]; a++) {
            const struct schedule_action *action = &old.action[a];
            int is_whole = action->phase == PHASE_BACKWARD;
            schedule_add(r->list, action->stage, action->micro,
                         is_whole ? PHASE_BACKWARD_INPUT : action->phase);
            if (is_whole)
                schedule_add(r->list, action->stage, action->micro, PHASE_BACKWARD_WEIGHT);
        }
        s->first[rank] = first;
    }
    s->first[s->ranks] = r->list->count;
    free(old.action);
}

static int read_lines(struct reader *r, FILE *file)
{
    char *line = NULL;
    size_t space = 0;
    int rc = 0;
    while (!rc && getline(&line, &space, file) >= 0)
        rc = take_line(r, line);
    free(line);
    if (!rc && ferror(file))
        return error_errno(r->err, "parallel.schedule: reading %s", r->path);
    return rc;
}

int schedule_read(struct schedule *schedule, const char *path, struct schedule_list *list,
                  struct error *err)
{
    struct reader r = {.path = path, .schedule = schedule, .list = list, .err = err};
    FILE *file = fopen(path, "r");
    if (!file)
        return error_errno(err, "parallel.schedule: %s", path);
    int rc = read_lines(&r, file);
    fclose(file);
    if (rc || check_sizes(&r))
        return -1;
    schedule->first[schedule->ranks] = list->count;
    for (int a = 0; a < list->count; a++)
        schedule->splits_backward |= list->action[a].phase == PHASE_BACKWARD_INPUT ||
                                     list->action[a].phase == PHASE_BACKWARD_WEIGHT;
    if (find_ranks(&r))
        return -1;
    if (schedule->splits_backward)
        split_backward(&r);
    return 0;
}
