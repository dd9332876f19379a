/* metrics_resume.h - the metrics of a run that goes on from one of its steps. */
#ifndef TRIREME_TRAIN_METRICS_RESUME_H
#define TRIREME_TRAIN_METRICS_RESUME_H

#include "base/log.h"

/* Remove from the file at path the lines of steps after `step`, which will be computed again.  A
 * line that is cut off (by a crash or a full disk) or that is no JSON object is left out, with a
 * warning; but one that begins with its step and ends as an object does stays, whatever is between.
 * A complete line that follows an incomplete one in the same line is kept.  The file is cut where
 * the lines to be left out are its last ones, replaced as a whole where they are not, and else left
 * as it is; it may be absent.  Returns 0, or -1 with err set. */
int metrics_resume(const char *path, int64_t step, struct log *log, struct error *err);

/* Set *step to that of the last line of the file at path that can be read; 0: there is none, or no
 * file.  Reads the end of the file alone.  Returns 0, or -1 with err set. */
int metrics_last_step(const char *path, int64_t *step, struct error *err);

#endif
