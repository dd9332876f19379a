/* samples.h - what a model writes, shown at evaluations: beginnings of texts of data.valid that it
 * continues, each beside how it went on.
 *
 * Of documents whose loss mask leaves out a beginning, a prompt, that is what the model is given
 * and what follows is the reference; of others the first half.  Where the first file has fewer
 * documents than texts are asked for, texts begin at places of it that are as far apart.
 */
#ifndef TRIREME_TRAIN_SAMPLES_H
#define TRIREME_TRAIN_SAMPLES_H

#include "train/session.h"
#include "train/stop.h"

struct samples;

/* Read the texts that config.generate.samples asks for, and open samples.jsonl in run.dir, without
 * its lines of steps after `step`; *samples becomes NULL where none are asked for.  Collective.
 * Returns 0, or -1 on all ranks with err set; samples_close() frees it (NULL allowed). */
int samples_open(struct samples **samples, struct session *session, int64_t step,
                 struct error *err);
void samples_close(struct samples *samples);

/* Continue all texts with the present parameters, always with the same random numbers; write a line
 * of samples.jsonl for each, and the first into the log.  stop: signals that end it early; NULL:
 * none. Collective.  Returns 0; SAMPLES_STOPPED, with nothing written, when a rank was asked to
 * stop; or -1 with err set. */
enum { SAMPLES_STOPPED = 1 };
int samples_write(struct samples *samples, int64_t step, const struct stop *stop,
                  struct error *err);

#endif
