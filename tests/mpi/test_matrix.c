/* test_matrix.c - everything with everything: strategies, ranks, accumulation, recomputation,
 * offload and models, on odd sizes.  In every cell
 *   - the losses of 50 steps and the weights after them are those of one rank,
 *   - offload changes no bit,
 *   - memory is allocated and bytes are sent as planned.
 * Other precisions are held against the losses of fp32.
 *
 * Alone it runs cells in which every two settings of different kinds meet once (a greedy cover);
 * with MATRIX=all in the environment the full product.  In both, those of its own number of ranks.
 *
 * Sums over ranks and micro-batches are taken in other orders than by one rank: 6e-8 each, of which
 * the loss shows a part.  AdamW divides by the root of the second moment, which makes of a relative
 * error of a gradient one of the step, of 1e-3: 1e-7 or less for most weights.  Where a gradient is
 * itself rounding, the quotient is anything; an eps of 1e-6, above that noise, bounds it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "plan/report.h"
#include "tests/mpi/training.h"

/* Strategies with one micro-batch and then with three are one kind: all of them meet all ranks. */
enum kind { RANKS, STRATEGY, RECOMPUTE, OFFLOAD, GRADIENTS, MODEL, KINDS };
enum { STRATEGIES = 6, LEVELS = 2 * STRATEGIES, CELLS = 4 * LEVELS * 3 * 3 * 3 * 2, STEPS = 50 };

static const double most_of_loss = 1e-5, most_of_weight = 1e-5;

static const char *const strategies[STRATEGIES] = {
    "NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
static const char *const recomputes[] = {"none", "selective", "full"};
static const char *const offloads[] = {"none", "host", "disk"};

#define SIZES                                                                                \
    "model.layers=3 model.hidden=42 model.heads=3 model.vocab=101 data.seq_len=17 "          \
    "train.global_batch=9 train.lr=1e-3 train.eps=1e-6 train.warmup_steps=5 train.steps=50 " \
    "run.threads=1 "                                                                         \
    "seed=11 device=cpu "

static const char *const models[] = {
    SIZES "model.family=llama model.kv_heads=1 model.ffn=61",
    SIZES "model.family=gpt2 model.ffn=61",
};

/* Other formats, and how far their losses may be from those of fp32: a number of bf16 is off by
 * 2^-9 = 2e-3, of which a mean of some hundred logarithms shows a tenth; weights that are bf16
 * themselves move by whole 2^-8 of their size or, by chance, not at all; fp16 is eight times as
 * fine as bf16, and its loss scale is taken far below overflow, so that no step is skipped. */
static const struct precision {
    const char *name;
    double most_of_loss;
} precisions[] = {{"bf16", 5e-4}, {"bf16_pure", 2e-3}, {"fp16", 5e-5}};

struct cell {
    int level[KINDS];
    const struct precision *precision; /* NULL: fp32 */
};

static const char *strategy_of(const struct cell *cell)
{
    return strategies[cell->level[STRATEGY] % STRATEGIES];
}

static int accumulates(const struct cell *cell)
{
    return cell->level[STRATEGY] >= STRATEGIES;
}

/* Are gradients sharded, so that they can live elsewhere? */
static int shards_gradients(const struct cell *cell)
{
    return cell->level[STRATEGY] % STRATEGIES >= 2;
}

/* What came out on this rank: its shards of the masters, unit after unit. */
struct outcome {
    double loss[STEPS];
    float *weights;
    int64_t elems;
};

/* Of one rank: losses, and the masters of all units, each from its offset on. */
struct reference {
    struct outcome whole;
    int64_t *offset; /* per unit; one more at the end */
    int units;
};

struct matrix {
    struct checks c;
    char tokens[96], dir[64];
    int levels[KINDS];
    struct reference reference[2];
    struct mem idle;
    double worst_loss, worst_weight;
    int run;
};

/* ---- the cover ---- */

struct cover {
    const int *levels;
    char met[KINDS][LEVELS][KINDS][LEVELS];
};

/* Pairs a cell would be the first to have, among the kinds that are set (not -1). */
static int gain(const struct cover *cover, const struct cell *cell)
{
    int pairs = 0;
    for (int a = 0; a < KINDS; a++)
        for (int b = a + 1; b < KINDS; b++)
            if (cell->level[a] >= 0 && cell->level[b] >= 0)
                pairs += !cover->met[a][cell->level[a]][b][cell->level[b]];
    return pairs;
}

static void mark(struct cover *cover, const struct cell *cell)
{
    for (int a = 0; a < KINDS; a++)
        for (int b = a + 1; b < KINDS; b++)
            cover->met[a][cell->level[a]][b][cell->level[b]] = 1;
}

/* The first pair that has not met, in an otherwise open cell; 0 when all have. */
static int open_pair(const struct cover *cover, struct cell *cell)
{
    for (int a = 0; a < KINDS; a++)
        for (int b = a + 1; b < KINDS; b++)
            for (int i = 0; i < cover->levels[a]; i++)
                for (int j = 0; j < cover->levels[b]; j++)
                    if (!cover->met[a][i][b][j]) {
                        memset(cell->level, -1, sizeof cell->level);
                        cell->level[a] = i;
                        cell->level[b] = j;
                        return 1;
                    }
    return 0;
}

/* Set a kind to the level that brings most new pairs together. */
static void fill(const struct cover *cover, struct cell *cell, int kind)
{
    int best = -1, most = -1;
    for (int level = 0; level < cover->levels[kind]; level++) {
        cell->level[kind] = level;
        int pairs = gain(cover, cell);
        if (pairs > most) {
            most = pairs;
            best = level;
        }
    }
    cell->level[kind] = best;
}

static int cover_pairs(const int levels[KINDS], struct cell *cells)
{
    struct cover *cover = calloc(1, sizeof *cover);
    int count = 0;
    cover->levels = levels;
    while (open_pair(cover, &cells[count])) {
        for (int kind = 0; kind < KINDS; kind++)
            if (cells[count].level[kind] < 0)
                fill(cover, &cells[count], kind);
        mark(cover, &cells[count++]);
    }
    free(cover);
    return count;
}

static int all_cells(const int levels[KINDS], struct cell *cells)
{
    int count = 1;
    for (int kind = 0; kind < KINDS; kind++)
        count *= levels[kind];
    for (int i = 0; i < count; i++)
        for (int kind = KINDS - 1, rest = i; kind >= 0; rest /= levels[kind--])
            cells[i].level[kind] = rest % levels[kind];
    return count;
}

/* ---- a cell ---- */

static struct config config_of(const struct matrix *m, const struct cell *cell)
{
    static const int micro_batches[][2] = {{9, 3}, {5, 2}, {3, 1}, {3, 1}};
    char text[1024];
    const char *strategy = strategy_of(cell);
    int ranks = cell->level[RANKS] + 1;
    int gathers = !strcmp(strategy, "FULL_SHARD") || !strcmp(strategy, "HYBRID_SHARD");
    const char *offload = offloads[cell->level[OFFLOAD]];
    int length = snprintf(
        text, sizeof text, "%s parallel.strategy=%s train.micro_batch=%d recompute=%s",
        models[cell->level[MODEL]], strategy, micro_batches[cell->level[RANKS]][accumulates(cell)],
        recomputes[cell->level[RECOMPUTE]]);
    if (!strncmp(strategy, "HYBRID", 6))
        length += snprintf(text + length, sizeof text - (size_t)length, " parallel.shard=%d",
                           ranks % 2 ? ranks : 2);
    if (cell->level[OFFLOAD])
        length += snprintf(text + length, sizeof text - (size_t)length,
                           " offload.optimizer=%s offload.params=%s", offload,
                           gathers ? offload : "none");
    if (cell->precision)
        length += snprintf(text + length, sizeof text - (size_t)length, " precision=%s",
                           cell->precision->name);
    if (cell->level[GRADIENTS] && shards_gradients(cell))
        length += snprintf(text + length, sizeof text - (size_t)length, " offload.gradients=%s",
                           offloads[cell->level[GRADIENTS]]);
    if (strstr(text, "=disk"))
        snprintf(text + length, sizeof text - (size_t)length, " offload.path=%s", m->dir);
    return rig_config(text);
}

static void check_planned(struct matrix *m, const struct report_rank *plan)
{
    const struct mem *mem = &m->c.mem;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        size_t now = mem->now_bytes[pool] - m->idle.now_bytes[pool];
        if (now != plan->need.pool_bytes[pool])
            fprintf(stderr, "%s: planned %zu, allocated %zu\n", mem_pool_name(pool),
                    plan->need.pool_bytes[pool], now);
        CHECK(&m->c, now == plan->need.pool_bytes[pool]);
    }
}

/* All steps of an opened session; plan NULL: not compared. */
static void steps(struct matrix *m, struct session *s, const struct report_rank *plan,
                  struct outcome *outcome)
{
    struct error err = {0};
    struct batches batches;
    struct scaler scaler = scaler_begin(&s->config);
    CHECK(&m->c, !batches_open(&batches, s, m->tokens, LOADER_SHUFFLED, &err));
    rig_init(s);
    for (int step = 1; step <= STEPS; step++) {
        struct step_input input = rig_input(s, step);
        struct step_output output = {0};
        input.load = batches_load;
        input.user = &batches;
        input.loss_scale = scaler.scale;
        batches.sample = (step - 1) * s->layout.global_batch;
        CHECK(&m->c, !executor_run_step(s->executor, s->train, &input, &output, NULL, &err));
        if (plan)
            training_check_volume(&m->c, s, plan);
        CHECK(&m->c, !output.skipped);
        scaler_update(&scaler, output.skipped);
        outcome->loss[step - 1] = output.loss;
    }
    batches_close(&batches);
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
}

/* The masters of this rank. */
static void keep_weights(struct matrix *m, struct session *s, struct outcome *outcome)
{
    struct error err = {0};
    int64_t at = 0;
    for (int u = 0; u < s->units->count; u++)
        outcome->elems += s->units->flat[u].shard_elems;
    outcome->weights = malloc((size_t)outcome->elems * sizeof(float));
    for (int u = 0; u < s->units->count; u++) {
        int64_t elems = s->units->flat[u].shard_elems;
        CHECK(&m->c, !executor_read(s->executor, &s->train->buffer[s->train->state->flat[u].master],
                                    0, outcome->weights + at, (size_t)elems * sizeof(float), &err));
        at += elems;
    }
}

/* Distance of this rank's weights from their places in the reference. */
static double weights_off(const struct session *s, const struct outcome *outcome,
                          const struct reference *reference)
{
    double most = 0;
    const float *own = outcome->weights;
    int at = s->train->state->coord.at[MESH_SHARD];
    for (int u = 0; u < s->units->count; u++) {
        int64_t elems = s->units->flat[u].shard_elems, from = at * elems;
        int64_t whole = reference->offset[u + 1] - reference->offset[u];
        const float *wanted = reference->whole.weights + reference->offset[u] + from;
        for (int64_t i = 0; i < elems; i++) {
            double off = fabs((double)own[i] - (from + i < whole ? wanted[i] : 0));
            most = off <= most ? most : off; /* NaN stays */
        }
        own += elems;
    }
    return most;
}

static double losses_off(const struct outcome *a, const struct outcome *b)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++) {
        double off = fabs(a->loss[i] / b->loss[i] - 1);
        most = off <= most ? most : off;
    }
    return most;
}

static void compare(struct matrix *m, const struct session *s, const struct outcome *outcome,
                    const struct reference *reference)
{
    double loss = losses_off(outcome, &reference->whole);
    double weight = weights_off(s, outcome, reference);
    CHECK(&m->c, loss <= most_of_loss);
    CHECK(&m->c, weight <= most_of_weight);
    m->worst_loss = loss <= m->worst_loss ? m->worst_loss : loss;
    m->worst_weight = weight <= m->worst_weight ? m->worst_weight : weight;
}

/* Train a cell.  Collective. */
static void train(struct matrix *m, const struct cell *cell, struct outcome *outcome)
{
    struct error err = {0};
    struct report report;
    struct session *s = NULL;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(m->c.world)};
    struct config config = config_of(m, cell);
    *outcome = (struct outcome){0};
    struct report_request request = {
        .config = &config, .ranks = world_size(m->c.world), .nodes = 1, .threads = 1};
    CHECK(&m->c, !report_make(&report, &request, &err));
    CHECK(&m->c, report.verified);
    CHECK(&m->c,
          !session_open(&s, m->c.world, &log, &m->c.mem, &config, SESSION_TRAIN, NULL, &err));
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    if (s) {
        const struct report_rank *plan = &report.rank[world_rank(m->c.world)];
        check_planned(m, plan);
        steps(m, s, plan, outcome);
        if (!cell->precision) {
            keep_weights(m, s, outcome);
            compare(m, s, outcome, &m->reference[cell->level[MODEL]]);
        }
    }
    session_close(s);
    report_free(&report);
}

static void run_cell(struct matrix *m, const struct cell *cell)
{
    struct outcome outcome, near;
    int failed = m->c.failed;
    train(m, cell, &outcome);
    if (cell->level[OFFLOAD] || cell->level[GRADIENTS]) {
        struct cell other = *cell;
        other.level[OFFLOAD] = other.level[GRADIENTS] = 0;
        train(m, &other, &near);
        CHECK(&m->c, near.elems == outcome.elems);
        CHECK(&m->c, !memcmp(near.loss, outcome.loss, sizeof near.loss));
        CHECK(&m->c, !memcmp(near.weights, outcome.weights, (size_t)near.elems * sizeof(float)));
        free(near.weights);
    }
    free(outcome.weights);
    m->run++;
    if (m->c.failed > failed)
        fprintf(
            stderr,
            "rank %d: in %s, accumulation %d, recompute %s, offload %s, gradients %s, model %d\n",
            world_rank(m->c.world), strategy_of(cell), accumulates(cell) ? 3 : 1,
            recomputes[cell->level[RECOMPUTE]], offloads[cell->level[OFFLOAD]],
            offloads[cell->level[GRADIENTS]], cell->level[MODEL]);
}

/* Each precision with each strategy, both models in turns: losses near fp32's.  With CHECK_SHORT=1
 * every second strategy, the others with one rank more; all of them by `make check-whole`. */
static void run_precision(struct matrix *m, const struct precision *precision)
{
    struct config config = {0};
    double worst = 0;
    if (config_set(&config, "precision", precision->name, NULL))
        return; /* not of this version */
    for (int i = 0; i < LEVELS; i++) {
        struct outcome outcome;
        struct cell cell = {.precision = precision};
        if (!training_takes(&m->c, i, 2))
            continue;
        cell.level[RANKS] = world_size(m->c.world) - 1;
        cell.level[STRATEGY] = i;
        cell.level[RECOMPUTE] = i % 3;
        cell.level[MODEL] = i % m->levels[MODEL];
        train(m, &cell, &outcome);
        double off = losses_off(&outcome, &m->reference[cell.level[MODEL]].whole);
        CHECK(&m->c, off <= precision->most_of_loss && off > 0);
        worst = off <= worst ? worst : off;
    }
    if (!world_rank(m->c.world))
        printf("# %d ranks: losses in %s within %.2g of fp32's\n", world_size(m->c.world),
               precision->name, worst);
}

/* ---- the reference, by rank 0 ---- */

static void share(struct matrix *m, struct reference *r)
{
    struct world *world = m->c.world;
    world_broadcast(world, &r->units, sizeof r->units, 0);
    world_broadcast(world, &r->whole.elems, sizeof r->whole.elems, 0);
    world_broadcast(world, r->whole.loss, sizeof r->whole.loss, 0);
    size_t offsets = (size_t)(r->units + 1) * sizeof *r->offset;
    size_t weights = (size_t)r->whole.elems * sizeof(float);
    if (world_rank(world)) {
        r->offset = malloc(offsets);
        r->whole.weights = malloc(weights);
    }
    world_broadcast(world, r->offset, offsets, 0);
    world_broadcast(world, r->whole.weights, weights, 0);
}

static void make_reference(struct matrix *m, int model)
{
    struct reference *r = &m->reference[model];
    if (!world_rank(m->c.world)) {
        struct mem mem = {0};
        struct cell cell = {.level[MODEL] = model};
        struct config config = config_of(m, &cell);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        steps(m, s, NULL, &r->whole);
        keep_weights(m, s, &r->whole);
        r->units = s->units->count;
        r->offset = calloc((size_t)r->units + 1, sizeof *r->offset);
        for (int u = 0; u < r->units; u++)
            r->offset[u + 1] = r->offset[u] + s->units->flat[u].shard_elems;
        session_close(s);
        CHECK(&m->c, r->whole.loss[0] > 4.5); /* the logarithm of 101 words is 4.6 */
        CHECK(&m->c, r->whole.loss[STEPS - 1] < r->whole.loss[0] - 0.3);
    }
    share(m, r);
}

/* Every pair of levels is in a cell, and there are fewer than a tenth of all cells. */
static void check_cover(struct matrix *m, const struct cell *cells, int count)
{
    struct cover *cover = calloc(1, sizeof *cover);
    struct cell open;
    cover->levels = m->levels;
    for (int i = 0; i < count; i++)
        mark(cover, &cells[i]);
    CHECK(&m->c, !open_pair(cover, &open));
    CHECK(&m->c, count < CELLS / 10);
    free(cover);
}

/* Those of models[] that this trireme has. */
static int families(void)
{
    struct config config = {0};
    return config_set(&config, "model.family", "gpt2", NULL) ? 1 : 2;
}

int main(void)
{
    static struct cell cells[CELLS];
    struct matrix m = {.levels = {4, LEVELS, 3, 3, 3, families()}};
    const char *how = getenv("MATRIX");
    int all = how && !strcmp(how, "all");
    if (checks_start(&m.c))
        return 1;
    training_data(&m.c, m.dir, 101);
    snprintf(m.tokens, sizeof m.tokens, "%s/tokens.h5", m.dir);
    m.idle = m.c.mem;
    int count = all ? all_cells(m.levels, cells) : cover_pairs(m.levels, cells);
    if (!all)
        check_cover(&m, cells, count);
    for (int model = 0; model < m.levels[MODEL]; model++)
        make_reference(&m, model);
    for (int i = 0; i < count; i++)
        if (cells[i].level[RANKS] + 1 == world_size(m.c.world))
            run_cell(&m, &cells[i]);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        run_precision(&m, &precisions[i]);
    for (int model = 0; model < m.levels[MODEL]; model++) {
        free(m.reference[model].whole.weights);
        free(m.reference[model].offset);
    }
    world_barrier(m.c.world);
    if (!world_rank(m.c.world)) {
        printf(
            "# %d ranks: %d of %d cells; losses within %.2g, weights within %.2g of one rank's\n",
            world_size(m.c.world), m.run, count, m.worst_loss, m.worst_weight);
        CHECK(&m.c, !disk_remove(m.dir, NULL));
    }
    return checks_finish(&m.c);
}
