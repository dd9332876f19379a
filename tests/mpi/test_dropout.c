/* test_dropout.c - what training drops is the same on every layout, however micro-batches are cut,
 * recomputed, packed or offloaded, and after a resume: losses and norms of gradients are those of
 * one rank that takes the whole batch at once.
 *
 * Dropping other numbers moves a loss by some 1e-2; other orders of sums by 1e-7.  Weights are
 * compared in test_parallel.c, which has models with dropout too.
 *
 * With CHECK_SHORT=1 every second layout runs on DROPOUT_DEVICE where DROPOUT_SHARE is 2; all of
 * them by `make check-whole`.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "tests/mpi/training.h"

static const double tolerance = 1e-5;

enum { STEPS = DROPOUT_STEPS, HALF = STEPS / 2 };

#define SIZES                                                                                 \
    "device=" DROPOUT_DEVICE " model.layers=3 model.hidden=30 model.ffn=61 model.vocab=101 "  \
    "model.max_seq_len=32 data.seq_len=24 train.lr=3e-3 train.warmup_steps=5 train.steps=50 " \
    "train.global_batch=6 run.threads=1 seed=11 "

enum trial_model { GPT2, LLAMA, ADAPTERS, PACKED, PLAIN, MODELS };

#define GPT2_SIZES SIZES "model.family=gpt2 model.heads=5 model.head_dim=6 "
#define DROPOUT    "model.embed_dropout=0.1 model.residual_dropout=0.2 model.attention_dropout=0.15 "

static const char *const models[MODELS] = {
    [GPT2] = GPT2_SIZES DROPOUT "model.tie_embeddings=true ",
    [LLAMA] = SIZES "model.family=llama model.heads=5 model.kv_heads=1 model.head_dim=6 "
                    "model.attention_dropout=0.3 ",
    [ADAPTERS] =
        SIZES "model.family=llama model.heads=6 model.kv_heads=3 model.head_dim=6 lora.r=3 "
              "lora.target_modules=all-linear lora.modules_to_save=lm_head "
              "lora.dropout=0.3 ",
    [PACKED] = GPT2_SIZES DROPOUT "data.packing=documents ",
    [PLAIN] = GPT2_SIZES "model.tie_embeddings=true ",
};

static const struct cell {
    int ranks;
    enum trial_model model;
    const char *settings;
} cells[] = {
    {1, GPT2, "train.micro_batch=1"},
    {1, GPT2, "train.micro_batch=4 recompute=selective"},
    {1, GPT2, "train.micro_batch=2 recompute=full parallel.wrap=layers parallel.layers_per_unit=2"},
    {1, LLAMA, "train.micro_batch=2 recompute=full"},
    {1, ADAPTERS, "train.micro_batch=2 recompute=selective"},
    {1, PACKED, "train.micro_batch=1 recompute=full"},
    {2, GPT2, "parallel.strategy=FULL_SHARD train.micro_batch=1 recompute=full"},
    {2, GPT2, "parallel.tensor=2"},
    {2, GPT2, "parallel.tensor=2 parallel.tensor_overlap=2 train.micro_batch=2"},
    {2, GPT2, "parallel.context=2 recompute=selective train.micro_batch=3"},
    {2, GPT2, "parallel.pipeline=2 train.micro_batch=1 parallel.schedule=zb_h1"},
    {2, LLAMA, "parallel.tensor=2 recompute=full"},
    {2, LLAMA, "parallel.context=2"},
    {2, ADAPTERS, "parallel.tensor=2"},
    {2, ADAPTERS, "parallel.context=2 recompute=full"},
    {2, PACKED, "parallel.context=2 train.micro_batch=2"},
    {3, GPT2, "parallel.strategy=FULL_SHARD offload.optimizer=host train.micro_batch=2"},
    {3, GPT2, "parallel.tensor=3 recompute=selective train.micro_batch=1"},
    {3, LLAMA, "parallel.context=3"},
    {3, ADAPTERS, "parallel.tensor=3"},
    {4, GPT2, "parallel.tensor=2 parallel.context=2"},
    {4, GPT2, "parallel.tensor=4 recompute=full"},
    {4, GPT2, "parallel.tensor=2 parallel.pipeline=2 train.micro_batch=2"},
    {4, LLAMA, "parallel.pipeline=2 parallel.strategy=FULL_SHARD train.micro_batch=1"},
    {4, ADAPTERS, "parallel.tensor=2 parallel.strategy=FULL_SHARD"},
    {4, PACKED, "parallel.tensor=2 parallel.strategy=FULL_SHARD train.micro_batch=1"},
};
enum { CELLS = sizeof cells / sizeof cells[0] };

struct trial {
    struct checks c;
    char tokens[96], dir[64];
    struct trained reference[MODELS];
    double worst;
    int run;
};

static struct config config_of(enum trial_model model, const char *more)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s", models[model], more);
    return rig_config(text);
}

static double farthest(const double *a, const double *b)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++) {
        double off = fabs(a[i] / b[i] - 1);
        most = off <= most ? most : off; /* NaN stays */
    }
    return most;
}

static int is_taken(const struct trial *t, int cell)
{
    return cells[cell].ranks == world_size(t->c.world) &&
           training_takes(&t->c, cell, DROPOUT_SHARE);
}

static void make_references(struct trial *t)
{
    const struct training how = {.tokens = t->tokens, .to = STEPS};
    for (int m = 0; m < MODELS; m++) {
        int is_used = m == GPT2 || m == PLAIN;
        for (int i = 0; i < CELLS; i++)
            is_used |= (int)cells[i].model == m && is_taken(t, i);
        if (!is_used)
            continue;
        struct config config = config_of(m, "train.micro_batch=6");
        training_reference(&t->c, &config, &how, &t->reference[m]);
    }
    const struct trained *gpt2 = &t->reference[GPT2], *plain = &t->reference[PLAIN];
    CHECK(&t->c, fabs(gpt2->loss[0] / plain->loss[0] - 1) > 1e-4);
    CHECK(&t->c, gpt2->loss[STEPS - 1] < gpt2->loss[0] - DROPOUT_FALL);
}

static void run_cell(struct trial *t, const struct cell *cell)
{
    const struct training how = {.tokens = t->tokens, .to = STEPS};
    struct trained trained = {0};
    struct config config = config_of(cell->model, cell->settings);
    training_run(&t->c, &config, &how, &trained);
    const struct trained *reference = &t->reference[cell->model];
    double off = farthest(trained.loss, reference->loss);
    if (!(off <= tolerance) && !world_rank(t->c.world))
        fprintf(stderr, "%s: losses are off by %g\n", cell->settings, off);
    CHECK(&t->c, off <= tolerance);
    CHECK(&t->c, farthest(trained.norm, reference->norm) <= 10 * tolerance);
    t->worst = off <= t->worst ? t->worst : off;
    t->run++;
}

/* Stopped half-way and gone on from what was saved: the same bits. */
static void test_resume(struct trial *t)
{
    struct training how = {.tokens = t->tokens, .to = STEPS};
    struct trained whole = {0}, parts = {0};
    char checkpoints[128];
    struct config config = config_of(GPT2, "train.micro_batch=1 recompute=selective");
    snprintf(checkpoints, sizeof checkpoints, "%s/saved", t->dir);
    training_run(&t->c, &config, &how, &whole);
    how.checkpoints = checkpoints;
    how.to = HALF;
    training_run(&t->c, &config, &how, &parts);
    how.from = HALF;
    how.to = STEPS;
    training_run(&t->c, &config, &how, &parts);
    CHECK(&t->c, !memcmp(&whole, &parts, sizeof whole));
}

int main(void)
{
    static struct trial t;
    if (checks_start(&t.c))
        return 1;
    training_data(&t.c, t.dir, 101);
    snprintf(t.tokens, sizeof t.tokens, "%s/tokens.h5", t.dir);
    make_references(&t);
    for (int i = 0; i < CELLS; i++)
        if (is_taken(&t, i))
            run_cell(&t, &cells[i]);
    test_resume(&t);
    world_barrier(t.c.world);
    if (!world_rank(t.c.world)) {
        printf("# %d ranks: losses of %d steps of %d layouts within %.2g of one rank's\n",
               world_size(t.c.world), STEPS, t.run, t.worst);
        CHECK(&t.c, !disk_remove(t.dir, NULL));
    }
    return checks_finish(&t.c);
}
