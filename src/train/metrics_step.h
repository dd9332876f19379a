/* metrics_step.h - what is known of a finished step. */
#ifndef TRIREME_TRAIN_METRICS_STEP_H
#define TRIREME_TRAIN_METRICS_STEP_H

#include "base/json.h"
#include "execute/execute.h"
#include "io/dataset.h"

struct metrics_step {
    int64_t step;
    struct step_output output;
    double lr;
    double tokens_total; /* targets of all steps since training began */
    double epoch;        /* passes over the data; of the file read most often, where mixed */
    double epoch_s;      /* seconds that the steps of an epoch took which ends here; 0: none does,
                            or the start began within it */
    const struct dataset *data; /* whose files have epochs of their own, or NULL */
    double samples;             /* of data, read so far */
    double step_ms;
    const struct breakdown *breakdown; /* of this rank; NULL: not measured */
    double loss_scale;                 /* 0: the precision has no loss scale */
    int64_t skipped_steps;             /* of the run so far; where there is a loss scale */
    int evaluated;                     /* 1: eval_loss is set */
    double eval_loss;                  /* NAN where data.valid has no targets */
    double eval_tokens;                /* targets of the evaluation */
    struct js *compared; /* what a comparison found, which metrics_write() takes; NULL: none */
};

#endif
