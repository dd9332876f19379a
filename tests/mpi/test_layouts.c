/* test_layouts.c - the numbers of training do not depend on the layout: strategies, accumulation,
 * batches that do not divide and masks that differ give one rank's losses; the same layout gives
 * the same bits, and so do a stop and going on.
 *
 * The losses of 50 steps are compared.  Sums over ranks and micro-batches are taken in other
 * orders: 2^-24 = 6e-8 each, of which a mean over hundreds of targets shows a part.  A lost or
 * doubled sample, a mean of means, or a gradient not summed would show in the third digit.
 *
 * With CHECK_SHORT=1 a number of ranks takes a third of the strategies, or half of few, and asks of
 * a third of those for the same bits again; all of them by `make check-whole`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "tests/mpi/training.h"
#include "train/run_checkpoint.h"

#define MODEL                                                                                     \
    "model.layers=3 model.hidden=36 model.heads=6 model.kv_heads=3 model.ffn=61 model.vocab=101 " \
    "data.seq_len=17 train.lr=3e-3 train.schedule=cosine train.warmup_steps=5 train.steps=50 "    \
    "run.threads=1 seed=11 "

static const double tolerance = 1e-6;

struct layouts {
    struct checks c;
    char tokens[96], dir[64];
    double worst;
};

static struct config config_of(const char *more, int64_t micro_batch)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s", MODEL, more);
    struct config config = rig_config(text);
    config.train.micro_batch = micro_batch;
    return config;
}

/* Train all steps and compare with the reference's losses. */
static void check_against(struct layouts *l, const struct config *config, int masked,
                          const struct trained *reference, struct trained *trained)
{
    struct training how = {.tokens = l->tokens, .to = TRAINING_STEPS, .masked = masked};
    training_run(&l->c, config, &how, trained);
    double off = training_distance(trained, reference);
    CHECK(&l->c, off <= tolerance);
    CHECK(&l->c, trained->targets == reference->targets);
    l->worst = off <= l->worst ? l->worst : off;
}

static void reference_of(struct layouts *l, const char *settings, int masked,
                         struct trained *reference)
{
    struct training how = {.tokens = l->tokens, .to = TRAINING_STEPS, .masked = masked};
    struct config config = config_of(settings, 0);
    config.parallel.strategy = STRATEGY_NO_SHARD;
    training_reference(&l->c, &config, &how, reference);
    CHECK(&l->c, reference->loss[0] > 4.5); /* the logarithm of 101 words is 4.6 */
    CHECK(&l->c, reference->loss[TRAINING_STEPS - 1] < reference->loss[0] - 0.5);
}

static const char *const strategies[] = {
    "parallel.strategy=NO_SHARD ",
    "parallel.strategy=FULL_SHARD ",
    "parallel.strategy=SHARD_OPTIM ",
    "parallel.strategy=SHARD_GRAD_OP ",
    "parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=0 ",
    "parallel.strategy=SHARD_OPTIM parallel.accumulate=local parallel.prefetch_units=3 ",
    "parallel.strategy=SHARD_GRAD_OP parallel.accumulate=local parallel.backward_prefetch=none ",
    "parallel.strategy=FULL_SHARD parallel.accumulate=local "
    "parallel.backward_prefetch=BACKWARD_POST ",
    "parallel.strategy=HYBRID_SHARD parallel.shard=%d ",
    "parallel.strategy=HYBRID_SHARD_ZERO2 parallel.shard=%d ",
    "parallel.strategy=HYBRID_SHARD parallel.shard=%d parallel.accumulate=local "
    "parallel.prefetch_units=2 ",
};

enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

/* Strategy i, whose shards are of two ranks where that leaves more than one copy. */
static const char *strategy(const struct layouts *l, int i, char text[256])
{
    int ranks = world_size(l->c.world);
    snprintf(text, 256, strategies[i], ranks % 2 ? ranks : 2);
    return text;
}

/* Each strategy with one micro-batch and with at least three; each twice. */
static void test_layouts(struct layouts *l, const char *more)
{
    const int shift = strlen(more) > 0; /* other strategies than without */
    struct trained reference = {0}, once = {0}, again = {0};
    char text[512], how[256];
    int64_t each = 12 / world_size(l->c.world);
    snprintf(text, sizeof text, "train.global_batch=12 %s", more);
    reference_of(l, text, 0, &reference);
    for (int i = 0; i < 2 * STRATEGIES; i++) {
        int several = i >= STRATEGIES;
        if (!training_takes(&l->c, i + shift, 3))
            continue;
        snprintf(text, sizeof text, "train.global_batch=12 %s%s", strategy(l, i % STRATEGIES, how),
                 more);
        struct config config = config_of(text, !several ? each : each > 3 ? each / 3 : 1);
        check_against(l, &config, 0, &reference, &once);
        if (!training_takes(&l->c, i / 3, 3))
            continue;
        check_against(l, &config, 0, &reference, &again);
        CHECK(&l->c, !memcmp(&once, &again, sizeof once));
    }
}

/* What follows from the optimizer's rule: descent with momentum, in shards or whole. */
static void test_sgd(struct layouts *l)
{
    const char *sgd = "train.global_batch=12 train.optimizer=sgd train.lr=0.1 ";
    struct trained reference = {0}, trained = {0};
    char text[512], how[256];
    reference_of(l, sgd, 0, &reference);
    for (int i = 0; i < STRATEGIES; i++) {
        if (!training_takes(&l->c, i, 3))
            continue;
        snprintf(text, sizeof text, "%s%s", sgd, strategy(l, i, how));
        struct config config = config_of(text, 2);
        check_against(l, &config, 0, &reference, &trained);
    }
}

/* Matrices are made orthogonal by their owners.  What rounds to 2^-24 in a sum of gradients is up
 * to 485 times that in the orthogonal matrix (tests/unit/test_muon.c), and so are losses. */
static void test_muon(struct layouts *l)
{
    const char *muon = "train.global_batch=12 train.optimizer=muon train.lr=2e-3 ";
    const char *more[] = {"", "model.tie_embeddings=true parallel.wrap=none ",
                          "parallel.persist_below=3637 train.freeze=layers.0.*,layers.2.attn.* "};
    for (int k = 0; k < 3; k++) {
        struct trained reference = {0}, trained = {0}, again = {0};
        char text[512], how[256];
        snprintf(text, sizeof text, "%s%s", muon,
                 k == 2 ? strstr(more[k], "train.freeze") : more[k]);
        reference_of(l, text, 0, &reference);
        for (int i = 0; i < STRATEGIES; i++) {
            if (k == 2 && strstr(strategies[i], "NO_SHARD"))
                continue; /* persist_below is of shards */
            if (!training_takes(&l->c, i + k, 3))
                continue;
            snprintf(text, sizeof text, "%s%s%s", muon, more[k], strategy(l, i, how));
            struct config config = config_of(text, i % 2 ? 1 : 0);
            check_against(l, &config, 0, &reference, &trained);
            if (!training_takes(&l->c, i / 3 + k, 3))
                continue;
            check_against(l, &config, 0, &reference, &again);
            CHECK(&l->c, !memcmp(&trained, &again, sizeof trained));
        }
    }
}

/* Units of two layers and one, every second recomputing; the same checkpoints as of single ones. */
static void test_wrap(struct layouts *l)
{
    const char *wrap = "parallel.wrap=layers parallel.layers_per_unit=2 recompute=full "
                       "recompute_every=2 model.tie_embeddings=true";
    struct trained reference = {0}, trained = {0};
    char text[512], how[256];
    reference_of(l, "train.global_batch=12 model.tie_embeddings=true", 0, &reference);
    for (int i = 0; i < STRATEGIES; i++) {
        if (!training_takes(&l->c, i + 1, 3))
            continue;
        snprintf(text, sizeof text, "train.global_batch=12 %s %s", strategy(l, i, how), wrap);
        struct config config = config_of(text, i % 2 ? 1 : 0);
        check_against(l, &config, 0, &reference, &trained);
    }
    snprintf(text, sizeof text, "%s/wrapped", l->dir);
    struct config config = config_of("train.global_batch=12 model.tie_embeddings=true", 1);
    struct training part = {.tokens = l->tokens, .checkpoints = text, .to = 23};
    for (int i = 0; i < 3; i++) {
        config.parallel.wrap = i == 1 ? WRAP_LAYERS : WRAP_BLOCK;
        config.parallel.layers_per_unit = i == 1 ? 3 : 0;
        training_run(&l->c, &config, &part, &trained);
        part.from = part.to;
        part.to = i ? TRAINING_STEPS : 31;
    }
    double off = training_distance(&trained, &reference);
    CHECK(&l->c, off <= tolerance);
}

/* Small units whole among sharded ones: the norm of a tied head, the embedding too, everything. */
static void test_small_units(struct layouts *l)
{
    static const int below[] = {37, 3637, 99999};
    struct trained reference = {0}, trained = {0};
    char text[512], how[256];
    reference_of(l, "train.global_batch=12 model.tie_embeddings=true", 0, &reference);
    for (int i = 1; i < STRATEGIES; i++) {
        if (strstr(strategies[i], "NO_SHARD") || !training_takes(&l->c, i + 2, 3))
            continue;
        snprintf(text, sizeof text,
                 "train.global_batch=12 model.tie_embeddings=true parallel.persist_below=%d %s",
                 below[i % 3], strategy(l, i, how));
        struct config config = config_of(text, i % 2 ? 1 : 0);
        check_against(l, &config, 0, &reference, &trained);
        for (int step = 0; step < TRAINING_STEPS; step++)
            CHECK(&l->c, fabs(trained.norm[step] / reference.norm[step] - 1) < 1e-5);
    }
    snprintf(text, sizeof text, "%s/small", l->dir);
    struct config config = config_of("train.global_batch=12 model.tie_embeddings=true", 1);
    struct training part = {.tokens = l->tokens, .checkpoints = text, .to = 23};
    for (int i = 0; i < 3; i++) {
        config.parallel.persist_below = i == 1 ? 3637 : 0;
        training_run(&l->c, &config, &part, &trained);
        part.from = part.to;
        part.to = i ? TRAINING_STEPS : 31;
    }
    CHECK(&l->c, training_distance(&trained, &reference) <= tolerance);
}

/* Gathering ahead changes when, not what. */
static void test_prefetch(struct layouts *l)
{
    struct trained with = {0}, without = {0}, late = {0};
    struct training how = {.tokens = l->tokens, .to = TRAINING_STEPS};
    struct config config = config_of("train.global_batch=8 parallel.strategy=FULL_SHARD", 1);
    training_run(&l->c, &config, &how, &with);
    config.parallel.forward_prefetch = 0;
    config.parallel.backward_prefetch = PREFETCH_NONE;
    training_run(&l->c, &config, &how, &without);
    CHECK(&l->c, !memcmp(&with, &without, sizeof with));
    config.parallel.prefetch_units = 2;
    config.parallel.backward_prefetch = PREFETCH_BACKWARD_POST;
    training_run(&l->c, &config, &how, &late);
    CHECK(&l->c, !memcmp(&with, &late, sizeof with));
}

/* Computing activations again changes no bit, in any layout. */
static void test_recompute(struct layouts *l)
{
    struct training how = {.tokens = l->tokens, .to = TRAINING_STEPS};
    for (int i = 0; i < 4; i++) {
        struct trained kept = {0}, again = {0};
        char text[256];
        if (!training_takes(&l->c, i, 2))
            continue;
        snprintf(text, sizeof text, "train.global_batch=8 precision=%s model.tie_embeddings=%s %s",
                 i / 2 ? "bf16" : "fp32", i / 2 ? "true" : "false", strategies[i % 2]);
        struct config config = config_of(text, 1);
        training_run(&l->c, &config, &how, &kept);
        config.recompute = i % 3 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
        training_run(&l->c, &config, &how, &again);
        CHECK(&l->c, !memcmp(&kept, &again, sizeof kept));
    }
}

/* 7 sequences on any number of ranks, in micro-batches of 1, 2 and all at once. */
static void test_ragged_batches(struct layouts *l)
{
    struct trained reference = {0}, trained = {0};
    reference_of(l, "train.global_batch=7", 0, &reference);
    CHECK(&l->c, reference.targets == 7 * 17);
    for (int i = 0; i < 6; i++) {
        char text[128];
        if (!training_takes(&l->c, i, 3))
            continue;
        snprintf(text, sizeof text, "train.global_batch=7 %s", strategies[i % 2]);
        struct config config = config_of(text, i / 2);
        check_against(l, &config, 0, &reference, &trained);
    }
}

/* A batch for each rank is the batch of all of them on one. */
static void test_batches_of_ranks(struct layouts *l)
{
    struct trained reference = {0}, trained = {0};
    char text[128];
    snprintf(text, sizeof text, "train.global_batch=%d", 3 * world_size(l->c.world));
    reference_of(l, text, 0, &reference);
    for (int i = 0; i < 4; i++) {
        if (!training_takes(&l->c, i + i / 2, 2))
            continue;
        snprintf(text, sizeof text, "train.global_batch=3 train.split_batches=false %s",
                 strategies[i % 2]);
        struct config config = config_of(text, i / 2);
        check_against(l, &config, 0, &reference, &trained);
    }
}

/* Some ranks have five times the targets of others: every target counts the same. */
static void test_masks(struct layouts *l)
{
    struct trained reference = {0}, trained = {0};
    reference_of(l, "train.global_batch=6", 1, &reference);
    CHECK(&l->c, reference.targets < 6 * 17 * 0.8);
    for (int i = 0; i < 4; i++) {
        char text[128];
        if (!training_takes(&l->c, i + i / 2 + 1, 2))
            continue;
        snprintf(text, sizeof text, "train.global_batch=6 %s", strategies[i % 2]);
        struct config config = config_of(text, i / 2);
        check_against(l, &config, 1, &reference, &trained);
    }
}

/* The loss of a validation file that ends within a batch; looking at it changes nothing. */
static void test_evaluation(struct layouts *l)
{
    struct trained reference = {0}, without, trained;
    struct training how = {.tokens = l->tokens, .to = TRAINING_STEPS};
    char text[256];
    snprintf(text, sizeof text, "train.global_batch=6 data.valid=%s ", l->tokens);
    reference_of(l, text, 0, &reference);
    CHECK(&l->c, reference.valid_targets == 20010 / 17 * 17);
    for (int i = 0; i < 4; i++) {
        if (!training_takes(&l->c, i + i / 2, 2))
            continue;
        snprintf(text, sizeof text, "train.global_batch=6 %s", strategies[i % 2]);
        struct config config = config_of(text, 1 + i / 2);
        without = trained = (struct trained){0};
        training_run(&l->c, &config, &how, &without);
        snprintf(config.data.valid, sizeof config.data.valid, "%s", l->tokens);
        training_run(&l->c, &config, &how, &trained);
        double off = fabs(trained.valid_loss / reference.valid_loss - 1);
        CHECK(&l->c, off <= tolerance);
        CHECK(&l->c, trained.valid_targets == reference.valid_targets);
        CHECK(&l->c, trained.hash == without.hash);
        CHECK(&l->c, !memcmp(trained.loss, without.loss, sizeof trained.loss));
    }
}

/* Stopped after 23 steps, and gone on from what was saved in a new session. */
static void test_resume(struct layouts *l, const char *precision, const char *optimizer)
{
    for (int i = 0; i < 2; i++) {
        char text[256], checkpoints[128];
        struct trained whole = {0}, parts = {0};
        struct training how = {.tokens = l->tokens, .to = TRAINING_STEPS};
        if (!training_takes(&l->c, i, 2))
            continue;
        snprintf(text, sizeof text, "train.global_batch=6 precision=%s train.optimizer=%s %s",
                 precision, optimizer, strategies[i]);
        snprintf(checkpoints, sizeof checkpoints, "%s/%s-%s-%d", l->dir, precision, optimizer, i);
        struct config config = config_of(text, 1);
        training_run(&l->c, &config, &how, &whole);
        how.checkpoints = checkpoints;
        how.to = 23;
        training_run(&l->c, &config, &how, &parts);
        CHECK(&l->c, parts.hash != whole.hash);
        how.from = 23;
        how.to = TRAINING_STEPS;
        training_run(&l->c, &config, &how, &parts);
        CHECK(&l->c, !memcmp(&whole, &parts, sizeof whole));
    }
}

/* Momentum is no moment: what one optimizer left, another does not take. */
static void test_other_optimizer(struct layouts *l)
{
    char text[192], found[128];
    struct error err = {0};
    struct log log = {.level = LOG_ERROR, .rank = world_rank(l->c.world)};
    struct session *s = NULL;
    struct run_position position = {0};
    snprintf(found, sizeof found, "%s/fp32-sgd-%d", l->dir, world_size(l->c.world) % 2);
    snprintf(text, sizeof text, "train.global_batch=6 checkpoint.resume=%s", found);
    struct config config = config_of(text, 1);
    CHECK(&l->c,
          !session_open(&s, l->c.world, &log, &l->c.mem, &config, SESSION_TRAIN, NULL, &err));
    CHECK(&l->c, s && training_load(s, found, &position, &err) == -1);
    CHECK(&l->c, strstr(err.text, "train.optimizer sgd, and this run's is adamw"));
    session_close(s);
    CHECK(&l->c,
          !session_open(&s, l->c.world, &log, &l->c.mem, &config, SESSION_EVALUATE, NULL, &err));
    CHECK(&l->c, s && !training_load(s, found, &position, &err));
    session_close(s);
}

int main(void)
{
    struct layouts l = {0};
    if (checks_start(&l.c))
        return 1;
    training_data(&l.c, l.dir, 101);
    snprintf(l.tokens, sizeof l.tokens, "%s/tokens.h5", l.dir);
    test_layouts(&l, "");
    test_layouts(&l, "model.tie_embeddings=true");
    test_sgd(&l);
    test_muon(&l);
    test_wrap(&l);
    test_small_units(&l);
    test_prefetch(&l);
    test_recompute(&l);
    test_batches_of_ranks(&l);
    test_ragged_batches(&l);
    test_masks(&l);
    test_evaluation(&l);
    test_resume(&l, "fp32", "adamw");
    test_resume(&l, "bf16", "adamw");
    test_resume(&l, "fp32", "sgd");
    test_resume(&l, "fp32", "muon");
    test_resume(&l, "bf16", "muon");
    test_other_optimizer(&l);
    world_barrier(l.c.world);
    if (!world_rank(l.c.world)) {
        printf("# %d ranks: losses of %d steps within %.2g of one rank's\n", world_size(l.c.world),
               TRAINING_STEPS, l.worst);
        CHECK(&l.c, !disk_remove(l.dir, NULL));
    }
    return checks_finish(&l.c);
}
