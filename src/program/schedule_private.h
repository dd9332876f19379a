/* schedule_private.h - what the files of a schedule share. */
#ifndef TRIREME_PROGRAM_SCHEDULE_PRIVATE_H
#define TRIREME_PROGRAM_SCHEDULE_PRIVATE_H

#include "program/schedule.h"

/* Actions of all ranks, rank after rank. */
struct schedule_list {
    struct schedule_action *action;
    int count, capacity;
};

/* Append an action of the rank that is being listed. */
void schedule_add(struct schedule_list *list, int stage, int micro, enum segment_phase phase);

/* How a row gives stages to ranks. */
enum schedule_placement { PLACED_LOOPED, PLACED_V };

/* A row of the table. */
struct schedule_row {
    const char *name;
    enum schedule_placement placement;
    int chunks;                    /* stages of a rank where none are asked for */
    int chunks_least, chunks_most; /* that may be asked for; 0: as many as there are units */
    int splits_backward;
    /* Append the actions of a rank in order; the schedule's sizes and rank_of are set. */
    void (*list)(const struct schedule *schedule, int rank, struct schedule_list *list);
};

/* Fill a schedule of which ranks and micros are set from a file.  0, or -1 with err set. */
int schedule_read(struct schedule *schedule, const char *path, struct schedule_list *list,
                  struct error *err);

/* "1F0" into text; returns text. */
enum { SCHEDULE_TEXT = 40 };
const char *schedule_text(const struct schedule_action *action, char text[SCHEDULE_TEXT]);

#endif
