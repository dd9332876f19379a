/* any_schedule.h - random pipeline schedules, right ones and changed ones, and a judge of both.
 *
 * The judge is slow and simple, and shares nothing with src/program: tests compare what trireme
 * accepts and refuses with its answer. */
#ifndef TRIREME_TESTS_UNIT_ANY_SCHEDULE_H
#define TRIREME_TESTS_UNIT_ANY_SCHEDULE_H

#include "tests/unit/any.h"

enum {
    ANY_RANKS = 8,
    ANY_STAGES = 8,
    ANY_MICROS = 6,
    ANY_ACTIONS = 3 * ANY_STAGES * ANY_MICROS,
    ANY_CHANGES = 3
};

/* kind: "F", "B", "I" or "W", or what a schedule must not have: "SEND_F". */
struct any_action {
    int stage, micro;
    const char *kind;
};

/* What one rank does, in order. */
struct any_line {
    int count;
    struct any_action action[ANY_ACTIONS + ANY_CHANGES];
};

struct any_schedule {
    int ranks, micros; /* of the run */
    int stages;        /* before any change */
    struct any_line line[ANY_RANKS];
};

/* Make a right schedule: up to ANY_STAGES stages in any order on `ranks` ranks, at least one on
 * each, 1 to ANY_MICROS micro-batches, with backward whole (B), in two parts (I, W), or both. */
void any_schedule(struct any *any, int ranks, struct any_schedule *schedule);

/* Make up to ANY_CHANGES random changes.  Returns the last change in words. */
const char *any_schedule_change(struct any *any, struct any_schedule *schedule);

/* Write a schedule as a .csv file, with empty cells, spaces and quotes here and there.  Returns 0,
 * or -1 where the file cannot be written. */
int any_schedule_write(struct any *any, const struct any_schedule *schedule, const char *path);

/* Is a schedule right?  Each stage is on one rank, and computes all of each micro-batch once and in
 * order; each rank has a stage; and the ranks come to the end without waiting for one another for
 * ever. */
int schedule_judge(const struct any_schedule *schedule);

#endif
