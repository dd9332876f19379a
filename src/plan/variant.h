/* variant.h - the same run with another strategy. */
#ifndef TRIREME_PLAN_VARIANT_H
#define TRIREME_PLAN_VARIANT_H

#include "config/config.h"

enum { VARIANTS = STRATEGY_HYBRID_SHARD_ZERO2 + 1 };

/* Copies of sharded copies? */
int variant_is_hybrid(enum config_strategy strategy);

/* The stage of ZeRO that a strategy is, within one copy. */
int variant_stage(enum config_strategy strategy);

/* The name the configuration has for it, into text; returns text. */
const char *variant_name(enum config_strategy strategy, char text[CONFIG_TEXT]);

/* Change a checked configuration's strategy; degrees that were named for another kind of strategy
 * are left open again.  Returns 0, or -1 with err set where other keys do not go with it. */
int variant_strategy(struct config *config, enum config_strategy strategy, struct error *err);

#endif
