/* trainer.h - a training run from start to end. */
#ifndef TRIREME_TRAIN_TRAINER_H
#define TRIREME_TRAIN_TRAINER_H

#include "train/run_checkpoint.h"
#include "train/session.h"
#include "train/stop.h"

struct trainer;

/* Do everything up to the first step: open the data and the run directory with log.txt, load the
 * state to resume from, then write config.yaml and open metrics.jsonl.  A request that cannot be
 * met leaves those two of an earlier start as they were.  session, and stop, which is asked on the
 * way (NULL: no signal stops the run), stay the caller's and must outlive the trainer.  Collective.
 * Returns 0 and a trainer for trainer_close(), or -1 on all ranks with err set. */
int trainer_open(struct trainer **trainer, struct session *session, struct stop *stop,
                 struct error *err);
void trainer_close(struct trainer *trainer); /* NULL allowed */

/* Train as the session's config asks: steps, evaluation, checkpoints, metrics, trace.  Collective.
 * Returns 0 when all steps are done, or -1 on all ranks with err set.  When a signal stopped the
 * run and its state is saved, err has the code EXIT_SAVED and no text. */
int trainer_run(struct trainer *trainer, struct error *err);

/* The parts of trainer_run(), for a program that has a loop of its own. */

/* Train `steps` more steps, or as many as are left of the config's, evaluating and saving between
 * them as it asks; a stop or train.early_stop ends it sooner.  Collective.  Returns 0, or -1 on all
 * ranks with err set.  Where err says that data cannot be read, the state has been saved. */
int trainer_advance(struct trainer *trainer, int64_t steps, struct error *err);

/* Save the state after the last step, unless it is saved already.  Collective.  Returns 0, or -1 on
 * all ranks with err set and its code EXIT_NODE. */
int trainer_save(struct trainer *trainer, struct error *err);

/* Write the model to run.dir/hf where checkpoint.export_hf asks for it, all steps are done or
 * train.early_stop has ended training, and the state is saved.  Collective.  Returns 0, or -1 on
 * all ranks with err set and its code EXIT_NODE. */
int trainer_export(struct trainer *trainer, struct error *err);

/* Return how far training has come: the position after the last step. */
struct run_position trainer_position(const struct trainer *trainer);

#endif
