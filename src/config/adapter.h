/* adapter.h - adapter_config.json of peft's folders: what an adapter is. */
#ifndef TRIREME_CONFIG_ADAPTER_H
#define TRIREME_CONFIG_ADAPTER_H

#include "config/config.h"

/* Has a folder an adapter_config.json? */
int adapter_has_config(const char *folder);

/* Set the keys lora.*, but for lora.path, from a folder's adapter_config.json, and adapter_note to
 * the members there that are not known ("": none).  Returns 0, or -1 with err naming file and
 * member: another kind of adapter, a variant that is not there, a number out of range. */
int adapter_read_config(struct config *config, const char *folder, struct error *err);

/* Write folder/adapter_config.json.  targets, saved: the modules, as config_lora has them, with
 * those that a family has by itself put in.  0, or -1 with err set. */
int adapter_write_config(const struct config *config, const char *targets, const char *saved,
                         const char *folder, struct error *err);

#endif
