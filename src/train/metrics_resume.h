/* metrics_resume.h - the metrics of a run that goes on from one of its steps. */
#ifndef TRIREME_TRAIN_METRICS_RESUME_H
#define TRIREME_TRAIN_METRICS_RESUME_H

#include "base/log.h"

/* Take out of the file at path the lines of steps after `step`, which will be done again.  A line
 * that is no JSON object (torn by a crash or a full disk) costs itself alone, and is warned of; a
 * good line behind a torn piece on the same line is kept.  The file is replaced as a whole, and
 * only if there is something to take out; no file is fine.  Returns 0, or -1 with err set. */
int metrics_resume(const char *path, int64_t step, struct log *log, struct error *err);

#endif
