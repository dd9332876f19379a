/* step_times.h - what a rank measures of some steps, and what all ranks' measurements say of their
 * transfers. */
#ifndef TRIREME_TRAIN_STEP_TIMES_H
#define TRIREME_TRAIN_STEP_TIMES_H

#include "program/trace.h"
#include "program/program.h"
#include "train/deviation.h"

/* A transfer as one of its members saw it, or one end of a message. */
struct step_times_transfer {
    int32_t first, last; /* ranks: the first member and -1; of a message from which to which */
    int32_t ordinal;     /* among those of its members and stream */
    uint8_t kind, axes, stream, unused;
    float bytes, seconds;
};

struct step_times;

/* Of a rank's program, the caller's, for step_times_free() (NULL allowed). */
struct step_times *step_times_create(const struct program *program);
void step_times_free(struct step_times *times);

/* Forget the steps so far. */
void step_times_reset(struct step_times *times);

/* Add a step by its trace, of whole runs, which took step_s; core_s: in which the calling thread
 * had a core, 0: not known; queue_s: in which a thread of the process was ready and had none.  More
 * than STEP_TIMES steps are left out. */
enum { STEP_TIMES = 5 };
void step_times_add(struct step_times *times, const struct trace *trace, double step_s,
                    double core_s, double queue_s);

/* Steps that were added, and the median of what they took. */
int step_times_count(const struct step_times *times);
double step_times_step_s(const struct step_times *times);

/* The rank's measurements, medians of its steps; node is not set. */
struct deviation_rank step_times_rank(const struct step_times *times);

/* Every stride-th transfer by its ordinal, with the median of its seconds; free() them. Members of
 * a transfer take the same ones. */
struct step_times_transfer *step_times_transfers(const struct step_times *times, int stride,
                                                 int *count);

/* Transfers of the program. */
int step_times_transfer_count(const struct step_times *times);

/* From all ranks' transfers, in any order, which this sorts: of each the member that waited least
 * counts.  node: of each rank.  Returns links for free(), their number in *links; sums are scaled
 * by stride.  Pure. */
struct deviation_link *step_times_links(struct step_times_transfer *transfer, size_t count,
                                        int stride, const struct mesh_shape *shape, const int *node,
                                        int *links);

#endif
