/* hf.h - config.json of Hugging Face's folders: what a model is. */
#ifndef TRIREME_CONFIG_HF_H
#define TRIREME_CONFIG_HF_H

#include "base/json.h"
#include "config/config.h"

/* Has a folder a config.json? */
int hf_has_config(const char *folder);

/* Set the keys model.* from a folder's config.json, and model_note to what is there and is not
 * computed here, members that are not known ("": nothing).  Returns 0, or -1 with err
 * naming file and member: an architecture, an activation, a bias or a kind of rotary positions that
 * is not there, layers that differ, a number out of range. */
int hf_read_config(struct config *config, const char *folder, struct error *err);

/* Write folder/config.json for a model whose weights are of dtype (fp32, bf16, fp16), of the
 * model_type whose class there computes the same.  ids: an object whose bos_token_id, eos_token_id
 * and pad_token_id (a number, a list of them, or null) are written with it; one that it has not, or
 * of NULL, is left out.  0, or -1 with err set: there is no such model_type. */
int hf_write_config(const struct config *config, enum dtype dtype, const struct js *ids,
                    const char *folder, struct error *err);

#endif
