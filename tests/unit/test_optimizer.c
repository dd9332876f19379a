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
        for (int64_t step = 1; step <= total; step++) {
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

/* Epochs are sequences: whatever batches read them, the last step reads the last of them with the
 * least learning rate, which goes on where it was, and a second resume changes nothing. */
static void epochs_end_with_their_sequences(void **state)
{
    static const int64_t batches[] = {1, 3, 7, 8, 16, 60, 500};
    enum { BATCHES = sizeof batches / sizeof batches[0], WINDOWS = 97, ALL = 194 };
    struct config config = rig_config("model.preset=llama-tiny train.lr=1 train.min_lr=0.25 "
                                      "train.epochs=2 train.schedule=linear");
    struct config_train *t = &config.train;
    struct error err = {0};
    for (int i = 0; i < BATCHES * BATCHES; i++) {
        int64_t first = batches[i % BATCHES], then = batches[i / BATCHES];
        assert_int_equal(run_length_set(t, 0, 0, WINDOWS, first, &err), 0);
        assert_true(t->steps == ceil_div(ALL, first) && !t->ahead);
        for (int64_t done = 1; done < t->steps; done++) {
            struct config_train later = *t;
            int64_t samples = done * first;
            assert_int_equal(run_length_set(&later, done, samples, WINDOWS, then, &err), 0);
            int64_t left = later.steps - done;
            assert_true(samples + left * then >= ALL && samples + (left - 1) * then < ALL);
            assert_true(lr_schedule_at(&later, later.steps) == 0.25);
            double jump = lr_schedule_at(&later, done + 1) - lr_schedule_at(t, done);
            assert_true(fabs(jump) <= 0.75 * (double)(first + 2 * then) / ALL);
            struct config_train again = later;
            assert_int_equal(run_length_set(&again, done + 1, samples + then, WINDOWS, then, &err),
                             0);
            assert_true(left <= 1 || (again.steps == later.steps && again.ahead == later.ahead));
        }
    }
    assert_int_equal(run_length_set(t, 0, 0, INT64_C(1) << 60, 1, &err), -1);
    assert_non_null(strstr(err.text, "train.epochs: 2 epochs of"));
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
        cmocka_unit_test(epochs_end_with_their_sequences),
        cmocka_unit_test(steps_of_sgd_are_the_rule),
        cmocka_unit_test(moments_are_exact_for_betas_near_one),
        cmocka_unit_test(batches_are_of_all_ranks),
        cmocka_unit_test(state_is_what_the_optimizer_needs),
        cmocka_unit_test(state_in_bf16_takes_what_the_manual_says),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
