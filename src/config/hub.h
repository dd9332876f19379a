/* hub.h - finding models that Hugging Face's tools have downloaded into their cache. */
#ifndef TRIREME_CONFIG_HUB_H
#define TRIREME_CONFIG_HUB_H

#include "config/config.h"

/* Find the folder of a model in the cache of this machine.  name: "meta-llama/Llama-3.2-1B",
 * "gpt2", or with a revision, "ORG/NAME@REVISION" (else it is main).  Returns 1; or 0, where name
 * cannot be one of the hub, is itself a folder here, or is not in the cache: then folder is a copy
 * of name. */
int hub_find(const char *name, char folder[CONFIG_TEXT]);

/* Could it be a name of the hub: at most one '/', and none of the characters of other paths? */
int hub_is_name(const char *name);

/* Set err to say that name is `what`, such as "no folder with a config.json", and not in the cache
 * either, and how to bring it there.  Returns -1. */
int hub_error_missing(const char *name, const char *what, struct error *err);

#endif
