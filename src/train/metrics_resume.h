/* metrics_resume.h - the metrics of a run that goes on from one of its steps. */
#ifndef TRIREME_TRAIN_METRICS_RESUME_H
#define TRIREME_TRAIN_METRICS_RESUME_H

#include "base/log.h"

/* Remove from the file at path the lines of steps after `step`, which will be computed again.  A
 * line that is no JSON object (cut off by a crash or a full disk) is left out, with a warning; a
 * complete line that follows an incomplete one in the same line is kept.  The file is replaced as a
 * whole, and only if a line is left out; it may be absent.  Returns 0, or -1 with err set. */
int metrics_resume(const char *path, int64_t step, struct log *log, struct error *err);

#endif
