/* any_schedule.h - pipeline schedules by chance: right ones, changed ones, and a judge of both.
 *
 * The judge is slow and simple, and shares nothing with src/program: what trireme thinks of a
 * schedule is held against it. */
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

/* A right one: up to ANY_STAGES stages on any of `ranks` ranks, each of which has one at least, of
 * 1 to ANY_MICROS micro-batches, with backward whole, in two parts, or both. */
void any_schedule(struct any *any, int ranks, struct any_schedule *schedule);

/* Change up to ANY_CHANGES things.  Returns what was done last, in words. */
const char *any_schedule_change(struct any *any, struct any_schedule *schedule);

/* Write it as text, with empty cells, spaces and quotes here and there.  0, or -1: it cannot be
 * written. */
int any_schedule_write(struct any *any, const struct any_schedule *schedule, const char *path);

/* Is it a schedule of its ranks and micro-batches: does each stage, on one rank, compute all of
 * each micro-batch once and in order, has each rank a stage, and can the ranks play it to the end?
 */
int schedule_judge(const struct any_schedule *schedule);

#endif
