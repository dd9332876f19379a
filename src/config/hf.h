/* hf.h - reading and writing config.json, in which Hugging Face's folders say what a model is. */
#ifndef TRIREME_CONFIG_HF_H
#define TRIREME_CONFIG_HF_H

#include "base/json.h"
#include "config/config.h"

/* Has a folder a config.json? */
int hf_has_config(const char *folder);

/* Does a folder's config.json say that its files have matrices stacked as a Phi-3 has them?  0 also
 * where there is no such file.  Adapters beside the matrices one by one fit no module of it. */
int hf_is_stacked(const char *folder);

/* Return the vocab_size of a folder's config.json, which model.vocab may have been set to differ
 * from; 0: it cannot be read. */
int64_t hf_vocab(const char *folder);

/* Set the keys model.* from a folder's config.json, and config->model_note to a warning that names
 * members which trireme does not know and ignores ("": none).  Returns 0, or -1 with err naming
 * file and member: an architecture, an activation, a bias or a kind of rotary positions that
 * trireme does not have, layers that differ from one another, a number out of range. */
int hf_read_config(struct config *config, const char *folder, struct error *err);

/* Write folder/config.json for a model whose weights are of dtype (fp32, bf16, fp16), with the
 * model_type whose class in transformers computes the same.  ids: an object of which bos_token_id,
 * eos_token_id and pad_token_id (each a number, a list of numbers, or null) are copied; members
 * that are not there are left out, all of them where ids is NULL.  Returns 0, or -1 with err set:
 * no model_type computes the same, or the file cannot be written. */
int hf_write_config(const struct config *config, enum dtype dtype, const struct js *ids,
                    const char *folder, struct error *err);

#endif
