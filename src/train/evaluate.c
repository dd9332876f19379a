/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

#include <math.h>

#include "base/round.h"
#include "train/read_ahead.h"

/* The sums of an evaluation. */
struct sums {
    double loss, targets;
};

/* Run all steps of an evaluation, on samples that are read ahead. */
static int run_steps(struct session *s, struct batches *valid, struct read_ahead *ahead,
                     struct read_ahead_range range, const struct stop *stop, struct sums *sums,
                     struct error *err)
{
    struct step_input input = {
        .load = read_ahead_load, .load_positions = read_ahead_load_positions, .user = ahead};
    for (valid->sample = 0; valid->sample < range.end; valid->sample += range.each) {
        struct step_output output;
        valid->batch = min_i64(range.end - valid->sample, range.each);
        input.stop_vote = stop_asked(stop) != 0 || read_ahead_check(ahead, NULL);
        if (world_end_job_if_failed(
                s->world, executor_run_step(s->executor, s->evaluate, &input, &output, NULL, err),
                err))
            return -1;
        if (output.votes > 0)
            return EVALUATE_STOPPED;
        if (output.targets > 0)
            sums->loss += output.loss * output.targets;
        sums->targets += output.targets;
    }
    return 0;
}

int evaluate(struct session *s, struct batches *valid, int64_t batches, const struct stop *stop,
             double *loss, double *targets, struct error *err)
{
    struct read_ahead_range range = {.each = valid->micro_batch * valid->data_ranks,
                                     .end = valid->data.windows};
    struct read_ahead *ahead = NULL;
    struct sums sums = {0};
    if (batches && batches * s->layout.global_batch < range.end)
        range.end = batches * s->layout.global_batch;
    int unread = read_ahead_open(&ahead, valid, s->evaluate, range, err);
    int rc = EVALUATE_UNREADABLE;
    if (!world_agree(s->world, unread, err)) {
        rc = run_steps(s, valid, ahead, range, stop, &sums, err);
        if (rc == EVALUATE_STOPPED && world_agree(s->world, read_ahead_check(ahead, err), err))
            rc = EVALUATE_UNREADABLE;
    }
    read_ahead_close(ahead);
    if (rc == EVALUATE_UNREADABLE)
        error_prefix(err, "data.valid");
    *targets = sums.targets;
    *loss = sums.targets > 0 ? sums.loss / sums.targets : NAN;
    return rc;
}
