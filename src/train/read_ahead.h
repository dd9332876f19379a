/* read_ahead.h - tokens of the steps to come, read before they are needed, so that a file which
 * cannot be read any more costs no step that was trained.
 *
 * In the middle of a step one rank's failure cannot be returned to the others, which wait for that
 * rank: the job has to end at once.  So what step n trains on is read during step n - READ_AHEAD,
 * and kept.  Where that fails, the rank asks all to stop, with its vote of the step after; the
 * steps that still run have their tokens in memory:
 *
 *   step 7   reads what step 10 needs: the file is damaged
 *   step 8   carries the vote to stop
 *   step 9   is started before a GPU's step 8 has ended, and with it the vote is known
 *            all save the state of step 8 or 9
 */
#ifndef TRIREME_TRAIN_READ_AHEAD_H
#define TRIREME_TRAIN_READ_AHEAD_H

#include "program/memory.h"
#include "train/batches.h"

/* Steps between reading and use: the one whose vote says it, and those that may be under way. */
enum { READ_AHEAD = 1 + MEMORY_STEPS };

struct read_ahead;

/* The samples that are read. */
struct read_ahead_range {
    int64_t first; /* the first sample of the first step */
    int64_t each;  /* samples of a step */
    int64_t end;   /* the sample before which reading ends */
};

/* Read what the program's LOAD instructions on this rank load in the first READ_AHEAD steps.  Keeps
 * READ_AHEAD + 1 steps: 4 bytes for each value that is loaded, not counted in the memory plan.
 * batches stays the caller's, who sets batches->sample to a step's first sample before each step.
 * Not collective.  Returns 0, or -1 with err set, as batches_load(), or without memory;
 * read_ahead_close() in either case. */
int read_ahead_open(struct read_ahead **ahead, struct batches *batches,
                    const struct program *program, struct read_ahead_range range,
                    struct error *err);
void read_ahead_close(struct read_ahead *ahead); /* NULL allowed */

/* Functions for a step_input (execute.h), whose user is the struct read_ahead.  They give a step
 * what was read for it, and read what the step READ_AHEAD later needs; if that fails,
 * read_ahead_check() returns it.  A step for which nothing was read is loaded as by batches_load().
 * Return 0, or -1 with err set where that fails. */
int read_ahead_load(void *user, const struct step_batch *batch, struct error *err);
int read_ahead_load_positions(void *user, const struct step_batch *batch, struct error *err);

/* Has everything been read?  Returns 0, or -1 with err (NULL allowed) set to the first failure on
 * this rank. */
int read_ahead_check(const struct read_ahead *ahead, struct error *err);

#endif
