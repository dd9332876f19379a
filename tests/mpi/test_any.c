/* test_any.c - settings by chance: losses are those of one rank, memory and volume as planned.
 *
 * So they are when a run changes from one of them to another by a checkpoint.  On ANY_DEVICE,
 * ANY_CASES of them.  What test_matrix.c and test_layouts.c do not think of: units of every size,
 * small ones whole, prefetch, buckets, offload and recomputation in any combination. ANY=N in the
 * environment tries N cases a number of ranks, FROM=N begins with another one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "plan/report.h"
#include "program/schedule.h"
#include "tests/mpi/training.h"
#include "tests/unit/any.h"
#include "train/pending_update.h"

enum { STEPS = 10, CHANGE = 4 };

/* As in test_matrix.c; an eps above the rounding of gradients that are mathematically zero. */
static const double tolerance = 1e-5;

#define SIZES                                                                             \
    "model.hidden=12 model.heads=2 model.ffn=20 data.seq_len=7 run.threads=1 " ANY_DEVICE \
    " train.lr=3e-3 train.schedule=constant seed=5"

struct anything {
    struct checks c;
    char tokens[96], dir[64];
    struct mem idle;
    double worst;
};

static void check_planned(struct anything *a, const struct report_rank *plan)
{
    for (int pool = 0; pool < POOL_COUNT; pool++)
        CHECK(&a->c,
              a->c.mem.now_bytes[pool] - a->idle.now_bytes[pool] == plan->need.pool_bytes[pool]);
}

static void steps(struct anything *a, struct session *s, const struct report_rank *plan,
                  double loss[STEPS])
{
    struct error err = {0};
    struct batches batches;
    struct pending_update pending = {0};
    CHECK(&a->c, !batches_open(&batches, s, a->tokens, LOADER_SHUFFLED, &err));
    rig_init(s);
    for (int step = 1; step <= STEPS; step++) {
        struct step_input input = rig_input(s, step);
        struct step_output output = {0};
        input.load = batches_load;
        input.load_positions = batches_load_positions;
        input.user = &batches;
        batches.sample = (step - 1) * s->layout.global_batch;
        int rc = pending_update_pass(&pending, s, &input, &err) ||
                 executor_run_step(s->executor, s->train, &input, &output, NULL, &err);
        pending_update_started(&pending, s, rc);
        CHECK(&a->c, !rc);
        if (plan)
            training_check_volume(&a->c, s, plan);
        loss[step - 1] = output.loss;
    }
    batches_close(&batches);
}

/* One rank alone, nothing sharded. */
static void reference(struct anything *a, const char *settings, double loss[STEPS])
{
    if (!world_rank(a->c.world)) {
        struct mem mem = {0};
        struct config config = rig_config(settings);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        steps(a, s, NULL, loss);
        session_close(s);
    }
    world_broadcast(a->c.world, loss, STEPS * sizeof *loss, 0);
}

static void compare(struct anything *a, const double *loss, const double *wanted)
{
    CHECK(&a->c, wanted[0] > 2);
    for (int i = 0; i < STEPS; i++) {
        double off = fabs(loss[i] / wanted[i] - 1);
        CHECK(&a->c, off <= tolerance);
        a->worst = off <= a->worst ? a->worst : off;
    }
}

static void train(struct anything *a, const char *settings, double loss[STEPS])
{
    struct error err = {0};
    struct report report;
    struct config config = rig_config(settings);
    struct session *s = NULL;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(a->c.world)};
    struct report_request request = {
        .config = &config, .ranks = world_size(a->c.world), .nodes = 1, .threads = 1};
    CHECK(&a->c, !report_make(&report, &request, &err));
    CHECK(&a->c, report.verified);
    CHECK(&a->c,
          !session_open(&s, a->c.world, &log, &a->c.mem, &config, SESSION_TRAIN, NULL, &err));
    if (s) {
        const struct report_rank *plan = &report.rank[world_rank(a->c.world)];
        check_planned(a, plan);
        steps(a, s, plan, loss);
    }
    session_close(s);
    report_free(&report);
}

/* Has a layout more stages than the model has units? */
static int has_more_stages(const struct layout *layout, const struct config *config)
{
    struct model *model = NULL;
    int more = layout_model(&model, config, NULL) || layout->schedule->stages > model->units;
    model_destroy(model);
    return more;
}

/* Tensor ranks would divide the rows of these small models within blocks of 4 bits. */
static int divides_blocks(const struct config *config)
{
    return config->lora.quantize_base != QUANTIZE_NONE && config->parallel.tensor > 1;
}

/* The model laid out in some way that these ranks allow, with `more` settings. */
static void lay_out(struct anything *a, struct any *any, const char *model, const char *more,
                    char text[ANY_TEXT])
{
    struct config config;
    struct layout layout;
    int ranks = world_size(a->c.world);
    int tries = 0, refused = 1;
    while (refused && tries++ < 1000) {
        snprintf(text, ANY_TEXT, "%s offload.path=%s", model, a->dir);
        any_settings(any, ANY_LAYOUT, text);
        snprintf(text + strlen(text), ANY_TEXT - strlen(text), " %s", more);
        refused =
            any_load(&config, text, NULL) || divides_blocks(&config) ||
            layout_resolve(&layout, &config, ranks, ranks,
                           config.device == CONFIG_DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU, NULL);
        if (!refused) {
            refused = has_more_stages(&layout, &config);
            layout_release(&layout);
        }
    }
    CHECK(&a->c, !refused);
}

/* Some steps in one layout, saved, and the rest in another. */
static void change(struct anything *a, const char *one, const char *other, int number,
                   double loss[STEPS])
{
    char path[96];
    snprintf(path, sizeof path, "%s/case-%d", a->dir, number);
    struct training how = {.tokens = a->tokens, .checkpoints = path, .to = CHANGE};
    struct config before = rig_config(one), after = rig_config(other);
    struct trained trained = {0};
    training_run(&a->c, &before, &how, &trained);
    how.from = CHANGE;
    how.to = STEPS;
    training_run(&a->c, &after, &how, &trained);
    memcpy(loss, trained.loss, STEPS * sizeof *loss);
}

static void try(struct anything *a, int number)
{
    struct any any = any_case("any run", number);
    char model[ANY_TEXT] = SIZES, alone[ANY_TEXT], one[ANY_TEXT], other[ANY_TEXT];
    double loss[STEPS] = {0}, wanted[STEPS] = {0};
    int failed = a->c.failed;
    any_settings(&any, ANY_MODEL, model);
    lay_out(a, &any, model, "", one);
    lay_out(a, &any, model, "", other);
    snprintf(alone, sizeof alone, "%s parallel.strategy=NO_SHARD", model);
    reference(a, alone, wanted);
    train(a, one, loss);
    compare(a, loss, wanted);
    change(a, one, other, number, loss);
    compare(a, loss, wanted);
    if (a->c.failed > failed)
        fprintf(stderr, "rank %d, case %d: %s, then %s\n", world_rank(a->c.world), number, one,
                other);
}

/* Of ranks that share sequences, on one stage. */
static void try_context(struct anything *a, int number)
{
    struct any any = any_case("any context run", number);
    char model[ANY_TEXT] = SIZES " data.seq_len=12", alone[ANY_TEXT], text[ANY_TEXT], more[64];
    double loss[STEPS] = {0}, wanted[STEPS] = {0};
    int failed = a->c.failed, ranks = world_size(a->c.world);
    int contexts = ranks % 3 == 0 ? 3 : ranks % 2 == 0 ? 2 : 1;
    if (contexts == 1)
        return;
    any_settings(&any, ANY_MODEL, model);
    snprintf(more, sizeof more, "parallel.pipeline=1 parallel.context=%d", contexts);
    lay_out(a, &any, model, more, text);
    snprintf(alone, sizeof alone, "%s parallel.strategy=NO_SHARD", model);
    reference(a, alone, wanted);
    train(a, text, loss);
    compare(a, loss, wanted);
    if (a->c.failed > failed)
        fprintf(stderr, "rank %d, case %d: %s\n", world_rank(a->c.world), number, text);
}

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int main(void)
{
    struct anything a = {0};
    if (checks_start(&a.c))
        return 1;
    training_data(&a.c, a.dir, 23);
    snprintf(a.tokens, sizeof a.tokens, "%s/tokens.h5", a.dir);
    a.idle = a.c.mem;
    int from = number_of("FROM", 1000 * world_size(a.c.world)), cases = number_of("ANY", ANY_CASES);
    for (int i = from; i < from + cases; i++) {
        try(&a, i);
        try_context(&a, i);
    }
    world_barrier(a.c.world);
    if (!world_rank(a.c.world)) {
        printf("# %d ranks: %d runs by chance, losses within %.2g of one rank's\n",
               world_size(a.c.world), cases, a.worst);
        CHECK(&a.c, !disk_remove(a.dir, NULL));
    }
    return checks_finish(&a.c);
}
