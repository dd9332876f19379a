/* tracing.h - the trace of one step of all ranks, as trace.json in the run directory. */
#ifndef TRIREME_TRAIN_TRACING_H
#define TRIREME_TRAIN_TRACING_H

#include "train/session.h"

/* Gather the ranks' events to rank 0 and write them; a file that cannot be written is a warning.
 * Collective.  Returns 0, or -1 on all ranks with err set where they cannot be gathered. */
int tracing_write(struct session *session, const struct trace *trace, struct error *err);

#endif
