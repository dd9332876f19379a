/* settings.h - the same run with another strategy, or other settings. */
#ifndef TRIREME_PLAN_SETTINGS_H
#define TRIREME_PLAN_SETTINGS_H

#include "config/config.h"

enum { SETTINGS_BYTES = 512 }; /* bytes of such a text at most, with its end */

/* Write to text the name that the configuration has for a strategy; returns text. */
const char *settings_strategy_name(enum config_strategy strategy, char text[CONFIG_TEXT]);

/* Set the keys of a text "key=value key=value" ("": none), and check the whole; keys of sharding
 * and stages for which the whole has no use become unset.  Returns 0, or -1 where a key or the
 * whole is not allowed; config is then partly set. */
int settings_set(struct config *config, const char *settings);

/* Complete a text of settings so that base with it makes config: append, in the order of their
 * table, the keys in which base with the text differs from config.  Both configurations are
 * checked; degrees that follow from base's strategy do not count as set. */
void settings_complete(char text[SETTINGS_BYTES], const struct config *base,
                       const struct config *config);

/* Change a checked configuration's strategy; degrees that were set for another kind of strategy
 * become unset, and so do keys that it has no use for.  Returns 0, or -1 with err set where other
 * keys do not allow the strategy. */
int settings_strategy(struct config *config, enum config_strategy strategy, struct error *err);

#endif
