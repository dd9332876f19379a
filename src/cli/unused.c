/* unused.c - keys on a command line that change nothing of what the command does; see unused.h. */
#include "cli/unused.h"

#include <string.h>

#include "base/text.h"

enum { BOTH = UNUSED_OF_EVALUATE | UNUSED_OF_GENERATE };

/* A key with its "=", or the beginning of several. */
static const struct unused {
    const char *key;
    int commands;
} keys[] = {
    {"seed=", UNUSED_OF_EVALUATE}, /* generate refuses it: it has --seed */
    {"recompute=", BOTH},
    {"recompute_every=", BOTH},
    {"model.init", BOTH},
    {"model.sync_module_states=", BOTH},
    {"model.embed_dropout=", BOTH},
    {"model.residual_dropout=", BOTH},
    {"model.attention_dropout=", BOTH},
    {"model.router_aux_loss_coef=", BOTH},
    {"lora.dropout=", BOTH},
    {"data.train=", BOTH},
    {"data.valid=", UNUSED_OF_GENERATE},
    {"data.packing=", UNUSED_OF_GENERATE},
    {"train.steps=", BOTH},
    {"train.epochs=", BOTH},
    {"train.global_batch", UNUSED_OF_GENERATE},
    {"train.split_batches=", UNUSED_OF_GENERATE},
    {"train.micro_batch=", UNUSED_OF_GENERATE},
    {"train.lr=", BOTH},
    {"train.min_lr=", BOTH},
    {"train.schedule=", BOTH},
    {"train.warmup_", BOTH},
    {"train.optimizer", BOTH},
    {"train.grad_dtype=", BOTH},
    {"train.weight_decay=", BOTH},
    {"train.decay=", BOTH},
    {"train.decay_steps=", BOTH},
    {"train.beta", BOTH},
    {"train.eps=", BOTH},
    {"train.momentum=", BOTH},
    {"train.muon_", BOTH},
    {"train.loss_scale", BOTH},
    {"train.initial_scale_", BOTH},
    {"train.hysteresis=", BOTH},
    {"train.min_loss_scale=", BOTH},
    {"train.clip=", BOTH},
    {"train.overlap_update=", BOTH},
    {"train.reproducible=", BOTH},
    {"train.attention_bytes=", BOTH},
    {"train.freeze=", BOTH},
    {"train.eval_every=", BOTH},
    {"train.eval_batches=", UNUSED_OF_GENERATE},
    {"train.eval_micro_batch=", UNUSED_OF_GENERATE},
    {"train.early_", BOTH},
    {"train.logits_dtype=", UNUSED_OF_GENERATE},
    {"train.logits_chunk=", UNUSED_OF_GENERATE},
    {"offload.optimizer=", BOTH},
    {"offload.gradients=", BOTH},
    {"parallel.accumulate=", UNUSED_OF_EVALUATE}, /* generate refuses all of parallel. */
    {"parallel.reduce_bucket_bytes=", UNUSED_OF_EVALUATE},
    {"parallel.layout=", UNUSED_OF_EVALUATE},
    {"parallel.backward_prefetch=", UNUSED_OF_EVALUATE},
    {"comm.reduce_dtype=", BOTH},
    {"checkpoint.every=", BOTH},
    {"checkpoint.keep", BOTH},
    {"checkpoint.async=", BOTH},
    {"checkpoint.export_hf=", BOTH},
    {"checkpoint.frozen=", BOTH},
    {"generate.", UNUSED_OF_EVALUATE},
    {"generate.samples=", UNUSED_OF_GENERATE},
    {"run.fresh=", BOTH},
    {"run.trace=", BOTH},
    {"run.log_every=", BOTH},
    {"run.machine=", BOTH},
};

static int is_unused(const char *setting, enum unused_of command)
{
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        if ((keys[k].commands & (int)command) &&
            !strncmp(setting, keys[k].key, strlen(keys[k].key)))
            return 1;
    return 0;
}

void unused_warn(struct log *log, enum unused_of command, const char *const *settings, int count)
{
    char unused[512] = "";
    for (int i = 0; i < count; i++)
        if (is_unused(settings[i], command))
            text_join(unused, sizeof unused, ", ", "%.*s", (int)strcspn(settings[i], "="),
                      settings[i]);
    if (unused[0])
        log_warn(log, "these keys are of training, and change nothing here: %s", unused);
}
