/* test_gpt2.c - GPT-2 trains to one rank's losses in every strategy: biases, positions beside a
 * tied embedding, and vectors that do not divide are sharded like all else.
 *
 * The tolerance is that of test_layouts.c: other orders of sums of 2^-24 each.  With CHECK_SHORT=1
 * a number of ranks takes a third of the strategies; all of them by `make check-whole`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "tests/mpi/training.h"

#define MODEL                                                                                  \
    "model.family=gpt2 model.layers=3 model.hidden=30 model.heads=3 model.ffn=61 "             \
    "model.vocab=101 model.max_seq_len=19 data.seq_len=17 train.lr=3e-3 train.warmup_steps=5 " \
    "train.steps=50 train.global_batch=12 run.threads=1 seed=11 "

static const double tolerance = 1e-6;

static const char *const strategies[] = {
    "parallel.strategy=NO_SHARD ",
    "parallel.strategy=SHARD_OPTIM ",
    "parallel.strategy=SHARD_GRAD_OP parallel.accumulate=local ",
    "parallel.strategy=FULL_SHARD ",
    "parallel.strategy=FULL_SHARD recompute=full parallel.wrap=layers parallel.layers_per_unit=2 ",
    "parallel.strategy=FULL_SHARD recompute=selective parallel.accumulate=local ",
    "parallel.strategy=HYBRID_SHARD parallel.shard=%d ",
};

enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

struct trial {
    struct checks c;
    char tokens[96], dir[64];
    double worst;
};

static struct config config_of(const struct trial *t, int strategy, const char *more, int64_t micro)
{
    char how[256], text[1024];
    int ranks = world_size(t->c.world);
    snprintf(how, sizeof how, strategies[strategy], ranks % 2 ? ranks : 2);
    snprintf(text, sizeof text, "%s%s%s", MODEL, how, more);
    struct config config = rig_config(text);
    config.train.micro_batch = micro;
    return config;
}

static void test_strategies(struct trial *t, const char *more)
{
    struct training how = {.tokens = t->tokens, .to = TRAINING_STEPS};
    struct trained reference = {0}, once = {0}, again = {0};
    struct config whole = config_of(t, 0, more, 0);
    training_reference(&t->c, &whole, &how, &reference);
    CHECK(&t->c, reference.loss[0] > 4.5); /* the logarithm of 101 words is 4.6 */
    CHECK(&t->c, reference.loss[TRAINING_STEPS - 1] < reference.loss[0] - 0.5);
    for (int i = 0; i < 2 * STRATEGIES; i++) {
        int64_t each = 12 / world_size(t->c.world);
        if (!training_takes(&t->c, i + (strlen(more) > 0), 3))
            continue;
        struct config config = config_of(t, i / 2, more, i % 2 ? 1 : each);
        training_run(&t->c, &config, &how, &once);
        double off = training_distance(&once, &reference);
        CHECK(&t->c, off <= tolerance);
        CHECK(&t->c, once.targets == reference.targets);
        t->worst = off <= t->worst ? t->worst : off;
        if (i % 2)
            continue;
        training_run(&t->c, &config, &how, &again);
        CHECK(&t->c, !memcmp(&once, &again, sizeof once));
    }
}

/* Stopped after 23 steps, and gone on from what was saved. */
static void test_resume(struct trial *t)
{
    struct training how = {.tokens = t->tokens, .to = TRAINING_STEPS};
    struct trained whole = {0}, parts = {0};
    char checkpoints[128];
    struct config config = config_of(t, 3, "model.tie_embeddings=true precision=bf16", 1);
    snprintf(checkpoints, sizeof checkpoints, "%s/saved", t->dir);
    training_run(&t->c, &config, &how, &whole);
    how.checkpoints = checkpoints;
    how.to = 23;
    training_run(&t->c, &config, &how, &parts);
    how.from = 23;
    how.to = TRAINING_STEPS;
    training_run(&t->c, &config, &how, &parts);
    CHECK(&t->c, !memcmp(&whole, &parts, sizeof whole));
}

int main(void)
{
    struct trial t = {0};
    if (checks_start(&t.c))
        return 1;
    training_data(&t.c, t.dir, 101);
    snprintf(t.tokens, sizeof t.tokens, "%s/tokens.h5", t.dir);
    test_strategies(&t, "model.tie_embeddings=true ");
    test_strategies(&t, "");
    test_resume(&t);
    world_barrier(t.c.world);
    if (!world_rank(t.c.world)) {
        printf("# %d ranks: losses of %d steps within %.2g of one rank's\n", world_size(t.c.world),
               TRAINING_STEPS, t.worst);
        CHECK(&t.c, !disk_remove(t.dir, NULL));
    }
    return checks_finish(&t.c);
}
