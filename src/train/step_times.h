/* step_times.h - what a rank measures of some steps, and what all ranks' measurements say of their
 * transfers. */
#ifndef TRIREME_TRAIN_STEP_TIMES_H
#define TRIREME_TRAIN_STEP_TIMES_H

#include "program/trace.h"
#include "program/program.h"
#include "train/deviation.h"

/* A transfer as one of its members saw it, or one end of a message. */
struct step_times_transfer {
    int32_t first, last; /* ranks: its first member, and -1; of a message: sender, and receiver */
    int32_t ordinal;     /* number of the transfer among those of the same members and stream */
    uint8_t kind;        /* enum machine_transfer_kind */
    uint8_t axes;        /* mesh axes of its group */
    uint8_t stream;      /* enum program_stream */
    uint8_t unused;
    float bytes, seconds;
};

struct step_times;

/* Make the measurements of a rank's program, which stays the caller's and must outlive them, for
 * step_times_free() (NULL allowed). */
struct step_times *step_times_create(const struct program *program);
void step_times_free(struct step_times *times);

/* Forget the steps so far. */
void step_times_reset(struct step_times *times);

/* Add a step, by its trace of whole runs.  step_s: the seconds that it took; core_s: those in which
 * the calling thread had a core, 0: not known; queue_s: those in which a thread of the process was
 * ready to run and had none.  Steps after the first STEP_TIMES are left out. */
enum { STEP_TIMES = 5 };
void step_times_add(struct step_times *times, const struct trace *trace, double step_s,
                    double core_s, double queue_s);

/* Return how many steps were added, and the median of their seconds. */
int step_times_count(const struct step_times *times);
double step_times_step_s(const struct step_times *times);

/* Return the rank's measurements, medians of its steps; node is not set. */
struct deviation_rank step_times_rank(const struct step_times *times);

/* List every stride-th transfer by its ordinal, so that all members of a transfer list the same
 * ones, with the median of its seconds; for free(), *count of them. */
struct step_times_transfer *step_times_transfers(const struct step_times *times, int stride,
                                                 int *count);

/* Return the number of transfers in the program. */
int step_times_transfer_count(const struct step_times *times);

/* Sum up the transfers that all ranks have listed with this stride, in any order, by kind and
 * members: of each the member that waited least counts, and sums are multiplied by stride.  Sorts
 * `transfer`.  node: per rank.  Returns links for free(), *links of them.  Pure. */
struct deviation_link *step_times_links(struct step_times_transfer *transfer, size_t count,
                                        int stride, const struct mesh_shape *shape, const int *node,
                                        int *links);

#endif
