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

/* A configuration that is changed key by key, and the changes as a text "key=value key=value". */
struct settings {
    struct config config;
    char text[SETTINGS_BYTES];
};

/* Set a key of the configuration to the text that fmt makes, and append both to the text.  The
 * whole is not checked.  Returns 0, or -1 where the key does not take this value. */
int settings_add(struct settings *settings, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The parts of the state that may be kept off the device, and the levels of keeping more of them
 * farther from it: level 0 keeps all on the device, level 3 all in the host's memory, the last all
 * on disk. */
enum settings_part { PART_OPTIMIZER, PART_GRADIENTS, PART_PARAMS, SETTINGS_PARTS };
enum { SETTINGS_LEVELS = 7 };

/* Where a level keeps a part, and where a configuration does. */
enum config_offload_to settings_level_keeps(int level, enum settings_part part);
enum config_offload_to settings_keeps(const struct config *config, enum settings_part part);

/* Keep a part somewhere (move), or each as a level has it (move_to_level); keys that have the value
 * already are left out of the text.  Returns 0, or -1 as settings_add() does. */
int settings_move(struct settings *settings, enum settings_part part, enum config_offload_to to);
int settings_move_to_level(struct settings *settings, int level);

#endif
