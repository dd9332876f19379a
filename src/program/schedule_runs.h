/* schedule_runs.h - what the files that make a rank's runs from its schedule share.
 *
 * schedule_runs.c lists the runs and writes them, schedule_arrivals.c decides at which action each
 * message is received, schedule_sets.c in which buffers a micro-batch's values lie.
 */
#ifndef TRIREME_PROGRAM_SCHEDULE_RUNS_H
#define TRIREME_PROGRAM_SCHEDULE_RUNS_H

#include "program/runs.h"
#include "program/schedule.h"

/* An action of the rank, and its runs: runs->run[first] and the count - 1 after it. */
struct schedule_runs_action {
    struct schedule_action scheduled;
    int first, count;
};

/* Something that an action reads and another rank makes. */
struct schedule_arrival {
    int needs;    /* the action that reads it */
    int action;   /* the action at which it is received: before its runs, */
    int is_after; /* or, if 1, after its runs and before what it sends */
    int from;     /* the rank that makes it */
    enum program_stream stream;
    int64_t time; /* when that rank has made it (schedule->start) */
};

/* What a rank does in a step of training, or in one evaluation or pass of generation: its actions,
 * their runs, and what it receives. */
struct schedule_runs {
    const struct program *program;
    struct run *run; /* in the order of the list */
    int count;
    struct schedule_runs_action *action; /* in the order of the schedule */
    int actions;
    struct schedule_arrival *arrival; /* in the order in which they are received */
    int arrivals;
};

/* schedule_arrivals.c: make runs->arrival, for free(): all that the rank receives. */
void schedule_list_arrivals(struct schedule_runs *runs);

/* schedule_sets.c: find which set of addresses each micro-batch has in each stage, for
 * schedule_free_sets(). */
void schedule_find_sets(const struct schedule_runs *runs, struct runs_sets *sets);
void schedule_free_sets(struct runs_sets *sets);

#endif
