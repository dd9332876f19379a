/* test_grad_dtype.c - gradients in bf16 (train.grad_dtype) train as those in fp32 do, within a
 * bound, on every layout; two runs, strategies that sum alike, offload and a resume give the same
 * bits.
 *
 * A gradient in bf16 is off by up to 2^-9 in each element, its sum over ranks once more; AdamW
 * divides by its size, so that a step is off by as much.  Seen are differences of a loss of 1.4e-4
 * in 50 steps.
 *
 * With CHECK_SHORT=1 a number of ranks of the emulated GPU takes a quarter of the settings that are
 * for any number, 1 to 4 ranks together all, and three ranks alone look at bits; every one by `make
 * check-whole`.
 */
#include <math.h>
#include <string.h>

#include "io/disk.h"
#include "tests/mpi/training.h"

static const double tolerance = 5e-4;

enum { STEPS = GRAD_STEPS, HALF = STEPS / 2 };

#define MODEL                                                                               \
    "device=" GRAD_DEVICE " model.layers=3 model.hidden=36 model.heads=6 model.head_dim=6 " \
    "model.ffn=61 model.vocab=101 data.seq_len=24 model.max_seq_len=32 train.lr=3e-3 "      \
    "train.schedule=cosine train.warmup_steps=5 train.steps=50 run.threads=1 seed=11 "      \
    "train.global_batch=" GRAD_BATCH " precision=bf16 "
#define LLAMA  "model.kv_heads=3 "
#define GPT2   "model.family=gpt2 model.tie_embeddings=true "
#define NARROW "train.grad_dtype=bf16 "

/* Settings of each number of ranks, of which %d is that; 0: of any number. */
static const struct {
    int ranks;
    const char *text;
} cells[] = {
    {0, LLAMA "parallel.strategy=NO_SHARD"},
    {0, LLAMA "parallel.strategy=SHARD_OPTIM train.optimizer=sgd"},
    {0, GPT2 "parallel.strategy=FULL_SHARD recompute=full parallel.persist_below=2000"},
    {0, LLAMA "parallel.strategy=FULL_SHARD precision=bf16_pure train.optimizer_dtype=bf16"},
    {0, LLAMA "parallel.strategy=FULL_SHARD lora.r=3 lora.target_modules=all-linear"},
    {0, GPT2 "parallel.strategy=NO_SHARD parallel.schedule=zb_h1 model.residual_dropout=0.1"},
    {2, LLAMA "parallel.tensor=2"},
    {3, LLAMA "parallel.tensor=3 parallel.tensor_overlap=2"},
    {2, GPT2 "parallel.context=2 parallel.strategy=FULL_SHARD"},
    {2, LLAMA "parallel.pipeline=2"},
    {4, LLAMA "parallel.tensor=4 recompute=selective"},
    {4, LLAMA "parallel.strategy=HYBRID_SHARD parallel.shard=2"},
    {4, GPT2 "parallel.tensor=2 parallel.strategy=SHARD_GRAD_OP"},
    {4, GPT2 "parallel.pipeline=2 parallel.strategy=SHARD_OPTIM"},
};
enum { CELLS = sizeof cells / sizeof cells[0] };

struct trial {
    struct checks c;
    char tokens[96], dir[64];
    double worst;
    struct trained first; /* of test_bits(): FULL_SHARD */
};

static void run(struct trial *t, const char *text, const char *more, struct trained *trained)
{
    struct training how = {.tokens = t->tokens, .to = STEPS};
    char all[1024];
    snprintf(all, sizeof all, MODEL "%s %s", text, more);
    struct config config = rig_config(all);
    *trained = (struct trained){0};
    training_run(&t->c, &config, &how, trained);
}

static double distance(const struct trained *a, const struct trained *b)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++) {
        double off = fabs(a->loss[i] / b->loss[i] - 1);
        most = off <= most ? most : off; /* NaN stays */
    }
    return most;
}

/* Against the same layout with gradients in fp32: near, and not the same. */
static void test_parity(struct trial *t)
{
    for (int i = 0; i < CELLS; i++) {
        struct trained wide, narrow;
        if (cells[i].ranks && cells[i].ranks != world_size(t->c.world))
            continue;
        if (!cells[i].ranks && !training_takes(&t->c, i, GRAD_SHARE))
            continue;
        run(t, cells[i].text, "", &wide);
        run(t, cells[i].text, NARROW, &narrow);
        double off = distance(&narrow, &wide);
        if (!(off > 0 && off <= tolerance) && !world_rank(t->c.world))
            fprintf(stderr, "%s: losses are off by %g\n", cells[i].text, off);
        CHECK(&t->c, off > 0 && off <= tolerance);
        t->worst = off <= t->worst ? t->worst : off;
    }
}

/* Twice the same; strategies whose sums over ranks are the same ones; and state that lives
 * elsewhere. */
static void test_bits(struct trial *t)
{
    struct trained *first = &t->first, other;
    char more[256];
    run(t, LLAMA "parallel.strategy=FULL_SHARD", NARROW, first);
    run(t, LLAMA "parallel.strategy=FULL_SHARD", NARROW, &other);
    CHECK(&t->c, !memcmp(first, &other, sizeof other));
    run(t, LLAMA "parallel.strategy=SHARD_GRAD_OP", NARROW, &other);
    CHECK(&t->c, !memcmp(first->loss, other.loss, sizeof other.loss));
    run(t, LLAMA "parallel.strategy=SHARD_OPTIM comm.reduce_dtype=fp32", NARROW, &other);
    CHECK(&t->c, !memcmp(first->loss, other.loss, sizeof other.loss));
    snprintf(more, sizeof more,
             NARROW "offload.gradients=disk offload.optimizer=host offload.path=%s", t->dir);
    run(t, LLAMA "parallel.strategy=FULL_SHARD", more, &other);
    CHECK(&t->c, !memcmp(first->loss, other.loss, sizeof other.loss));
}

/* Stopped half-way, and gone on from what was saved: with the same gradients, to the same bits as
 * the run that test_bits() kept. */
static void test_resume(struct trial *t)
{
    struct trained parts = {0};
    char checkpoints[128];
    struct training how = {.tokens = t->tokens, .checkpoints = checkpoints, .to = HALF};
    struct config config = rig_config(MODEL LLAMA NARROW "parallel.strategy=FULL_SHARD");
    snprintf(checkpoints, sizeof checkpoints, "%s/saved", t->dir);
    training_run(&t->c, &config, &how, &parts);
    how.from = HALF;
    how.to = STEPS;
    training_run(&t->c, &config, &how, &parts);
    CHECK(&t->c, !memcmp(&t->first, &parts, sizeof parts));
}

int main(void)
{
    struct trial t = {0};
    if (checks_start(&t.c))
        return 1;
    training_data(&t.c, t.dir, 101);
    snprintf(t.tokens, sizeof t.tokens, "%s/tokens.h5", t.dir);
    test_parity(&t);
    if (GRAD_SHARE == 1 || !rig_is_short() || world_size(t.c.world) == 3) {
        test_bits(&t);
        test_resume(&t);
    }
    world_barrier(t.c.world);
    if (!world_rank(t.c.world)) {
        printf("# %d ranks: losses of %d steps within %.2g of gradients in fp32\n",
               world_size(t.c.world), STEPS, t.worst);
        CHECK(&t.c, !disk_remove(t.dir, NULL));
    }
    return checks_finish(&t.c);
}
