/* weights_base.c - where checkpoints of adapters say that the frozen tensors are.
 *
 * The frozen tensors of most runs with adapters are those of the files of model.path, and a
 * checkpoint then names that folder and a hash of its files instead of holding them.  The hash is
 * that of the files right before the run read them, or of the checkpoint that it goes on from. When
 * a checkpoint is to be written and the files are others by then, or gone, it holds the frozen
 * tensors themselves, and so does every later one: adapters never refer to a model beside which
 * they were not trained.
 */
#include <stdio.h>
#include <string.h>

#include "io/safetensors.h"
#include "train/weights.h"

int weights_folder_hash(const char *folder, char hash[WEIGHTS_HASH], struct error *err)
{
    struct safetensors *st;
    hash[0] = 0;
    if (!folder[0] || safetensors_look(folder) == SAFETENSORS_NONE)
        return 0;
    if (safetensors_open(&st, folder, err))
        return -1;
    uint64_t value = 0;
    int rc = safetensors_hash(st, &value, err);
    safetensors_close(st);
    snprintf(hash, WEIGHTS_HASH, "%016llx", (unsigned long long)value);
    return rc;
}

int weights_note_base(struct session *s, struct error *err)
{
    return s->config.lora.r ? weights_folder_hash(s->config.model_path, s->base_hash, err) : 0;
}

/* Are the files of model.path still those that were read?  Before any are read they are. */
static int is_base_there(const struct session *s)
{
    char hash[WEIGHTS_HASH];
    struct error why = {0};
    const char *folder = s->config.model_path;
    if (!s->base_hash[0])
        return safetensors_look(folder) != SAFETENSORS_NONE;
    if (!weights_folder_hash(folder, hash, &why) && !strcmp(hash, s->base_hash))
        return 1;
    log_warn(s->log,
             "the files of model.path, %s, are no longer those that this run began with%s%s; "
             "checkpoints hold the frozen tensors from now on",
             folder, why.text[0] ? ": " : "", why.text);
    return 0;
}

enum weights_saved weights_choose_saved(struct session *s)
{
    const struct config *c = &s->config;
    int refers =
        c->lora.r && c->checkpoint.frozen != FROZEN_FULL && c->model_path[0] && !s->holds_frozen;
    if (refers && !world_rank(s->world))
        s->holds_frozen = !(refers = is_base_there(s));
    world_broadcast(s->world, &refers, sizeof refers, 0);
    return refers ? WEIGHTS_TRAINED : WEIGHTS_ALL;
}
