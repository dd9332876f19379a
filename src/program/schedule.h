/* schedule.h - in which order each pipeline rank computes which stage for which micro-batch.
 *
 * A schedule is a list of actions for each rank, made from a row of a table or read from a file. An
 * action is a stage, a micro-batch and a phase.  A stage computes its units upward in a forward
 * action, downward in one of backward; backward is one action, or two: the input part (I), whose
 * result the stage below waits for, and the weight part (W), for which nobody waits.
 *
 *   1f1b, 2 stages, 3 micro-batches         zb_h1, the same
 *   rank 0   0F0 0F1 0B0 0F2 0B1 0B2        rank 0   0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2
 *   rank 1   1F0 1B0 1F1 1B1 1F2 1B2        rank 1   1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
 *
 * A rank may have several stages ("chunks").  Looped, rank r of p has stages r, p + r, 2p + r, ...;
 * in a V, stages r and 2p - 1 - r, so that the first rank has the first stage and the last one:
 *
 *   looped, 3 ranks x 2   0 1 2 | 3 4 5          V, 3 ranks   0 1 2 |
 *                                                             5 4 3 |
 *
 * In every row of the table each stage has its backward actions in the order of the micro-batches,
 * so that gradients are summed in the same order, to the same bits.
 */
#ifndef TRIREME_PROGRAM_SCHEDULE_H
#define TRIREME_PROGRAM_SCHEDULE_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "segment/segment.h"

struct schedule_action {
    int stage, micro;
    enum segment_phase phase; /* FORWARD, and BACKWARD or BACKWARD_INPUT and BACKWARD_WEIGHT */
};

struct schedule {
    int ranks, stages, micros;
    int *rank_of; /* per stage: its rank */
    int *first;   /* per rank: its first action; first[ranks] is the number of all */
    struct schedule_action *action;
    int64_t *start;      /* per action: when it starts where each part of each stage takes 1 */
    int splits_backward; /* 1: backward is two actions everywhere */
    /* 0: each forward action of the last stage is followed at once by the whole backward of its
     * micro-batch; the unit that ends in the loss then does all in backward (PHASE_BOTH), and keeps
     * nothing but its input.  1: it has a forward and a backward of its own, as always where
     * splits_backward is 1 */
    int splits_loss;
};

/* What is wanted: a row's name, or a path that ends in ".csv", over so many ranks and micro-batches
 * a step.  chunks: stages of each rank; 0: what the row has by itself.  It is not read for a file,
 * which says where stages are. */
struct schedule_request {
    const char *name;
    int ranks, chunks, micros;
};

/* Returns 0 and a schedule for schedule_destroy(), or -1 with err set: a number of chunks that the
 * row does not have; a file that cannot be read, holds what is no action of computing, lacks or
 * doubles one, has a rank without a stage or a stage on two ranks, or has actions that wait for one
 * another: err names the circle. */
int schedule_create(struct schedule **schedule, const struct schedule_request *request,
                    struct error *err);
void schedule_destroy(struct schedule *schedule); /* NULL allowed */

/* The actions of a rank; *count of them. */
static inline const struct schedule_action *schedule_actions(const struct schedule *schedule,
                                                             int rank, int *count)
{
    *count = schedule->first[rank + 1] - schedule->first[rank];
    return &schedule->action[schedule->first[rank]];
}

/* Is a text the name of a file, not of a row? */
int schedule_is_file(const char *name);

/* ---- a row of the table, without a schedule ---- */

struct schedule_row;

/* The row of a name; NULL: there is none. */
const struct schedule_row *schedule_row(const char *name);

struct schedule_facts {
    int chunks;          /* stages of each rank, where none are asked for */
    int chunks_most;     /* that may be asked for; 0: as many as there are units */
    int splits_backward; /* 1: backward is two actions everywhere */
};
struct schedule_facts schedule_facts(const struct schedule_row *row);

/* Which of the ranks a row gives a stage to. */
int schedule_rank_of(const struct schedule_row *row, int ranks, int stage);

/* Write a schedule as text: a line for each rank, actions as "0F1" (stage 0, forward, micro-batch
 * 1; B backward, I and W its parts) with commas between. */
void schedule_write(const struct schedule *schedule, FILE *out);

/* ---- when ---- */

/* Time that an action takes, in any unit; BACKWARD takes input + weight. */
struct schedule_costs {
    int64_t forward, input, weight;
};

static inline int64_t schedule_cost(const struct schedule_costs *costs, enum segment_phase phase)
{
    switch (phase) {
    case PHASE_FORWARD: return costs->forward;
    case PHASE_BACKWARD: return costs->input + costs->weight;
    case PHASE_BACKWARD_INPUT: return costs->input;
    default: return costs->weight;
    }
}

/* Play all ranks together, each action when its rank is free and what it needs is there; transfers
 * take no time.  start[a]: when action a starts, from 0.  Returns when the last one ends, or -1
 * with err set: actions wait for one another. */
int64_t schedule_play(const struct schedule *schedule, const struct schedule_costs *costs,
                      int64_t *start, struct error *err);

/* The same where stages differ: costs[s] are those of stage s. */
int64_t schedule_play_stages(const struct schedule *schedule, const struct schedule_costs *costs,
                             int64_t *start, struct error *err);

#endif
