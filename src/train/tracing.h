/* tracing.h - the trace of one step of all ranks, as trace.json in the run directory. */
#ifndef TRIREME_TRAIN_TRACING_H
#define TRIREME_TRAIN_TRACING_H

#include "train/session.h"

/* Gather the ranks' events to rank 0 and write them.  Collective. */
int tracing_write(struct session *session, const struct trace *trace, struct error *err);

#endif
