/* unused.h - keys on a command line that change nothing of what the command does. */
#ifndef TRIREME_CLI_UNUSED_H
#define TRIREME_CLI_UNUSED_H

#include <stddef.h>

#include "base/log.h"

enum unused_of { UNUSED_OF_EVALUATE = 1, UNUSED_OF_GENERATE = 2 }; /* bits */

/* Warn of those settings "key=value" whose keys are of training and change nothing of the command.
 * Keys of a file are not meant: a file may serve to train, too.  Others than settings are passed
 * over.  For one rank to call. */
void unused_warn(struct log *log, enum unused_of command, const char *const *settings, int count);

#endif
