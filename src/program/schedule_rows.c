/* schedule_rows.c - the table of schedules.
 *
 * naive, gpipe, 1f1b and zb_h1 have one stage on each rank.  In each of them forward is some
 * micro-batches ahead of backward, and weight parts, where they are actions of their own, are some
 * after it: these rows differ in the two numbers (Huang et al. 2019, GPipe; Narayanan et al. 2019,
 * PipeDream-flush, 1F1B; Qi et al. 2023, Zero Bubble Pipeline Parallelism, ZB-H1).
 *
 * interleaved_1f1b and zb_v have several; how they go is said where they are.
 */
#include "program/schedule_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"

/* Forward is `ahead` micro-batches ahead of backward; weight parts, if there are any, `late` behind
 * its input parts. */
static void list_ahead(const struct schedule *s, int rank, int ahead, int late,
                       struct schedule_list *list)
{
    int micros = s->micros;
    ahead = min_int(ahead, micros);
    for (int m = -ahead; m < micros + late; m++) {
        if (m + ahead < micros)
            schedule_add(list, rank, m + ahead, PHASE_FORWARD);
        if (m >= 0 && m < micros)
            schedule_add(list, rank, m, s->splits_backward ? PHASE_BACKWARD_INPUT : PHASE_BACKWARD);
        if (s->splits_backward && m >= late)
            schedule_add(list, rank, m - late, PHASE_BACKWARD_WEIGHT);
    }
}

static void list_naive(const struct schedule *s, int rank, struct schedule_list *list)
{
    list_ahead(s, rank, 0, 0, list);
}

static void list_gpipe(const struct schedule *s, int rank, struct schedule_list *list)
{
    list_ahead(s, rank, s->micros, 0, list);
}

/* As many ahead as there are ranks after this one. */
static void list_1f1b(const struct schedule *s, int rank, struct schedule_list *list)
{
    list_ahead(s, rank, s->ranks - 1 - rank, 0, list);
}

/* Weight parts are put off by as many micro-batches as there are ranks before: they fill the time
 * in which the rank would wait, and every rank holds as many micro-batches as the first of 1F1B. */
static void list_zb_h1(const struct schedule *s, int rank, struct schedule_list *list)
{
    list_ahead(s, rank, s->ranks - 1 - rank, rank, list);
}

/* ---- interleaved ---- */

struct pass {
    int chunk, micro;
};

/* The order in which a rank's chunks pass their micro-batches forward: rounds of about as many
 * micro-batches as there are ranks; in a round, chunk by chunk.  Returns the size of the first
 * round, the largest. */
static int order_passes(const struct schedule *s, int chunks, struct pass *pass)
{
    int rounds = s->micros < s->ranks ? 1 : s->micros / s->ranks, more = s->micros % rounds;
    for (int round = 0, begin = 0, count = 0; round < rounds; round++) {
        int end = begin + s->micros / rounds + (round < more);
        for (int chunk = 0; chunk < chunks; chunk++)
            for (int micro = begin; micro < end; micro++)
                pass[count++] = (struct pass){chunk, micro};
        begin = end;
    }
    return s->micros / rounds + (more > 0);
}

/* Narayanan et al. 2021 (Efficient Large-Scale Language Model Training on GPU Clusters), in rounds:
 * forward goes on until the first micro-batch is through all chunks of the last rank and back here;
 * from then on a backward follows each forward.  Backward has the chunks in reverse. */
static void list_interleaved(const struct schedule *s, int rank, struct schedule_list *list)
{
    int chunks = s->stages / s->ranks, passes = chunks * s->micros;
    struct pass *pass = array_make((size_t)passes, sizeof *pass);
    int round = order_passes(s, chunks, pass);
    int ahead = min_int(passes, (chunks - 1) * round + 2 * (s->ranks - 1 - rank));
    for (int k = 0; k < passes + ahead; k++) {
        if (k < passes)
            schedule_add(list, pass[k].chunk * s->ranks + rank, pass[k].micro, PHASE_FORWARD);
        if (k >= ahead) {
            const struct pass *back = &pass[k - ahead];
            schedule_add(list, (chunks - 1 - back->chunk) * s->ranks + rank, back->micro,
                         PHASE_BACKWARD);
        }
    }
    free(pass);
}

/* ---- in a V ---- */

/* A rank's list of zb_v being written: how many actions of each phase the two chunks have. */
struct v_list {
    const struct schedule *schedule;
    struct schedule_list *list;
    int rank, done[2][PHASES];
};

/* The next micro-batch of a chunk in a phase; one that the step does not have is left out. */
static void next(struct v_list *v, int chunk, enum segment_phase phase)
{
    int stage = chunk ? v->schedule->stages - 1 - v->rank : v->rank;
    int micro = v->done[chunk][phase]++;
    if (micro < v->schedule->micros)
        schedule_add(v->list, stage, micro, phase);
}

static void next_backward(struct v_list *v, int chunk)
{
    next(v, chunk, PHASE_BACKWARD_INPUT);
    next(v, chunk, PHASE_BACKWARD_WEIGHT);
}

/* Until the rank has all the micro-batches in work that it ever has. */
static void warm_up(struct v_list *v, int ranks)
{
    for (int k = 0; k < 2 * (ranks - v->rank) - 1; k++)
        next(v, 0, PHASE_FORWARD);
    for (int k = 0; k < v->rank; k++) {
        next(v, 1, PHASE_FORWARD);
        next(v, 0, PHASE_FORWARD);
    }
    for (int k = 0; k < ranks - v->rank; k++) {
        next(v, 1, PHASE_FORWARD);
        next_backward(v, 1);
    }
}

/* What is left once forward is done: input parts first, for which others wait. */
static void cool_down(struct v_list *v, int ranks)
{
    for (int k = 0; k < v->rank; k++) {
        next(v, 0, PHASE_BACKWARD_INPUT);
        next(v, 1, PHASE_BACKWARD_INPUT);
    }
    for (int k = 0; k < ranks - v->rank; k++)
        next_backward(v, 0);
    for (int chunk = 1; chunk >= 0; chunk--)
        while (v->done[chunk][PHASE_BACKWARD_WEIGHT] < v->done[chunk][PHASE_BACKWARD_INPUT])
            next(v, chunk, PHASE_BACKWARD_WEIGHT);
}

/* Qi et al. 2024 (Pipeline Parallelism with Controllable Memory), ZB-V: every rank holds p
 * micro-batches of both chunks.  The order is that of at least 2p - 1 micro-batches, of which those
 * that the step has are kept. */
static void list_zb_v(const struct schedule *s, int rank, struct schedule_list *list)
{
    struct v_list v = {.schedule = s, .list = list, .rank = rank};
    int micros = s->micros > 2 * s->ranks - 1 ? s->micros : 2 * s->ranks - 1;
    const int *forward[2] = {&v.done[0][PHASE_FORWARD], &v.done[1][PHASE_FORWARD]};
    warm_up(&v, s->ranks);
    while (*forward[1] < *forward[0] || *forward[0] < micros) {
        if (*forward[0] < micros)
            next(&v, 0, PHASE_FORWARD);
        next_backward(&v, 0);
        next(&v, 1, PHASE_FORWARD);
        next_backward(&v, 1);
    }
    cool_down(&v, s->ranks);
}

/* ---- */

const struct schedule_row *schedule_row(const char *name)
{
    static const struct schedule_row rows[] = {
        {.name = "naive", .chunks = 1, .chunks_least = 1, .chunks_most = 1, .list = list_naive},
        {.name = "gpipe", .chunks = 1, .chunks_least = 1, .chunks_most = 1, .list = list_gpipe},
        {.name = "1f1b", .chunks = 1, .chunks_least = 1, .chunks_most = 1, .list = list_1f1b},
        {.name = "zb_h1",
         .chunks = 1,
         .chunks_least = 1,
         .chunks_most = 1,
         .splits_backward = 1,
         .list = list_zb_h1},
        {.name = "interleaved_1f1b", .chunks = 2, .chunks_least = 1, .list = list_interleaved},
        {.name = "zb_v",
         .placement = PLACED_V,
         .chunks = 2,
         .chunks_least = 2,
         .chunks_most = 2,
         .splits_backward = 1,
         .list = list_zb_v},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}
