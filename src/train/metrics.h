/* metrics.h - what a run reports: metrics.jsonl, and a progress line for people. */
#ifndef TRIREME_TRAIN_METRICS_H
#define TRIREME_TRAIN_METRICS_H

#include <stdio.h>

#include "train/session.h"

/* One finished step. */
struct metrics_step {
    int64_t step;
    double loss, grad_norm, lr;
    double tokens; /* targets trained on, all ranks */
    double step_ms;
    int skipped;
    double loss_scale;     /* 0: of a precision that has none */
    int64_t skipped_steps; /* of the run, up to this one; where there is a loss scale */
    double valid_loss;     /* NAN where it was not evaluated */
};

struct metrics {
    struct log *log;
    FILE *file; /* metrics.jsonl; NULL on ranks above 0 */
    const struct mem *mem;
    struct device *device;
    struct model_flops flops; /* per token */
    double peak_flops;        /* of all ranks' GPUs together; 0: not known */
    size_t gpu_peak_bytes;    /* most that was taken of this rank's GPU, by anybody */
    int ranks;
    int64_t steps, log_every;
    int terminal;  /* the progress line overwrites itself */
    int64_t first; /* step this start began with */
    int64_t begin_ns;
    double mean_ms; /* of recent steps, for the ETA */
};

/* Open path for appending; lines of steps after `step` (of a run that went on further before it
 * was resumed from here) are dropped.  Rank 0 only.  Returns 0, or -1 with err set. */
int metrics_open(struct metrics *metrics, const struct session *session, const char *path,
                 int64_t step, struct error *err);
void metrics_close(struct metrics *metrics);

/* Report a step: one line of JSON now, and for people every log_every steps. */
void metrics_write(struct metrics *metrics, const struct metrics_step *step);

#endif
