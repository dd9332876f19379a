/* measure_units.c - measuring how fast the ops of models are when they follow one another as in
 * training: attention by the length of its sequences, the others by the bytes of their operands.
 *
 * An embedding and a block of a Llama and of a GPT-2 are compiled as for training, by themselves.
 * Their segments run forward and backward, and a watch notes the time of every op.  Products run
 * too, and leave the caches as they do in a step, but their times are not taken: they are measured
 * by shape (measure_products.c).  So is the softmax of the loss (measure_kernels.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/round.h"
#include "config/schema.h"
#include "doctor/measure_work.h"
#include "segment/units.h"

enum { EMBED, BLOCK, MEASURED_UNITS }; /* the head after them has nothing else */
enum { MEASURED_PHASES = 2, VOCAB = 8192, QUICK_VOCAB = 512, RUNS = 9, LEAST_RUNS = 2 };

struct size {
    int64_t batch, seq;       /* sequences, and tokens of each */
    int64_t hidden, head_dim; /* columns of the residual stream, and of a head */
};
enum { SIZES = 4, QUICK_SIZES = 2 };
static const struct size cpu_sizes[SIZES] = {
    {.batch = 1, .seq = 256, .hidden = 256, .head_dim = 64},
    {.batch = 1, .seq = 1024, .hidden = 512, .head_dim = 64},
    {.batch = 1, .seq = 4096, .hidden = 256, .head_dim = 64},
    {.batch = 4, .seq = 1024, .hidden = 512, .head_dim = 64}};
static const struct size gpu_sizes[SIZES] = {
    {.batch = 1, .seq = 512, .hidden = 1024, .head_dim = 128},
    {.batch = 2, .seq = 2048, .hidden = 2048, .head_dim = 128},
    {.batch = 4, .seq = 4096, .hidden = 4096, .head_dim = 128},
    {.batch = 1, .seq = 8192, .hidden = 4096, .head_dim = 128}};
static const struct size quick_sizes[QUICK_SIZES] = {
    {.batch = 1, .seq = 32, .hidden = 64, .head_dim = 16},
    {.batch = 2, .seq = 64, .hidden = 128, .head_dim = 16}};

/* A unit with memory for its spaces. */
struct unit_run {
    const struct units *units;
    int unit;                                       /* EMBED or BLOCK */
    const struct flat *flat[FLAT_USES];             /* that the unit uses */
    const struct segment *segment[MEASURED_PHASES]; /* forward, backward */
    int steps;                                      /* of both segments */
    void *base[SPACE_COUNT];                        /* memory of each space */
    size_t bytes[SPACE_COUNT];                      /* of this memory */
};

/* ---- the time of each op ---- */

struct op_watch {
    struct segment_watch watch; /* the first member: callbacks are handed this */
    struct measure *m;
    int at;                      /* number of steps that have ended */
    int64_t since_ns;            /* clock_ns() at the begin of the step, on a CPU */
    double *seconds;             /* [steps] of each step */
    struct device_event **event; /* [steps + 1] of a GPU: before the first step, and after each */
};

static int op_begins(struct segment_watch *watch, const char *name, struct error *err)
{
    ((struct op_watch *)watch)->since_ns = clock_ns();
    return 0;
}

static int op_ended(struct segment_watch *watch, const char *name, struct error *err)
{
    struct op_watch *w = (struct op_watch *)watch;
    struct device *d = w->m->device;
    int step = w->at++;
    if (d->asynchronous)
        return device_event_record(d, w->event[w->at], DEVICE_COMPUTE, err);
    w->seconds[step] = (double)(clock_ns() - w->since_ns) * 1e-9;
    return 0;
}

static int watch_begin(struct op_watch *w, struct error *err)
{
    struct device *d = w->m->device;
    w->at = 0;
    if (!d->asynchronous)
        return 0;
    size_t half = w->m->block_bytes / 2; /* the host is ahead of the GPU from here on */
    for (int i = 0; i < 8; i++)
        if (device_copy_async(d, DEVICE_COMPUTE, w->m->block + half, w->m->block, half, err))
            return -1;
    return device_event_record(d, w->event[0], DEVICE_COMPUTE, err);
}

static int watch_end(struct op_watch *w, struct error *err)
{
    struct device *d = w->m->device;
    if (device_sync(d, err))
        return -1;
    for (int i = 0; i < w->at && d->asynchronous; i++)
        w->seconds[i] = (double)device_event_ns(d, w->event[i], w->event[i + 1]) * 1e-9;
    return 0;
}

static int run_unit(struct unit_run *run, struct op_watch *watch, struct error *err)
{
    if (watch_begin(watch, err))
        return -1;
    for (int phase = 0; phase < MEASURED_PHASES; phase++)
        for (int piece = 0; piece < run->segment[phase]->pieces; piece++)
            if (segment_run_piece(run->segment[phase], piece, 0, run->flat, watch->m->device,
                                  run->base, 0, &watch->watch, err))
                return -1;
    return watch_end(watch, err);
}

/* ---- memory of a unit ---- */

static void need(struct unit_run *run, int space, size_t bytes)
{
    run->bytes[space] = max_bytes(run->bytes[space], bytes);
}

static void find_needs(struct unit_run *run)
{
    for (int phase = 0; phase < MEASURED_PHASES; phase++) {
        const struct segment *s = run->segment[phase];
        for (int i = 0; i < s->steps; i++)
            for (int k = 0; k < STEP_OPERANDS; k++) {
                struct segment_touch touch = segment_touch(s, &s->step[i], k);
                if (touch.space >= 0 && touch.to != SIZE_MAX)
                    need(run, touch.space, touch.to);
            }
        need(run, SPACE_WORK, s->work_bytes);
        need(run, SPACE_SAVED, s->saved_bytes);
        need(run, SPACE_CARRY, s->carry_bytes);
    }
    for (int k = 0; k < FLAT_USES && run->flat[k]; k++) {
        size_t elems = (size_t)run->flat[k]->padded;
        need(run, SPACE_PARAM + k, elems * dtype_bytes(run->units->request.dtype));
        need(run, SPACE_GRAD + k, elems * sizeof(float));
    }
}

/* Make tokens whose rows of the embedding are far apart, as in a text. */
static void make_tokens(int32_t *tokens, size_t bytes, int64_t vocab)
{
    uint32_t x = 1;
    for (size_t i = 0; i < bytes / sizeof *tokens; i++) {
        x = x * 1664525 + 1013904223;
        tokens[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    }
}

/* Fill a space that has no numbers of the format: with tokens, with constants, or with zeros. */
static int fill_special(struct measure *m, struct unit_run *run, int space, struct error *err)
{
    const struct units *units = run->units;
    int is_table = space == SPACE_CONST;
    size_t table = (size_t)(units_const_rows(units) * units->model->const_width) * sizeof(float);
    size_t bytes = is_table ? max_bytes(table, run->bytes[space]) : run->bytes[space];
    void *host = malloc(bytes);
    int rc = 0;
    if (!host)
        return error_set(err, "out of memory: %zu bytes", bytes);
    memset(host, 0, bytes);
    if (space >= SPACE_TOKENS && space < SPACE_TOKENS + SEQUENCES)
        make_tokens(host, bytes, units->model->config.vocab);
    if (is_table)
        rc = units_constants(units, host, err);
    if (!rc)
        rc = device_upload(m->device, run->base[space], host, run->bytes[space], err);
    free(host);
    return rc;
}

/* Do all ranks have memory for the unit?  Collective.  *rc: 0, or -1 on every rank with err set;
 * then 0 is returned. */
static int has_memory(struct measure *m, const struct unit_run *run, int *rc, struct error *err)
{
    size_t total = 0, left = 0;
    double need = 0, share;
    int ranks = m->device->kind == DEVICE_CPU ? world_local_size(m->world) : 1;
    *rc = world_agree(m->world, device_memory(m->device, &total, &left, err), err);
    if (*rc)
        return 0;
    for (int space = 0; space < SPACE_COUNT; space++)
        need += (double)run->bytes[space];
    share = need * ranks / (double)left;
    world_all_reduce(m->world, &share, 1, WORLD_MAX);
    return share < 0.8;
}

static int allocate(struct measure *m, struct unit_run *run, struct error *err)
{
    for (int space = 0; space < SPACE_COUNT; space++) {
        size_t bytes = run->bytes[space];
        if (!bytes)
            continue;
        run->base[space] = device_alloc(m->device, m->mem, POOL_WORKSPACE, bytes, err);
        if (!run->base[space])
            return -1;
        int is_special = space >= SPACE_TOKENS && space < SPACE_LOSS;
        if (is_special ? fill_special(m, run, space, err)
                       : measure_fill(m, run->base[space], bytes, run->units->request.dtype, err))
            return -1;
    }
    return 0;
}

static void release(struct measure *m, struct unit_run *run)
{
    for (int space = 0; space < SPACE_COUNT; space++)
        device_free(m->device, m->mem, POOL_WORKSPACE, run->bytes[space], run->base[space]);
}

/* ---- one unit ---- */

/* Add the rows of a segment's steps.  seconds: [steps] of each step. */
static void add_rows(struct measure *m, const struct segment *s, const double *seconds)
{
    for (int i = 0; i < s->steps; i++) {
        const struct graph_node node = segment_step_node(s, &s->step[i]);
        struct op_product product[OP_PRODUCTS];
        double bytes = op_bytes(s->graph, &node);
        if (node.op->keys)
            measure_add_op(m, node.op->name, s->graph->dtype,
                           (double)node.op->keys(s->graph, &node), op_flops(s->graph, &node),
                           seconds[i]);
        else if (!op_products(m->device, s->graph, &node, product) && bytes > 0)
            measure_add_op(m, node.op->name, s->graph->dtype, bytes, bytes, seconds[i]);
    }
}

/* Run a unit several times.  quartile: [steps] of each step, the lower quartile of its times on
 * this rank. */
static int watch_unit(struct measure *m, struct unit_run *run, struct op_watch *watch,
                      double budget_s, double *quartile, struct error *err)
{
    double *all = array_make((size_t)run->steps * RUNS, sizeof *all), one[RUNS];
    int64_t start_ns = 0;
    int rc = 0, runs;
    watch->seconds = all;
    for (int i = m->is_late; i < 2 && !rc;
         i++) { /* the first lets libraries choose their kernels */
        start_ns = clock_ns();
        rc = run_unit(run, watch, err);
    }
    runs = measure_repeats(m, rc, (double)(clock_ns() - start_ns) * 1e-9, budget_s, err);
    rc = runs < 0 ? -1 : 0;
    runs = runs > RUNS ? RUNS : runs < LEAST_RUNS && !m->is_late ? LEAST_RUNS : runs;
    for (int i = 1; i < runs && !rc; i++) {
        watch->seconds = all + i * run->steps;
        rc = run_unit(run, watch, err);
    }
    for (int step = 0; step < run->steps && !rc; step++) {
        for (int i = 0; i < runs; i++)
            one[i] = all[i * run->steps + step];
        quartile[step] = median_quartile(one, runs);
    }
    free(all);
    return rc;
}

static int make_events(struct measure *m, const struct unit_run *run, struct op_watch *watch,
                       struct error *err)
{
    watch->event = array_make((size_t)run->steps + 1, sizeof(struct device_event *));
    for (int i = 0; i <= run->steps && m->device->asynchronous; i++) {
        watch->event[i] = device_event_create(m->device, DEVICE_EVENT_TIMED, err);
        if (!watch->event[i])
            return -1;
    }
    return 0;
}

/* A unit for which there is no memory is left out, but where it is needed. */
static int measure_unit(struct measure *m, const struct units *units, int unit, double budget_s,
                        int is_needed, struct error *err)
{
    struct unit_run run = {.units = units, .unit = unit};
    struct op_watch watch = {.watch = {.begins = op_begins, .ended = op_ended}, .m = m};
    units_flats(units, unit, run.flat);
    for (int phase = 0; phase < MEASURED_PHASES; phase++) {
        run.segment[phase] = units_segment(units, unit, phase ? PHASE_BACKWARD : PHASE_FORWARD);
        run.steps += run.segment[phase]->steps;
    }
    find_needs(&run);
    int rc;
    if (!has_memory(m, &run, &rc, err))
        return rc || !is_needed ? rc
                                : error_set(err, "not enough free memory to measure: free some%s",
                                            m->options->quick ? "" : ", or use --quick");
    double *seconds = array_make((size_t)run.steps, sizeof *seconds);
    rc = allocate(m, &run, err) || make_events(m, &run, &watch, err) ? -1 : 0;
    rc = world_agree(m->world, rc, err);
    if (!rc)
        rc = world_agree(m->world, watch_unit(m, &run, &watch, budget_s, seconds, err), err);
    if (!rc) {
        world_all_reduce(m->world, seconds, run.steps, WORLD_MAX);
        add_rows(m, run.segment[0], seconds);
        add_rows(m, run.segment[1], seconds + run.segment[0]->steps);
    }
    for (int i = 0; i <= run.steps && watch.event; i++)
        if (watch.event[i])
            device_event_destroy(m->device, watch.event[i]);
    free(watch.event);
    free(seconds);
    release(m, &run);
    return rc;
}

/* ---- all of them ---- */

/* A model of one layer: a Llama with norms over heads, or a GPT-2 with dropout of what layers add,
 * so that these ops are there too. */
static struct config_model config_of(const char *preset, const struct size *size, int64_t vocab)
{
    struct config_model config = *preset_find(preset);
    int is_llama = !strcmp(config.family, "llama");
    int64_t heads = size->hidden / size->head_dim;
    config.layers = 1;
    config.hidden = size->hidden;
    config.head_dim = size->head_dim;
    config.heads = heads;
    config.kv_heads = is_llama ? heads / 2 : heads;
    config.ffn = is_llama ? round_up(size->hidden * 8 / 3, 64) : 4 * size->hidden;
    config.vocab = vocab;
    config.max_seq_len = size->seq;
    config.tie_embeddings = 0;
    config.qk_norm = is_llama;
    config.dropout.residual = is_llama ? 0 : 0.1;
    return config;
}

/* Estimate the seconds of the measured units, run once, from their operations. */
static double units_s(const struct measure *m, const struct units *units)
{
    double flops = 0;
    for (int unit = 0; unit < MEASURED_UNITS; unit++)
        flops += 3 * units->flops[unit];
    return flops / (0.8 * m->machine->peak[units->request.dtype].flops_per_s);
}

static int measure_model(struct measure *m, const char *preset, const struct size *size,
                         enum dtype dtype, double budget_s, int is_needed, struct error *err)
{
    struct config_model config = config_of(preset, size, m->options->quick ? QUICK_VOCAB : VOCAB);
    struct units_request request = {.dtype = dtype,
                                    .batch = size->batch,
                                    .seq = {size->seq},
                                    .shards = 1,
                                    .tensor = {.size = 1},
                                    .context = {.size = 1},
                                    .optimizer = OPTIMIZER_ADAMW,
                                    .recompute = RECOMPUTE_NONE,
                                    .loss_factor = 1};
    struct model *model = NULL;
    struct units *units = NULL;
    int rc =
        model_create(&model, &config, err) || units_create(&units, model, &request, m->device, err);
    rc = world_agree(m->world, rc ? -1 : 0, err);
    /* All ranks have the same speeds in m->machine, so that they decide alike. */
    int is_measured =
        is_needed || (!m->is_late && rc == 0 && units_s(m, units) * (LEAST_RUNS + 1) < budget_s);
    if (!rc && is_measured)
        for (int unit = 0; unit < MEASURED_UNITS && !rc; unit++)
            rc = measure_unit(m, units, unit, budget_s / SIZES, is_needed, err);
    units_destroy(units);
    model_destroy(model);
    return rc;
}

int measure_units(struct measure *m, struct error *err)
{
    static const char *const presets[] = {"llama-124m", "gpt2"};
    const int is_gpu = m->device->kind == DEVICE_CUDA, quick = m->options->quick;
    const struct size *size = quick ? quick_sizes : is_gpu ? gpu_sizes : cpu_sizes;
    const int sizes = quick ? QUICK_SIZES : SIZES;
    double models = 0; /* two, in each format */
    for (const enum dtype *f = measure_formats(m); *f != DTYPE_COUNT; f++)
        models += 2;
    for (const enum dtype *f = measure_formats(m); *f != DTYPE_COUNT; f++) {
        measure_progress(m, "ops of models in %s", dtype_name(*f));
        for (int i = 0; i < 2 * sizes; i++)
            if (measure_model(m, presets[i % 2], &size[i / 2], *f, m->limits->units_s / models,
                              i < 2, err))
                return -1;
    }
    return 0;
}
