/* test_optimizer.c - learning rates are the published schedules, and a step does to every tensor
 * what its optimizer's rule says, with the state that the optimizer needs and no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "base/round.h"
#include "segment/place.h"
#include "tests/unit/rig.h"
#include "train/lr_schedule.h"
#include "train/run_length.h"

/* DeepSpeed's share of the way from warmup_min_lr to warmup_max_lr at an iteration, with its
 * warmup_type linear or log; WarmupLR stays at 1, WarmupDecayLR comes back. */
static double published(int64_t iteration, int64_t warmup, int64_t total, int decays, int rises_log)
{
    if (iteration == warmup && warmup)
        return 1;
    if (iteration < warmup && rises_log)
        return fmin(1, log((double)iteration + 1) / log(fmax(2, (double)warmup)));
    if (iteration < warmup)
        return (double)iteration / (double)warmup;
    double left = (double)(total - iteration) / fmax(1, (double)(total - warmup));
    return decays ? fmax(0, left) : 1;
}

static void schedules_are_those_of_their_names(void **state)
{
    static const int64_t steps[] = {1, 2, 7, 100}, warmups[] = {0, 1, 3, 7, 200};
    for (int i = 0; i < 4 * 5 * 2 * 2 * 2; i++) {
        char text[256];
        int64_t total = steps[i % 4], warmup = warmups[i / 4 % 5];
        int decays = i / 20 % 2;
        int rises_log = i / 80 && warmup;
        double low = i / 40 % 2 && warmup ? 1e-4 : 0, high = 3e-3;
        snprintf(text, sizeof text,
                 "model.preset=llama-tiny train.lr=0.003 train.steps=%d train.warmup_steps=%d "
                 "train.warmup_min_lr=%g train.min_lr=%g train.schedule=%s "
                 "train.warmup_type=%s",
                 (int)total, (int)warmup, low, decays ? low : 0,
                 decays ? "WarmupDecayLR" : "WarmupLR", rises_log ? "log" : "linear");
        struct config config = rig_config(text);
        for (int64_t step = 0; step <= total; step++) {
            double want = low + (high - low) * published(step, warmup, total, decays, rises_log);
            double got = lr_schedule_at(&config.train, step);
            assert_true(fabs(got - want) <= 1e-15);
            assert_true(lr_schedule_rule(&config.train, step).sgd.lr == (float)got);
            assert_true(lr_schedule_rule(&config.train, step).adamw.lr == (float)got);
        }
    }
}

static void cosine_ends_at_the_least(void **state)
{
    struct config config = rig_config("model.preset=llama-tiny train.lr=1 train.min_lr=0.25 "
                                      "train.steps=21 train.warmup_steps=5");
    for (int64_t step = 5; step <= 21; step++) {
        double want = 0.25 + 0.75 * (1 + cos(M_PI * (double)(step - 5) / 16)) / 2;
        assert_true(fabs(lr_schedule_at(&config.train, step) - want) < 1e-15);
    }
    assert_true(lr_schedule_at(&config.train, 21) == 0.25 &&
                lr_schedule_at(&config.train, 99) == 0.25);
}

enum { KINDS = 3 };
static const char *const kinds[KINDS] = {"wsd", "warmup_stable_decay", "wsd_sqrt"};

/* The factor of transformers' get_wsd_schedule at a step, with decay_type linear, cosine, 1-sqrt
 * and warmup_type linear. */
static double wsd_factor(int kind, int64_t step, int64_t warmup, int64_t stable, int64_t decay,
                         double min_lr_ratio)
{
    double factor, progress;
    if (step < warmup)
        return (double)step / (double)warmup * (1 - min_lr_ratio) + min_lr_ratio;
    if (step < warmup + stable)
        return 1;
    if (step >= warmup + stable + decay)
        return min_lr_ratio;
    progress = (double)(step - warmup - stable) / (double)decay;
    factor = kind == 0   ? 1 - progress
             : kind == 1 ? 0.5 * (1 + cos(M_PI * progress))
                         : 1 - sqrt(progress);
    return factor * (1 - min_lr_ratio) + min_lr_ratio;
}

static void wsd_is_that_of_transformers(void **state)
{
    static const int64_t steps[] = {1, 2, 10, 23}, warmups[] = {0, 1, 9}, decays[] = {1, 2, 7, 23};
    static const double ratios[] = {0, 0.1};
    for (int i = 0; i < KINDS * 4 * 3 * 4 * 2; i++) {
        int kind = i % KINDS;
        int64_t total = steps[i / KINDS % 4], warmup = warmups[i / KINDS / 4 % 3];
        int64_t decay = decays[i / KINDS / 12 % 4];
        double ratio = ratios[i / KINDS / 48], low = 3e-3 * ratio;
        char text[256];
        if (decay > total - warmup)
            continue;
        snprintf(text, sizeof text,
                 "model.preset=llama-tiny train.lr=0.003 train.steps=%d train.warmup_steps=%d "
                 "train.decay_steps=%d train.min_lr=%g train.warmup_min_lr=%g train.schedule=%s",
                 (int)total, (int)warmup, (int)decay, low, warmup ? low : 0, kinds[kind]);
        struct config config = rig_config(text);
        assert_int_equal(lr_schedule_decay_steps(&config.train), decay);
        for (int64_t step = 0; step <= total + 3; step++) {
            double want =
                3e-3 * wsd_factor(kind, step, warmup, total - warmup - decay, decay, ratio);
            assert_true(fabs(lr_schedule_at(&config.train, step) - want) <= 1e-15);
        }
    }
}

/* Printed by transformers 5.24 for 20 steps, 4 of warm-up, 7 of decay, min_lr_ratio 0.1. */
static void wsd_has_the_numbers_of_transformers(void **state)
{
    static const double numbers[KINDS][7] = {
        {0.0026142857142857144, 0.0022285714285714287, 0.0018428571428571426, 0.0014571428571428574,
         0.0010714285714285713, 0.00068571428571428592, 0.00030000000000000003},
        {0.0028663079716682656, 0.0024917112325092907, 0.0019504032608410242, 0.0013495967391589758,
         0.00080828876749070987, 0.00043369202833173437, 0.00030000000000000003},
        {0.0019794959228750866, 0.0015567892936729083, 0.0012324350890884621,
         0.00095899184575017331, 0.00071808351223300536, 0.00050028573061411115,
         0.00030000000000000003},
    };
    for (int kind = 0; kind < KINDS; kind++) {
        char text[256];
        snprintf(text, sizeof text,
                 "model.preset=llama-tiny train.lr=0.003 train.steps=20 train.warmup_steps=4 "
                 "train.decay_steps=7 train.min_lr=3e-4 train.schedule=%s",
                 kinds[kind]);
        struct config config = rig_config(text);
        for (int64_t step = 4; step <= 13; step++)
            assert_true(lr_schedule_at(&config.train, step) == 3e-3);
        for (int64_t step = 14; step <= 20; step++)
            assert_true(fabs(lr_schedule_at(&config.train, step) - numbers[kind][step - 14]) <=
                        1e-18);
    }
}

/* Unless they are given, a tenth of the steps decay, and no more than come after warm-up. */
static void a_tenth_of_the_steps_decays(void **state)
{
    static const struct {
        int steps, warmup, decay;
    } rows[] = {{0, 0, 0},    {1, 0, 1},    {10, 0, 1},    {11, 0, 2},   {100, 0, 10},
                {101, 0, 11}, {100, 95, 5}, {100, 100, 0}, {100, 200, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "model.preset=llama-tiny train.lr=1 train.min_lr=0.5 train.schedule=wsd_sqrt "
                 "train.steps=%d train.warmup_steps=%d",
                 rows[i].steps, rows[i].warmup);
        struct config config = rig_config(text);
        const struct config_train *t = &config.train;
        int64_t stable = t->steps - rows[i].decay;
        assert_int_equal(lr_schedule_decay_steps(t), rows[i].decay);
        for (int64_t step = 1; step <= t->steps; step++) {
            assert_true((lr_schedule_at(t, step) == 1) ==
                        (step >= t->warmup_steps && step <= stable));
            assert_true((lr_schedule_decay_done(t, step) > 0) == (step > stable));
        }
        if (rows[i].decay)
            assert_true(lr_schedule_at(t, t->steps) == 0.5 && lr_schedule_decay_done(t, 999) == 1);
    }
    struct config config =
        rig_config("model.preset=llama-tiny train.steps=9 train.schedule=linear");
    assert_true(!lr_schedule_decay_steps(&config.train));
    assert_true(lr_schedule_decay_done(&config.train, 9) == 0);
}

/* Where a run stands after `done` steps of `batch` sequences. */
static struct run_position position_at(const struct config_train *t, int64_t done, int64_t batch)
{
    return (struct run_position){.step = done,
                                 .samples = done * batch,
                                 .warmup_samples = min_i64(done, t->warmup_steps) * batch};
}

/* Epochs make the steps: those of the decay are checked, or found, when these are known. */
static void decay_steps_fit_into_epochs(void **state)
{
    struct config config = rig_config("model.preset=llama-tiny train.epochs=2 train.schedule=wsd "
                                      "train.warmup_steps=5 train.lr=1");
    struct config_train *t = &config.train, later;
    struct run_position start = {0};
    struct error err = {0};
    assert_int_equal(run_length_set(t, &start, 97, 4, &err), 0);
    assert_true(t->steps == 49 && lr_schedule_decay_steps(t) == 5);
    for (int64_t done = 5; done < t->steps; done++) { /* other batches from here on */
        struct run_position at = position_at(t, done, 4);
        later = *t;
        assert_int_equal(run_length_set(&later, &at, 97, 1, &err), 0);
        double off = lr_schedule_decay_done(&later, done) - lr_schedule_decay_done(t, done);
        assert_true(fabs(off) <= 2.0 / (double)lr_schedule_decay_steps(t));
        assert_true(lr_schedule_decay_steps(&later) == 20);
        assert_true(lr_schedule_at(&later, later.steps) == 0);
    }
    t->decay_steps = 44;
    assert_int_equal(run_length_set(t, &start, 97, 4, &err), 0);
    t->decay_steps = 45;
    assert_int_equal(run_length_set(t, &start, 97, 4, &err), -1);
    assert_non_null(strstr(err.text, "train.decay_steps is 45, but of the run's 49 steps 44 come"));
}

/* A run that took `first` sequences a step up to step `done`, and `then` after it: its last step
 * reads the last sequence with the least learning rate, which goes on where it was, and a second
 * resume changes nothing. */
static void check_other_batch(const struct config_train *t, int64_t done, int64_t first,
                              int64_t then, int64_t windows)
{
    struct run_position at = position_at(t, done, first);
    struct config_train later = *t;
    struct error err = {0};
    int64_t all = 2 * windows;
    assert_int_equal(run_length_set(&later, &at, windows, then, &err), 0);
    int64_t left = later.steps - done;
    assert_true(at.samples + left * then >= all && at.samples + (left - 1) * then < all);
    if (later.steps > t->warmup_steps)
        assert_true(lr_schedule_at(&later, later.steps) == 0.25);
    double jump = lr_schedule_at(&later, done + 1) - lr_schedule_at(t, done);
    if (done >= t->warmup_steps)
        assert_true(fabs(jump) <=
                    0.75 * (double)(first + 2 * then) / (double)(all - t->warmup_steps * first));
    at.step++;
    at.samples += then;
    if (at.step <= t->warmup_steps)
        at.warmup_samples = at.samples;
    struct config_train again = later;
    assert_int_equal(run_length_set(&again, &at, windows, then, &err), 0);
    assert_true(left <= 1 || (again.steps == later.steps && again.ahead == later.ahead));
}

/* Epochs are sequences, whatever batches read them. */
static void epochs_end_with_their_sequences(void **state)
{
    static const int64_t batches[] = {1, 3, 7, 8, 16, 60, 500}, warmups[] = {0, 1, 11, 40};
    enum { BATCHES = sizeof batches / sizeof batches[0], WINDOWS = 97, ALL = 194 };
    struct config config = rig_config("model.preset=llama-tiny train.lr=1 train.min_lr=0.25 "
                                      "train.epochs=2 train.schedule=linear");
    struct config_train *t = &config.train;
    struct run_position start = {0};
    struct error err = {0};
    for (int i = 0; i < 4 * BATCHES * BATCHES; i++) {
        int64_t first = batches[i % BATCHES], then = batches[i / BATCHES % BATCHES];
        t->warmup_steps = warmups[i / BATCHES / BATCHES];
        assert_int_equal(run_length_set(t, &start, WINDOWS, first, &err), 0);
        assert_true(t->steps == ceil_div(ALL, first));
        assert_true(!t->ahead || t->warmup_steps > t->steps);
        for (int64_t done = 1; done < t->steps; done++)
            check_other_batch(t, done, first, then, WINDOWS);
    }
    assert_int_equal(run_length_set(t, &start, INT64_C(1) << 60, 1, &err), -1);
    assert_non_null(strstr(err.text, "train.epochs: 2 epochs of"));
}

/* The curve does not depend on where the warm-up's batch changed: half of the decay's sequences are
 * read at half of its way. */
static void decay_counts_from_the_warmups_end(void **state)
{
    struct config config = rig_config("model.preset=llama-tiny train.lr=1 train.epochs=1 "
                                      "train.schedule=linear train.warmup_steps=60");
    struct config_train *t = &config.train;
    struct run_position at = {.step = 80, .samples = 80 * 16, .warmup_samples = 60 * 16};
    struct error err = {0};
    assert_int_equal(run_length_set(t, &at, 60 * 16 + 64 * 100, 64, &err), 0);
    assert_int_equal(t->steps, 80 + 95); /* of the decay's 6400 sequences 320 were read */
    assert_true(fabs(lr_schedule_at(t, 80) - 0.95) < 1e-12);
    at = (struct run_position){.step = 30, .samples = 30 * 16, .warmup_samples = 30 * 16};
    assert_int_equal(run_length_set(t, &at, 30 * 16 + 30 * 64 + 64 * 50, 64, &err), 0);
    assert_int_equal(t->steps, 60 + 50);
    assert_true(lr_schedule_at(t, 60) == 1 && fabs(lr_schedule_at(t, 85) - 0.5) < 1e-12);
}

#define MODEL                                                                                 \
    "model.layers=2 model.hidden=36 model.heads=6 model.kv_heads=2 model.ffn=61 "             \
    "model.vocab=101 data.seq_len=17 train.global_batch=3 train.lr=0.1 train.warmup_steps=3 " \
    "train.steps=5 train.clip=0 train.optimizer=sgd train.weight_decay=0.3 "

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct session *s = user;
    int32_t *tokens = batch->tokens[0], *targets = batch->targets;
    int64_t rows = s->layout.micro_batch * s->config.data.seq_len;
    for (int64_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)(philox_u64(5, (uint64_t)(batch->micro * rows + i)) % 101);
        targets[i] = (tokens[i] * 3 + 1) % 101;
    }
    return 0;
}

static void take_step(struct session *s, int64_t step)
{
    struct error err = {0};
    struct step_input input = rig_input(s, step);
    input.load = load;
    input.user = s;
    if (executor_run_step(s->executor, s->train, &input, NULL, NULL, &err))
        fail_msg("%s", err.text);
}

/* One step of a flat, from its state before and its gradient, in double precision. */
static void check_flat(const struct session *s, int number, const float *p0, const float *v0,
                       double lr)
{
    const struct config_train *c = &s->config.train;
    const struct flat *flat = &s->units->flat[number];
    const float *p = rig_state(s, number, RIG_MASTER), *v = rig_state(s, number, RIG_FIRST);
    const float *g = rig_state(s, number, RIG_GRAD);
    for (int t = 0; t < flat->tensors; t++) {
        int decays = c->decay == DECAY_ALL || flat->tensor[t].box.dims > 1;
        for (int64_t e = 0; e < flat->tensor[t].elems; e++) {
            int64_t i = flat->tensor[t].offset + e;
            double kept = c->momentum * v0[i], pull = decays ? c->weight_decay * p0[i] : 0;
            double velocity = kept + g[i] + pull;
            /* Each of a few operations rounds by 2^-24 of its terms. */
            double ulps = 4 * 0x1p-24 * (fabs(kept) + fabs((double)g[i]) + fabs(pull));
            assert_true(fabs(v[i] - velocity) <= ulps);
            assert_true(fabs(p[i] - (p0[i] - lr * velocity)) <=
                        2 * 0x1p-24 * fabs((double)p0[i]) + 4 * lr * ulps + 1e-30);
        }
    }
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    memcpy(to, from, bytes);
    return to;
}

/* The factor of the gradient is one: nothing is masked, nothing clipped.  The last row takes three
 * micro-batches a step, for which the rate moves on once. */
static void steps_of_sgd_are_the_rule(void **state)
{
    static const char *const more[] = {"", "train.decay=all", "train.momentum=0",
                                       "precision=bf16 train.micro_batch=1"};
    for (int i = 0; i < 4; i++) {
        char text[512];
        struct mem mem = {0};
        snprintf(text, sizeof text, "%s%s", MODEL, more[i]);
        struct config config = rig_config(text);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        rig_init(s);
        for (int64_t step = 1; step <= 4; step++) {
            float *p[8], *v[8];
            for (int u = 0; u < s->units->count; u++) {
                size_t bytes = (size_t)s->units->flat[u].shard_elems * sizeof(float);
                p[u] = copy_of(rig_state(s, u, RIG_MASTER), bytes);
                v[u] = copy_of(rig_state(s, u, RIG_FIRST), bytes);
            }
            take_step(s, step);
            for (int u = 0; u < s->units->count; u++) {
                check_flat(s, u, p[u], v[u], lr_schedule_at(&config.train, step));
                free(p[u]);
                free(v[u]);
            }
        }
        session_close(s);
    }
}

/* Moments of a flat in double precision, and the size of the terms that m is the sum of. */
struct moments {
    double *m, *v, *size;
};

static struct moments moments_of_zero(const struct session *s, int number)
{
    size_t elems = (size_t)s->units->flat[number].shard_elems;
    return (struct moments){calloc(elems, sizeof(double)), calloc(elems, sizeof(double)),
                            calloc(elems, sizeof(double))};
}

/* Take a step with the gradient of the session's; each of `steps` so far rounded by a few 2^-24. */
static void check_moments(const struct session *s, int number, const struct moments *t,
                          int64_t steps)
{
    const float *m = rig_state(s, number, RIG_FIRST), *v = rig_state(s, number, RIG_SECOND);
    const float *g = rig_state(s, number, RIG_GRAD);
    const double beta1 = s->config.train.beta1, beta2 = s->config.train.beta2;
    const double ulps = (4 + 2 * (double)steps) * 0x1p-24;
    for (int64_t i = 0; i < s->units->flat[number].shard_elems; i++) {
        double grad = g[i];
        t->m[i] = beta1 * t->m[i] + (1 - beta1) * grad;
        t->v[i] = beta2 * t->v[i] + (1 - beta2) * grad * grad;
        t->size[i] = beta1 * t->size[i] + (1 - beta1) * fabs(grad);
        assert_true(fabs(m[i] - t->m[i]) <= ulps * t->size[i] + 1e-30);
        assert_true(fabs(v[i] - t->v[i]) <= ulps * t->v[i] + 1e-30);
    }
}

/* 1 - beta is small and is known to all 24 bits: a difference of two floats would be off by up to
 * 2^-25 / (1 - beta) of it. */
static void moments_are_exact_for_betas_near_one(void **state)
{
    static const double betas[][2] = {{0.9, 0.999},        {0.999, 0.9999},     {0.9999, 0.99999},
                                      {0.99999, 0.999999}, {0.999999, 0.99995}, {0.5, 0.5}};
    static const char *const precisions[] = {"fp32", "bf16_pure"};
    for (int i = 0; i < 12; i++) {
        char text[512];
        struct mem mem = {0};
        struct moments moments[8];
        snprintf(text, sizeof text,
                 "%s train.optimizer=adamw train.beta1=%g train.beta2=%g precision=%s", MODEL,
                 betas[i / 2][0], betas[i / 2][1], precisions[i % 2]);
        struct config config = rig_config(text);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        rig_init(s);
        for (int u = 0; u < s->units->count; u++)
            moments[u] = moments_of_zero(s, u);
        for (int64_t step = 1; step <= 5; step++) {
            take_step(s, step);
            for (int u = 0; u < s->units->count; u++)
                check_moments(s, u, &moments[u], step);
        }
        for (int u = 0; u < s->units->count; u++) {
            free(moments[u].m);
            free(moments[u].v);
            free(moments[u].size);
        }
        session_close(s);
    }
}

/* Each slot takes four bytes an element, as masters do, and has its name. */
static void state_is_what_the_optimizer_needs(void **state)
{
    for (int i = 0; i < 4; i++) {
        char text[512];
        struct fleet fleet;
        int adamw = i % 2, mixed = i / 2;
        size_t want = 0;
        snprintf(text, sizeof text, "%s train.optimizer=%s precision=%s", MODEL,
                 adamw ? "adamw" : "sgd", mixed ? "bf16" : "fp32");
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, 3, PROGRAM_TRAIN);
        const struct program *program = fleet.program[1];
        for (int u = 0; u < fleet.units->count; u++) {
            size_t bytes = (size_t)fleet.units->flat[u].shard_elems * sizeof(float);
            want +=
                (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN * (size_t)(1 + adamw + mixed);
            const char *name = program->buffer[program->state->flat[u].slot[0]].name;
            assert_non_null(strstr(name, adamw ? "exp_avg" : "momentum_buffer"));
            assert_int_equal(program->state->flat[u].slot[1] >= 0, adamw);
        }
        assert_int_equal(program->pool_bytes[POOL_OPTIMIZER], want);
        fleet_close(&fleet);
    }
}

/* Bytes an element, as the manual says: parameters, masters and moments, with FULL_SHARD. */
static void state_in_bf16_takes_what_the_manual_says(void **state)
{
    static const struct {
        const char *text;
        size_t params, optimizer;
    } rows[] = {
        {"precision=bf16", 0, 12},
        {"precision=fp16", 0, 12},
        {"precision=bf16 train.optimizer_dtype=bf16", 0, 8},
        {"precision=bf16_pure", 2, 8},
        {"precision=bf16_pure train.optimizer_dtype=bf16", 2, 4},
        {"precision=fp32 train.optimizer_dtype=bf16", 4, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        struct fleet fleet;
        size_t params = 0, optimizer = 0, elems = 0;
        snprintf(text, sizeof text, "%s train.optimizer=adamw %s", MODEL, rows[i].text);
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, 3, PROGRAM_TRAIN);
        const struct program *program = fleet.program[1];
        for (int b = 0; b < program->buffers; b++) {
            const struct program_buffer *buffer = &program->buffer[b];
            params += buffer->persistent && buffer->pool == POOL_PARAMS ? buffer->bytes : 0;
            optimizer += buffer->persistent && buffer->pool == POOL_OPTIMIZER ? buffer->bytes : 0;
        }
        for (int u = 0; u < fleet.units->count; u++)
            elems += (size_t)fleet.units->flat[u].shard_elems;
        assert_int_equal(params, rows[i].params * elems);
        assert_int_equal(optimizer, rows[i].optimizer * elems);
        fleet_close(&fleet);
    }
}

/* Matrices have codes of 8 bits and two numbers in fp32 for every 256; all else is adamw's.  Shards
 * and tensors begin with a block. */
static void state_in_8_bits_takes_what_the_manual_says(void **state)
{
    struct fleet fleet;
    struct config config =
        rig_config("model.preset=llama-tiny model.hidden=128 train.global_batch=6 "
                   "data.seq_len=16 train.optimizer=adamw8bit");
    fleet_open(&fleet, &config, 3, PROGRAM_TRAIN);
    const struct program *program = fleet.program[1];
    int coded = 0, wide = 0;
    for (int f = 0; f < fleet.units->flats; f++) {
        const struct flat *flat = &fleet.units->flat[f];
        const int *slot = program->state->flat[f].slot;
        size_t elems = (size_t)flat->shard_elems;
        int is_coded = flat->optimizer == OPTIMIZER_ADAMW8BIT;
        assert_int_equal(program->buffer[slot[0]].bytes, is_coded ? elems : 4 * elems);
        assert_int_equal(program->buffer[slot[1]].bytes, is_coded ? elems : 4 * elems);
        for (int k = 2; k < OPTIMIZER_SLOTS; k++)
            assert_int_equal(is_coded ? program->buffer[slot[k]].bytes : (size_t)slot[k],
                             is_coded ? elems / 64 : (size_t)-1);
        for (int t = 0; t < flat->tensors; t++) {
            int64_t count = flat->tensor[t].elems;
            int in_blocks =
                count >= 4096 && count % 256 == 0 && !strstr(flat->tensor[t].name, "embed");
            assert_int_equal(is_coded, in_blocks);
            assert_true(!is_coded || flat->tensor[t].offset % 256 == 0);
        }
        assert_true(!is_coded || elems % 256 == 0);
        coded += is_coded;
        wide += !is_coded;
    }
    assert_true(coded >= 3 && wide >= 3);
    fleet_close(&fleet);
}

/* Sequences or tokens of all ranks together, split evenly, one micro-batch unless asked; or
 * those of each rank. */
static void batches_are_of_all_ranks(void **state)
{
    static const struct {
        const char *setting;
        int ranks;
        int64_t each, micros, global;
    } rows[] = {
        {"train.global_batch=16", 8, 2, 1, 16},
        {"train.global_batch_tokens=272", 8, 2, 1, 16},
        {"train.global_batch_tokens=272 train.micro_batch=1", 8, 1, 2, 16},
        {"train.global_batch=16 train.global_batch_tokens=272", 4, 4, 1, 16},
        {"train.global_batch_tokens=17", 3, 1, 1, 1},
        {"train.global_batch=7 train.micro_batch=2", 3, 2, 2, 7},
        {"", 2, 4, 1, 8},
        {"train.global_batch=7 train.split_batches=false", 3, 7, 1, 21},
        {"train.global_batch=7 train.micro_batch=2 train.split_batches=false", 3, 2, 4, 21},
        {"train.global_batch=2 train.split_batches=no parallel.strategy=HYBRID_SHARD "
         "parallel.shard=2",
         4, 2, 1, 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        struct error err = {0};
        struct layout layout;
        snprintf(text, sizeof text, "model.preset=llama-tiny data.seq_len=17 %s", rows[i].setting);
        struct config config = rig_config(text);
        assert_int_equal(layout_resolve(&layout, &config, rows[i].ranks, 0, DEVICE_CPU, &err), 0);
        assert_int_equal(layout.micro_batch, rows[i].each);
        assert_int_equal(layout.micros, rows[i].micros);
        assert_int_equal(layout.global_batch, rows[i].global);
        assert_true(layout.micros * layout.micro_batch * rows[i].ranks >= layout.global_batch);
        layout_release(&layout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_are_those_of_their_names),
        cmocka_unit_test(cosine_ends_at_the_least),
        cmocka_unit_test(wsd_is_that_of_transformers),
        cmocka_unit_test(wsd_has_the_numbers_of_transformers),
        cmocka_unit_test(a_tenth_of_the_steps_decays),
        cmocka_unit_test(decay_steps_fit_into_epochs),
        cmocka_unit_test(epochs_end_with_their_sequences),
        cmocka_unit_test(decay_counts_from_the_warmups_end),
        cmocka_unit_test(steps_of_sgd_are_the_rule),
        cmocka_unit_test(moments_are_exact_for_betas_near_one),
        cmocka_unit_test(batches_are_of_all_ranks),
        cmocka_unit_test(state_is_what_the_optimizer_needs),
        cmocka_unit_test(state_in_bf16_takes_what_the_manual_says),
        cmocka_unit_test(state_in_8_bits_takes_what_the_manual_says),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
