/* hub.h - models that Hugging Face's tools have brought into their cache. */
#ifndef TRIREME_CONFIG_HUB_H
#define TRIREME_CONFIG_HUB_H

#include "config/config.h"

/* The folder of a model in the cache of this machine: "meta-llama/Llama-3.2-1B", "gpt2", or of a
 * revision, "ORG/NAME@REVISION" (else main), into folder.  Returns 1; 0: the name is none of the
 * hub's, is a folder itself, or is not in the cache; folder is then the name. */
int hub_find(const char *name, char folder[CONFIG_TEXT]);

/* Could it be a name of the hub: at most one '/', and none of the characters of other paths? */
int hub_is_name(const char *name);

/* Set err to say that name is `what`, such as "no folder with a config.json", and not in the cache
 * either, and how to bring it there.  Returns -1. */
int hub_error_missing(const char *name, const char *what, struct error *err);

#endif
