/* any.c - see any.h. */
#include "tests/unit/any.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"

enum { CHOICES = 9 };

/* One of each row. */
static const struct {
    enum any_rows of;
    const char *choice[CHOICES];
} rows[] = {
    {ANY_MODEL,
     {"", "model.family=gpt2", "model.kv_heads=1", "model.qkv_bias=true model.sliding_window=3",
      "model.qk_norm=true model.kv_heads=1", "model.experts=3",
      "model.family=gpt2 model.embed_dropout=0.1 model.residual_dropout=0.2"}},
    {ANY_MODEL, {"model.layers=1", "model.layers=2", "model.layers=3", "model.layers=5"}},
    {ANY_MODEL, {"", "model.tie_embeddings=true"}},
    {ANY_MODEL, {"model.vocab=23", "model.vocab=101"}},
    {ANY_MODEL,
     {"train.global_batch=1", "train.global_batch=5", "train.global_batch=8",
      "train.global_batch=12"}},
    {ANY_MODEL,
     {"", "", "train.freeze=layers.0.*", "train.freeze=embed*,layers.*.mlp.*",
      "train.freeze=layers.*", "lora.r=2 lora.alpha=6",
      "lora.r=3 lora.target_modules=all-linear lora.use_rslora=true lora.dropout=0.2",
      "lora.r=2 lora.target_modules=all-linear lora.use_dora=true",
      "lora.r=2 lora.target_modules=all-linear lora.quantize_base=nf4 model.ffn=64"}},
    {ANY_LAYOUT, {"train.micro_batch=1", "train.micro_batch=2", "train.micro_batch=0"}},
    {ANY_MODEL,
     {"train.eps=1e-6", "train.eps=1e-6", "train.eps=1e-6", "train.eps=1e-6", "train.optimizer=sgd",
      "train.optimizer=muon"}},
    {ANY_FORMATS, {"", "", "", "train.optimizer_dtype=bf16"}},
    {ANY_FORMATS,
     {"precision=fp32", "precision=bf16", "precision=bf16_pure", "precision=fp16",
      "precision=bf16 train.logits_dtype=bf16"}},
    {ANY_LAYOUT,
     {"recompute=none", "recompute=selective", "recompute=full",
      "recompute=full recompute_every=2"}},
    {ANY_LAYOUT,
     {"parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=3000",
      "parallel.strategy=SHARD_OPTIM", "parallel.strategy=SHARD_GRAD_OP",
      "parallel.strategy=FULL_SHARD", "parallel.strategy=HYBRID_SHARD",
      "parallel.strategy=HYBRID_SHARD_ZERO2"}},
    {ANY_LAYOUT, {"", "", "", "parallel.shard=2", "parallel.shard=3"}},
    {ANY_LAYOUT,
     {"", "", "parallel.wrap=none", "parallel.wrap=size parallel.min_num_params=1500",
      "parallel.wrap=layers parallel.layers_per_unit=2"}},
    {ANY_LAYOUT,
     {"", "", "", "parallel.persist_below=13", "parallel.persist_below=2500",
      "parallel.persist_below=1000000"}},
    {ANY_LAYOUT,
     {"parallel.backward_prefetch=none", "parallel.backward_prefetch=BACKWARD_PRE",
      "parallel.backward_prefetch=BACKWARD_POST"}},
    {ANY_LAYOUT, {"parallel.forward_prefetch=true", "parallel.forward_prefetch=false"}},
    {ANY_LAYOUT, {"", "", "parallel.prefetch_units=2", "parallel.prefetch_units=3"}},
    {ANY_LAYOUT, {"", "parallel.accumulate=local"}},
    {ANY_LAYOUT,
     {"", "parallel.schedule=naive", "parallel.schedule=gpipe", "parallel.schedule=zb_h1",
      "parallel.schedule=interleaved_1f1b", "parallel.schedule=zb_v",
      "parallel.schedule=interleaved_1f1b parallel.virtual_stages=3"}},
    {ANY_LAYOUT, {"", "", "parallel.reduce_bucket_bytes=4194304"}}, /* default: of any strategy */
    {ANY_LAYOUT, {"", "", "offload.optimizer=host", "offload.optimizer=disk"}},
    {ANY_LAYOUT, {"", "", "", "", "offload.params=host", "offload.params=disk"}},
    {ANY_FORMATS, {"", "", "", "comm.reduce_dtype=bf16", "comm.reduce_dtype=fp16"}},
    {ANY_LAYOUT, {"", "", "", "offload.gradients=host", "offload.gradients=disk"}},
    {ANY_MODEL, {"model.heads=2", "model.heads=3", "model.heads=6"}},
    {ANY_LAYOUT,
     {"", "", "", "", "parallel.tensor=2", "parallel.tensor=2 parallel.tensor_overlap=4",
      "parallel.tensor=2 parallel.tensor_overlap=4 recompute=gathered recompute_every=1",
      "parallel.tensor=3 parallel.tensor_overlap=2 parallel.tensor_reduce_dtype=fp32"}},
    {ANY_LAYOUT,
     {"", "", "", "parallel.pipeline=2",
      "parallel.pipeline=2 parallel.pipeline_reshard=true parallel.strategy=FULL_SHARD "
      "parallel.reduce_bucket_bytes=4194304",
      "parallel.pipeline=3"}},
    {ANY_MODEL, {"", "", "", "model.attention_dropout=0.2"}},
    {ANY_FORMATS,
     {"", "", "", "", "",
      "train.grad_dtype=bf16 precision=bf16 train.micro_batch=0 train.optimizer=adamw "
      "train.freeze= lora.use_dora=false"}},
    {ANY_LAYOUT, {"", "", "train.logits_chunk=1", "train.logits_chunk=5"}},
    {ANY_LAYOUT, {"", "train.overlap_update=true"}},
};

struct any any_case(const char *what, int number)
{
    return (struct any){.key = philox_key((uint64_t)number, what)};
}

int any_pick(struct any *any, int count)
{
    return (int)(philox_u64(any->key, any->next++) % (uint64_t)count);
}

void any_settings(struct any *any, unsigned of, char text[ANY_TEXT])
{
    size_t used = strlen(text);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        int count = 0;
        while (count < CHOICES && rows[r].choice[count])
            count++;
        const char *choice = rows[r].choice[any_pick(any, count)];
        if (rows[r].of & of)
            used += (size_t)snprintf(text + used, ANY_TEXT - used, " %s", choice);
        assert(used < ANY_TEXT);
    }
    /* What does not go together with experts; all-linear would be them, too. */
    int has_experts = strstr(text, "model.experts=") != NULL;
    if (has_experts && strstr(text, "all-linear"))
        used += (size_t)snprintf(text + used, ANY_TEXT - used,
                                 " lora.target_modules=q_proj,k_proj,v_proj,o_proj");
    if (has_experts && strstr(text, "train.optimizer=muon"))
        used += (size_t)snprintf(text + used, ANY_TEXT - used, " train.optimizer=adamw");
    assert(used < ANY_TEXT);
}

int any_load(struct config *config, const char *settings, struct error *err)
{
    enum { MOST = 256 };
    const char *override[MOST];
    char text[ANY_TEXT], *rest = text;
    int count = 0;
    snprintf(text, sizeof text, "%s", settings);
    for (char *word; (word = strtok_r(rest, " ", &rest)); override[count++] = word)
        assert(count < MOST);
    return config_load(config, NULL, override, count, err);
}
