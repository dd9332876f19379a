/* pmix.h - a barrier by PMIx, the library by which a launcher connects the tasks that it starts.
 * Private to comm/. */
#ifndef TRIREME_COMM_PMIX_H
#define TRIREME_COMM_PMIX_H

#include "base/error.h"

/* Wait until every task of this job step has called this, without sending a message by MPI.
 * Collective over the step's tasks.  Returns 0 at once where the process has loaded no PMIx library
 * or trireme was built without its header; -1 with err set when PMIx says that tasks are lost. */
int pmix_barrier(struct error *err);

#endif
