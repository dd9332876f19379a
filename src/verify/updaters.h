/* updaters.h - is each tensor updated as the configuration says, or not at all? */
#ifndef TRIREME_VERIFY_UPDATERS_H
#define TRIREME_VERIFY_UPDATERS_H

#include "program/program.h"

/* Of each tensor, that of other ranks too: a frozen one is one that train.freeze names or, beside
 * adapters, one that is not trained with them.  A trained one takes the rule of train.optimizer,
 * but for what that leaves to adamw: muon all but the matrices that activations are multiplied by,
 * and adamw8bit embeddings and what is small or not in whole blocks.  Returns 0, or -1 with err
 * naming tensor and flat ("wrong update"). */
int updaters_check(const struct program *program, struct error *err);

#endif
