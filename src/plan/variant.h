/* variant.h - the same run with another strategy. */
#ifndef TRIREME_PLAN_VARIANT_H
#define TRIREME_PLAN_VARIANT_H

#include "config/config.h"

/* The name the configuration has for it, into text; returns text. */
const char *variant_name(enum config_strategy strategy, char text[CONFIG_TEXT]);

/* Change a checked configuration's strategy; degrees that were set for another kind of strategy
 * become unset.  Returns 0, or -1 with err set where other keys do not allow the strategy. */
int variant_strategy(struct config *config, enum config_strategy strategy, struct error *err);

#endif
