/* adapter.h - reading and writing adapter_config.json, in which peft's folders say what an adapter
 * is. */
#ifndef TRIREME_CONFIG_ADAPTER_H
#define TRIREME_CONFIG_ADAPTER_H

#include "config/config.h"

/* Has a folder an adapter_config.json? */
int adapter_has_config(const char *folder);

/* Set the keys lora.*, but for lora.path, from a folder's adapter_config.json.  peft compares a
 * name of modules_to_save with the last letters of a module's path, so that it becomes "*name" in
 * lora.modules_to_save.  Returns 0, or -1 with err naming file and member: another kind of adapter
 * than LoRA, a variant that trireme does not have, a number out of range. */
int adapter_read_config(struct config *config, const char *folder, struct error *err);

/* Write folder/adapter_config.json.  targets, saved: the names of the adapted modules and of those
 * that are trained whole, in the form of config->lora.target_modules and modules_to_save; a "*"
 * before a name is left out, and a caller has put the family's defaults in where these are empty.
 * Returns 0, or -1 with err set. */
int adapter_write_config(const struct config *config, const char *targets, const char *saved,
                         const char *folder, struct error *err);

#endif
