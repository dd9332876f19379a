/* test_schedules.c - the order in which micro-batches are computed changes no bit: losses, norms
 * and the state at the end are those of the order naive, with every strategy, accumulation,
 * recomputation, and gradients that live elsewhere; and memory is allocated as planned.
 *
 * With CHECK_SHORT=1 a number of ranks takes a third of the settings; all by `make check-whole`. */
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "plan/report.h"
#include "tests/mpi/training.h"

#define SIZES                                                                               \
    "model.layers=3 model.hidden=24 model.heads=2 model.ffn=36 model.vocab=101 "            \
    "data.seq_len=11 train.micro_batch=1 train.lr=3e-3 train.warmup_steps=1 run.threads=1 " \
    "device=cpu seed=7 "

enum { STEPS = 3, MICROS = 3 };

static const char *const strategies[] = {"NO_SHARD",   "SHARD_OPTIM",  "SHARD_GRAD_OP",
                                         "FULL_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
static const char *const recomputes[] = {"none", "selective", "full"};
static const char *const models[] = {
    "",
    "model.family=gpt2 parallel.accumulate=local",
    "model.tie_embeddings=true",
    "model.tie_embeddings=true",
    "model.family=gpt2 model.tie_embeddings=false",
    "train.freeze=embed*,layers.0.*,layers.1.mlp.* parallel.wrap=layers parallel.layers_per_unit=2",
    "train.freeze=embed*,layers.*",
    "model.family=gpt2 precision=bf16 parallel.persist_below=500",
};
static const char *const others[] = {"gpipe", "1f1b", "zb_h1"};

enum {
    STRATEGIES = sizeof strategies / sizeof strategies[0],
    MODELS = sizeof models / sizeof models[0],
    OTHERS = sizeof others / sizeof others[0],
    TRIALS = STRATEGIES * MICROS * 3
};

struct trial {
    struct checks c;
    char tokens[96], dir[64];
    struct mem idle;
    int run;
};

static struct config config_of(const struct trial *t, int number, const char *schedule)
{
    char text[1024];
    int ranks = world_size(t->c.world), strategy = number % STRATEGIES;
    int micros = 1 + number / STRATEGIES % MICROS;
    int length = snprintf(
        text, sizeof text,
        SIZES "parallel.strategy=%s train.global_batch=%d recompute=%s parallel.schedule=%s %s",
        strategies[strategy], ranks * micros, recomputes[number / STRATEGIES / MICROS], schedule,
        models[number % MODELS]);
    if (strategy >= 4)
        length += snprintf(text + length, sizeof text - (size_t)length, " parallel.shard=%d",
                           ranks % 2 ? ranks : 2);
    if (strategy >= 2 && number / 2 % 2)
        snprintf(text + length, sizeof text - (size_t)length,
                 " offload.gradients=disk offload.path=%s", t->dir);
    return rig_config(text);
}

/* Allocated as planned; returns the planned bytes of activations. */
static size_t check_memory(struct trial *t, const struct config *config)
{
    struct error err = {0};
    struct report report;
    struct session *s = NULL;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(t->c.world)};
    struct report_request request = {
        .config = config, .ranks = world_size(t->c.world), .nodes = 1, .threads = 1};
    CHECK(&t->c, !report_make(&report, &request, &err));
    CHECK(&t->c, report.verified);
    CHECK(&t->c, !session_open(&s, t->c.world, &log, &t->c.mem, config, SESSION_TRAIN, NULL, &err));
    const struct memory_need *need = &report.rank[world_rank(t->c.world)].need;
    size_t activations = need->pool_bytes[POOL_ACTIVATIONS];
    for (int pool = 0; pool < POOL_COUNT; pool++)
        CHECK(&t->c, t->c.mem.now_bytes[pool] - t->idle.now_bytes[pool] == need->pool_bytes[pool]);
    session_close(s);
    report_free(&report);
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    return activations;
}

static void run(struct trial *t, int number)
{
    struct training how = {.tokens = t->tokens, .to = STEPS};
    struct trained naive = {0};
    struct config config = config_of(t, number, "naive");
    int failed = t->c.failed, accumulates = number / STRATEGIES % MICROS > 0;
    size_t one = check_memory(t, &config);
    t->run++;
    training_run(&t->c, &config, &how, &naive);
    CHECK(&t->c, naive.loss[STEPS - 1] > 0 && naive.norm[0] > 0);
    for (int i = 0; i < OTHERS; i++) {
        struct trained other = {0};
        config = config_of(t, number, others[i]);
        training_run(&t->c, &config, &how, &other);
        CHECK(&t->c, !memcmp(&naive, &other, sizeof naive));
        size_t all = check_memory(t, &config);
        CHECK(&t->c, strcmp(others[i], "gpipe") || !accumulates || all > one);
        CHECK(&t->c, strcmp(others[i], "1f1b") || all == one);
        if (t->c.failed > failed)
            fprintf(stderr, "trial %d, %s: %s, %d micro-batches, recompute %s, %s\n", number,
                    others[i], strategies[number % STRATEGIES], 1 + number / STRATEGIES % MICROS,
                    recomputes[number / STRATEGIES / MICROS], models[number % MODELS]);
    }
}

int main(void)
{
    struct trial t = {0};
    if (checks_start(&t.c))
        return 1;
    training_data(&t.c, t.dir, 101);
    snprintf(t.tokens, sizeof t.tokens, "%s/tokens.h5", t.dir);
    t.idle = t.c.mem;
    for (int i = 0; i < TRIALS; i++)
        if (training_takes(&t.c, i / STRATEGIES + i, 3))
            run(&t, i);
    world_barrier(t.c.world);
    if (!world_rank(t.c.world)) {
        printf("# %d ranks: %d settings, the same bits in %d orders\n", world_size(t.c.world),
               t.run, OTHERS + 1);
        CHECK(&t.c, !disk_remove(t.dir, NULL));
    }
    return checks_finish(&t.c);
}
