/* metrics.h - what a run reports of each step: a line of metrics.jsonl (doc/metrics.md says what
 * its fields mean), and every now and then a progress line for people. */
#ifndef TRIREME_TRAIN_METRICS_H
#define TRIREME_TRAIN_METRICS_H

#include "base/line_file.h"
#include "execute/breakdown.h"
#include "train/progress.h"
#include "train/session.h"

struct metrics {
    const struct session *s;
    struct line_file file;    /* metrics.jsonl; closed on ranks above 0 */
    double step_tokens;       /* of the sequences of a step, masked ones too */
    struct model_flops flops; /* per token */
    double peak_flops;        /* of all ranks' GPUs together; 0: not known */
    size_t gpu_peak_bytes;    /* most bytes in use on this rank's GPU, by all processes */
    int live;                 /* the progress line replaces itself */
    int64_t first;            /* step this start began with */
    int64_t masked;           /* steps of this start without a target */
    int64_t shown_ns;         /* when the live line was last written */
    struct speed speed;
};

/* Open path for appending.  Lines of steps after `step`, which a run wrote before it was resumed
 * from this earlier one, are removed.  Rank 0 only.  Returns 0, or -1 with err set. */
int metrics_open(struct metrics *metrics, const struct session *session, const char *path,
                 int64_t step, struct error *err);
void metrics_close(struct metrics *metrics); /* does nothing if it is closed */

/* Does this step need a breakdown?  On the CPU every step, because it costs next to nothing; on a
 * GPU only steps with a progress line, because recording an event costs host time. */
int metrics_want_breakdown(const struct metrics *metrics, int64_t step);

/* Report a step: one line of JSON now, and for people every log_every steps. */
void metrics_write(struct metrics *metrics, const struct metrics_step *step);

/* Report the evaluation alone, of a step that an earlier start has reported. */
void metrics_write_evaluation(struct metrics *metrics, const struct metrics_step *step);

#endif
