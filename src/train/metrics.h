/* metrics.h - what a run reports of each step: a line of metrics.jsonl (doc/metrics.md says what
 * its fields mean), and every now and then a progress line for people. */
#ifndef TRIREME_TRAIN_METRICS_H
#define TRIREME_TRAIN_METRICS_H

#include "base/line_file.h"
#include "execute/breakdown.h"
#include "train/progress.h"
#include "train/session.h"

/* One finished step. */
struct metrics_step {
    int64_t step;
    double loss, grad_norm, lr; /* loss: NAN where the step had no targets */
    double tokens;              /* targets trained on, all ranks */
    double tokens_total;        /* those of the steps before too, since the start of training */
    double epoch;               /* passes over the data so far */
    double step_ms;
    const struct breakdown *breakdown; /* of this rank; NULL: not measured */
    int skipped;
    double loss_scale;     /* 0: of a precision that has none */
    int64_t skipped_steps; /* of the run, up to this one; where there is a loss scale */
    int evaluated;         /* 1: valid_loss is there */
    double valid_loss;     /* NAN where data.valid has no targets */
};

struct metrics {
    struct log *log;
    struct line_file file; /* metrics.jsonl; closed on ranks above 0 */
    const struct mem *mem;
    struct device *device;
    struct model_flops flops; /* per token */
    double peak_flops;        /* of all ranks' GPUs together; 0: not known */
    size_t gpu_peak_bytes;    /* most that was taken of this rank's GPU, by anybody */
    int64_t steps, log_every;
    int live;         /* the progress line replaces itself */
    int offload;      /* 1: some state lives elsewhere */
    int64_t first;    /* step this start began with */
    int64_t shown_ns; /* when the live line was last written */
    struct speed speed;
};

/* Open path for appending; lines of steps after `step` (of a run that went on further before it
 * was resumed from here) are dropped.  Rank 0 only.  Returns 0, or -1 with err set. */
int metrics_open(struct metrics *metrics, const struct session *session, const char *path,
                 int64_t step, struct error *err);
void metrics_close(struct metrics *metrics); /* of a closed one: nothing */

/* Should the step be started with a breakdown?  On the CPU each, which costs nothing to speak of;
 * on a GPU those with a progress line, because every mark takes the host some time. */
int metrics_want_breakdown(const struct metrics *metrics, int64_t step);

/* Report a step: one line of JSON now, and for people every log_every steps. */
void metrics_write(struct metrics *metrics, const struct metrics_step *step);

#endif
