/* test_replicas.c - model.sync_module_states: weights that several ranks hold are found alike; one
 * element that one of them has otherwise is found, with its tensor and two ranks. */
#include <stdio.h>
#include <string.h>

#include "tests/mpi/check.h"
#include "tests/unit/rig.h"
#include "train/weights.h"

#define MODEL                                                                                     \
    "model.layers=2 model.hidden=36 model.heads=6 model.kv_heads=2 model.ffn=61 model.vocab=101 " \
    "model.qk_norm=true data.seq_len=16 train.global_batch=4 run.threads=1 device=cpu "

/* Layouts, and a tensor that several of their ranks hold whole or in the same parts. */
static const struct {
    int ranks;
    const char *settings, *shared;
} layouts[] = {
    {2, "parallel.strategy=NO_SHARD", "layers.1.mlp.down"},
    {2, "parallel.strategy=SHARD_GRAD_OP precision=bf16", NULL},
    {2, "parallel.tensor=2", "layers.0.attn.k.norm"},
    {3, "parallel.tensor=3", "layers.1.norm1"},
    {4, "parallel.strategy=HYBRID_SHARD parallel.shard=2", "layers.0.mlp.down"},
    {4, "parallel.tensor=2 parallel.strategy=NO_SHARD", "layers.1.mlp.gate"},
    {4, "parallel.pipeline=2 parallel.strategy=NO_SHARD model.tie_embeddings=true", "embed"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* Change an element of a tensor on this rank, if it has a part of it. */
static void change(struct session *s, const char *name)
{
    for (int f = 0; f < s->units->flats; f++) {
        struct flat_part part;
        int64_t start = state_shard_start(s->state, f);
        int64_t end = start + s->units->flat[f].shard_elems;
        for (int t = -1; s->state->has[f] &&
                         (t = flat_next_part(&s->units->flat[f], start, end, t, &part)) >= 0;)
            if (!strcmp(part.tensor->name, name) && part.count)
                rig_state(s, f, RIG_MASTER)[part.at + part.count - 1] += 0x1p-20f;
    }
}

static void check_layout(struct checks *c, int i)
{
    struct error err = {0};
    struct session *s = NULL;
    char text[1024], said[128], rank[32];
    int last = world_size(c->world) - 1;
    snprintf(text, sizeof text, MODEL "%s", layouts[i].settings);
    struct config config = rig_config(text);
    struct log log = {.level = LOG_ERROR, .rank = world_rank(c->world)};
    CHECK(c, !session_open(&s, c->world, &log, &c->mem, &config, SESSION_TRAIN, NULL, &err));
    CHECK(c, !weights_init(s, &err));
    CHECK(c, !weights_compare_ranks(s, &err));
    if (layouts[i].shared) {
        if (world_rank(c->world) == last)
            change(s, layouts[i].shared);
        CHECK(c, weights_compare_ranks(s, &err));
        snprintf(said, sizeof said, "other numbers in %s:", layouts[i].shared);
        snprintf(rank, sizeof rank, " and %d have", last);
        CHECK(c, strstr(err.text, said));
        CHECK(c, strstr(err.text, rank));
    }
    session_close(s);
}

int main(void)
{
    struct checks c = {0};
    if (checks_start(&c))
        return 1;
    for (int i = 0; i < LAYOUTS; i++)
        if (layouts[i].ranks == world_size(c.world))
            check_layout(&c, i);
    return checks_finish(&c);
}
