/* trainer_private.h - a trainer, and what trainer.c, trainer_evaluate.c and trainer_run.c share. */
#ifndef TRIREME_TRAIN_TRAINER_PRIVATE_H
#define TRIREME_TRAIN_TRAINER_PRIVATE_H

#include "base/clock.h"
#include "program/memory.h"
#include "train/comparison.h"
#include "train/core_wait.h"
#include "train/disk_rate.h"
#include "train/metrics.h"
#include "train/pending_update.h"
#include "train/run_directory.h"
#include "train/run_forecast.h"
#include "train/samples.h"
#include "train/trainer.h"
#include "train/training_data.h"

/* A step between its start and its end. */
struct trainer_flight {
    int under_way;               /* 1: started, and not yet ended */
    struct step_pending pending; /* for step_finish() */
    struct metrics_step report;  /* its metrics, as far as known */
    struct trace trace;          /* where traced or measured */
    int traced;                  /* 1: for trace.json */
    int measured;                /* 1: for the comparison */
    int beside_saving;           /* 1: a checkpoint was being written when it began */
    struct core_wait core_wait;  /* where measured */
    int64_t start_ns;            /* when it was started */
    int64_t core_ns;             /* time on a core of this thread in step_start(); 0: not known */
};

_Static_assert(MEMORY_STEPS == 2, "memory is planned for the steps of flight[]");

struct trainer {
    struct session *s;
    struct stop *stop; /* signals that ask the run to stop; NULL: none */
    struct run_directory dir;
    struct training_data data;
    struct metrics metrics;
    struct samples *samples; /* NULL: none are asked for */
    struct disk_rate disk_rate;
    struct run_forecast forecast;
    struct comparison *comparison;
    struct run_position at;          /* after the step last started */
    struct trainer_flight flight[2]; /* [step % 2] */
    struct breakdown breakdown[2];   /* [step % 2] */
    int64_t until;             /* the last step of this call; the one after it is not started */
    int64_t finished_ns;       /* when the last step ended */
    int64_t pending_update_ns; /* spent in trainer_make_pending_update() since then */
    int is_stopping;           /* 1: a rank was asked to stop, or cannot read its data */
    int save_due;              /* 1: write a checkpoint at the next step that updates something */
    struct pending_update pending; /* the update left by the step last started */
    int skips; /* steps in a row that updated nothing, but for those that lowered the loss scale */
    int64_t begun;   /* finished steps when this start began */
    double epoch_ms; /* time of the steps of this epoch so far; negative: this start began within
                        the epoch, whose time is not known */
};

/* Is something that happens after every `every` steps (0: never) due after this step? */
static inline int trainer_is_due(int64_t every, int64_t step)
{
    return every && step % every == 0;
}

/* Does train.early_stop end training: have as many evaluations in a row had no better loss? */
static inline int trainer_is_over(const struct trainer *t)
{
    int64_t most = t->s->config.train.early_stop;
    return most && t->at.best.without >= most;
}

/* Is there anything left to do: steps, a checkpoint of the state, or an evaluation that a stop
 * interrupted?  What is over has a checkpoint and trains no more. */
static inline int trainer_has_work(const struct trainer *t)
{
    int is_trained =
        trainer_is_over(t) || (t->at.step >= t->s->config.train.steps && !t->at.evaluation_due);
    return !is_trained || t->dir.saved_step < 0;
}

/* Make the update that the last step has left, before anything but the next step reads the state.
 * Its time counts in the next step.  Returns 0, or -1 with err set; a failure on one of several
 * ranks ends the job. */
static inline int trainer_make_pending_update(struct trainer *t, struct error *err)
{
    int64_t begin = clock_ns();
    int rc = pending_update_make(&t->pending, t->s, err);
    t->pending_update_ns += t->s->update ? clock_ns() - begin : 0;
    return world_end_job_if_failed(t->s->world, rc, err);
}

/* Evaluate the state after the step last ended, where that is due, into its report.  Collective.
 * Returns 0, or -1 on all ranks with err set. */
int trainer_evaluate_if_due(struct trainer *t, struct metrics_step *report, struct error *err);

/* Make the evaluation that a stop interrupted, of the state that this start resumed, and write its
 * line of metrics; a checkpoint is due then.  Collective.  Returns 0, or -1 on all ranks with err
 * set. */
int trainer_make_up_evaluation(struct trainer *t, struct error *err);

#endif
