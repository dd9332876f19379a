/* test_boundaries.c - an encoder-decoder, whose decoder blocks all read what the encoder puts out,
 * of a sequence of another length, trains on several ranks, cut into units, as on one in one unit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mpi/training.h"
#include "tests/unit/translator.h"
#include "verify/verify.h"

#define MODEL                                                                       \
    "model.layers=2 model.hidden=20 model.heads=2 model.head_dim=6 model.ffn=12 "   \
    "model.vocab=37 data.seq_len=7 train.global_batch=12 "                          \
    "train.clip=1 train.lr=1e-2 train.warmup_steps=1 train.steps=9 precision=fp32 " \
    "data.valid=none.h5 train.micro_batch=1 "

static const char *const strategies[] = {
    "NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2",
};

static const char *const settings[] = {
    "recompute=full parallel.schedule=zb_h1",
    "parallel.schedule=gpipe recompute=selective parallel.wrap=layers parallel.layers_per_unit=2",
    "train.freeze=encoder.*,decoder.0.* parallel.forward_prefetch=true",
    "parallel.schedule=zb_h1 train.freeze=embed,encoder.* offload.optimizer=disk",
    "offload.optimizer=host recompute=selective",
};

/* Of two stages, between which go two boundaries. */
static const char *const pipelines[] = {
    "parallel.pipeline=2 parallel.stages=6,2 parallel.schedule=gpipe",
    "parallel.pipeline=2 parallel.stages=6,2 recompute=full",
    "parallel.pipeline=2 parallel.stages=5,3 parallel.schedule=zb_h1",
    "parallel.pipeline=2 parallel.schedule=interleaved_1f1b",
};

static struct session *open_form(struct mem *mem, const char *text, enum translator_form form,
                                 struct world *world)
{
    struct config config = rig_config(text);
    return rig_open_model(mem, &config, translator_model(&config, form), world, NULL, 0);
}

static double distance(const double *a, const double *b, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        double off = fabs(a[i] / b[i] - 1);
        most = off <= most ? most : off; /* NaN stays */
    }
    return most;
}

/* The programs of all ranks together. */
static int verify_all(const struct session *s, int ranks, struct error *err)
{
    struct fleet fleet;
    struct config config = s->config;
    fleet_open_model(&fleet, &config, translator_model(&config, TRANSLATOR_CHAIN), ranks,
                     PROGRAM_TRAIN);
    int rc = verify_ranks((const struct program *const *)fleet.program, ranks, err);
    fleet_close(&fleet);
    return rc;
}

static void compare(struct checks *c, const char *strategy, const char *more)
{
    struct error err = {0};
    struct mem mem = {0};
    struct translator_outcome whole, chain;
    char text[700], one[800];
    int ranks = world_size(c->world), hybrid = !strncmp(strategy, "HYBRID", 6);
    int data = strstr(more, "parallel.pipeline=2") ? ranks / 2 : ranks;
    snprintf(text, sizeof text, "%s %s parallel.strategy=%s parallel.shard=%d", MODEL, more,
             strategy, hybrid && data % 2 == 0 ? 2 : 0);
    snprintf(one, sizeof one,
             "%s %s train.global_batch=12 train.micro_batch=4 parallel.schedule=naive "
             "recompute_every=1 parallel.strategy=NO_SHARD parallel.pipeline=1 parallel.stages=",
             MODEL, more);
    struct session *b = open_form(&mem, one, TRANSLATOR_WHOLE, NULL);
    struct session *a = open_form(&mem, text, TRANSLATOR_CHAIN, c->world);
    int rc = verify_program(a->train, &err) || verify_program(a->evaluate, &err) ||
             verify_all(a, ranks, &err) || translator_train(b, 0, &whole, &err) ||
             translator_train(a, 0, &chain, &err);
    CHECK(c, !rc);
    if (rc)
        fprintf(stderr, "%s: %s\n", text, err.text);
    double losses = rc ? 1 : distance(chain.loss, whole.loss, TRANSLATOR_STEPS);
    double norms = rc ? 1 : distance(chain.norm, whole.norm, TRANSLATOR_STEPS);
    CHECK(c, losses < 2e-6 && norms < 1e-4 && chain.targets == whole.targets);
    CHECK(c, rc || chain.loss[TRANSLATOR_STEPS - 1] < chain.loss[0]);
    if (!world_rank(c->world) && (losses >= 2e-6 || norms >= 1e-4))
        printf("%s: losses differ by %.1e, norms by %.1e\n", text, losses, norms);
    session_close(a);
    session_close(b);
    CHECK(c, !mem.blocks);
}

int main(void)
{
    struct checks c = {0};
    if (checks_start(&c))
        return 1;
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++)
        for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++)
            compare(&c, strategies[i], settings[k]);
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++)
        for (size_t k = 0; k < sizeof pipelines / sizeof pipelines[0]; k++)
            if (world_size(c.world) % 2 == 0)
                compare(&c, strategies[i], pipelines[k]);
    return checks_finish(&c);
}
