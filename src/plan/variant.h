/* variant.h - the same run with another strategy, or other settings. */
#ifndef TRIREME_PLAN_VARIANT_H
#define TRIREME_PLAN_VARIANT_H

#include "config/config.h"

enum { VARIANT_SETTINGS = 512 }; /* bytes of such a text at most, with its end */

/* The name the configuration has for it, into text; returns text. */
const char *variant_name(enum config_strategy strategy, char text[CONFIG_TEXT]);

/* Set what a text "key=value key=value" says ("": nothing), and check the whole; keys of sharding
 * and stages that it has no use for become unset.  Returns 0, or -1 where a key or the whole is not
 * allowed; config is then partly set. */
int variant_set(struct config *config, const char *settings);

/* Append to a text of settings those of all other keys, in the order of their table, whose values
 * config has and base with the text has not, so that the text behind base makes config.  Both are
 * checked; degrees that follow from a strategy are none that base gives. */
void variant_complete(char text[VARIANT_SETTINGS], const struct config *base,
                      const struct config *config);

/* Change a checked configuration's strategy; degrees that were set for another kind of strategy
 * become unset, and so do keys that it has no use for.  Returns 0, or -1 with err set where other
 * keys do not allow the strategy. */
int variant_strategy(struct config *config, enum config_strategy strategy, struct error *err);

#endif
