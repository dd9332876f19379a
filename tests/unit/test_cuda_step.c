/* test_cuda_step.c - whole steps on the GPU: the CPU's numbers, the same bits every time, steps
 * in flight, recordings and eager ops alike, all memory where the plan says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include <time.h>

#include "device/cuda/state.h"
#include "device/ops.h"
#include "tests/unit/rig.h"

enum { STEPS = 8, SHORT_STEPS = 3 };

#define MODEL                                                                             \
    "model.layers=3 model.hidden=48 model.heads=6 model.kv_heads=2 model.ffn=72 "         \
    "model.vocab=101 data.seq_len=33 train.global_batch=3 train.lr=3e-3 train.steps=100 " \
    "train.warmup_steps=2 "

/* How a case differs from the others. */
struct setting {
    const char *text;
    double tolerance; /* of losses and norms, relative, against the CPU */
};

static const struct setting settings[] = {
    {MODEL "precision=fp32", 1e-5},
    {MODEL "precision=fp32 train.micro_batch=2 model.tie_embeddings=true", 1e-5},
    {MODEL "precision=fp32 train.micro_batch=1 recompute=full train.clip=0.3", 1e-5},
    {MODEL "precision=bf16 train.micro_batch=2", 1e-2},
    {MODEL "precision=fp32 train.micro_batch=2 model.qkv_bias=true model.sliding_window=5", 1e-5},
    {MODEL "precision=bf16 recompute=selective model.qk_norm=true model.sliding_window=3", 1e-2},
    {MODEL "precision=fp32 train.micro_batch=2 model.family=gpt2 model.kv_heads=6 "
           "model.tie_embeddings=true",
     1e-5},
    {MODEL "precision=fp32 train.optimizer=sgd train.lr=0.1 parallel.wrap=layers "
           "parallel.layers_per_unit=2 recompute=full recompute_every=2",
     1e-5},
    {MODEL "precision=bf16 train.optimizer=sgd train.lr=0.1 train.micro_batch=2", 1e-2},
    {MODEL "precision=fp32 train.optimizer=muon train.micro_batch=2", 1e-5},
    {MODEL "precision=bf16 train.optimizer=muon model.tie_embeddings=true", 1e-2},
    {MODEL "precision=bf16 train.optimizer=muon train.muon_dtype=bf16", 1e-2},
    {MODEL "precision=bf16 recompute=selective model.tie_embeddings=true", 1e-2},
    {MODEL "precision=bf16_pure train.optimizer_dtype=bf16 train.micro_batch=2", 1e-2},
    {MODEL "precision=fp16 train.loss_scale=4096 train.micro_batch=2", 1.25e-3},
    {MODEL "precision=fp16 train.loss_scale=512 model.family=gpt2 model.kv_heads=6 "
           "recompute=selective train.optimizer=sgd train.lr=0.1",
     1.25e-3},
    {MODEL "precision=fp32 train.micro_batch=2 lora.r=3 lora.use_dora=true "
           "lora.target_modules=q_proj,v_proj,o_proj,gate_proj,down_proj",
     1e-5},
    {MODEL "precision=bf16 recompute=selective lora.r=4 lora.use_dora=true "
           "lora.target_modules=all-linear model.family=gpt2 model.kv_heads=6",
     1e-2},
    {MODEL "precision=fp32 train.micro_batch=2 model.experts=4 model.router_aux_loss_coef=0.1",
     1e-5},
    {MODEL "precision=bf16 recompute=selective train.optimizer=sgd train.lr=0.1 model.experts=3 "
           "model.norm_topk_prob=false",
     1e-2},
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static int skip_without_gpu(void **state)
{
    char why[128];
    if (device_gpu_count(why))
        return 0;
    print_message("skipped: no GPU: %s\n", why);
    return -1;
}

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    struct rig_step data = {.session = user};
    return rig_load_step(&data, batch, err);
}

static int steps_taken(void)
{
    return rig_is_short() ? SHORT_STEPS : STEPS;
}

/* What steps came to; 0 for those not taken. */
struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t state;
    float *masters; /* of all flats that are trained, end to end */
    int64_t elems;
};

static struct session *open_session(struct mem *mem, const char *text, const char *device)
{
    char all[1024];
    snprintf(all, sizeof all, "%s device=%s", text, device);
    struct config config = rig_config(all);
    struct session *s = rig_open(mem, &config, NULL, 0);
    rig_init(s);
    return s;
}

static float widened(const struct session *s, const void *master, int64_t i)
{
    return state_master_dtype(s->state) == DTYPE_F32 ? ((const float *)master)[i]
                                                     : bf16_to_f32(((const bf16 *)master)[i]);
}

static void keep_masters(const struct session *s, struct outcome *outcome)
{
    for (int u = 0; u < s->units->flats; u++) {
        int64_t elems = s->units->flat[u].trained ? s->units->flat[u].shard_elems : 0;
        if (!elems)
            continue;
        void *master = rig_download(s, s->train->state->flat[u].master);
        outcome->masters =
            realloc(outcome->masters, (size_t)(outcome->elems + elems) * sizeof(float));
        for (int64_t i = 0; i < elems; i++)
            outcome->masters[outcome->elems + i] = widened(s, master, i);
        outcome->elems += elems;
        free(master);
    }
}

/* depth 2: a step is started before the one before is finished. */
static void run_steps(struct session *s, int depth, struct outcome *outcome)
{
    struct error err = {0};
    struct step_pending pending[2];
    struct step_output output;
    int steps = steps_taken();
    for (int step = 1; step < steps + depth; step++) {
        struct step_input input = rig_input(s, step);
        struct rig_step data = {s, step};
        input.load = rig_load_step;
        input.user = &data;
        input.loss_scale = s->config.train.loss_scale.fixed;
        if (step <= steps &&
            step_start(s->executor, s->train, &input, NULL, &pending[step % 2], &err))
            fail_msg("%s", err.text);
        int ends = step - depth + 1;
        if (ends < 1)
            continue;
        if (step_finish(s->executor, &pending[ends % 2], &output, &err))
            fail_msg("%s", err.text);
        assert_false(output.skipped);
        outcome->loss[ends - 1] = output.loss;
        outcome->norm[ends - 1] = output.grad_norm;
    }
}

static struct outcome train(const char *text, const char *device, int depth)
{
    struct mem mem = {0};
    struct outcome outcome = {0};
    struct session *s = open_session(&mem, text, device);
    assert_true(depth <= (s->device->asynchronous ? MEMORY_STEPS : 1));
    run_steps(s, depth, &outcome);
    outcome.state = rig_hash(s);
    keep_masters(s, &outcome);
    session_close(s);
    assert_int_equal(mem.blocks, 0);
    return outcome;
}

/* Of setting i, one step after the other: several tests compare with that. */
static const struct outcome *one_by_one(int i)
{
    static struct outcome outcome[SETTINGS];
    if (!outcome[i].masters)
        outcome[i] = train(settings[i].text, "cuda", 1);
    return &outcome[i];
}

static double apart(double a, double b)
{
    return fabs(a - b) / fabs(b);
}

/* Largest difference of two states, over the largest weight. */
static double distance(const struct outcome *a, const struct outcome *b)
{
    double most = 0, size = 0;
    assert_int_equal(a->elems, b->elems);
    for (int64_t i = 0; i < a->elems; i++) {
        double difference = fabs((double)a->masters[i] - (double)b->masters[i]);
        most = difference > most ? difference : most;
        size = fabs((double)b->masters[i]) > size ? fabs((double)b->masters[i]) : size;
        assert_false(isnan(a->masters[i]));
    }
    return most / size;
}

static void steps_come_to_what_they_do_on_the_cpu(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        const struct setting *c = &settings[i];
        const struct outcome *gpu = one_by_one(i);
        struct outcome cpu = train(c->text, "cpu", 1);
        for (int step = 0; step < steps_taken(); step++) {
            if (!(apart(gpu->loss[step], cpu.loss[step]) < c->tolerance))
                fail_msg("%s: loss of step %d: %.9g, on the CPU %.9g", c->text, step + 1,
                         gpu->loss[step], cpu.loss[step]);
            if (!(apart(gpu->norm[step], cpu.norm[step]) < 10 * c->tolerance))
                fail_msg("%s: norm of step %d: %.9g, on the CPU %.9g", c->text, step + 1,
                         gpu->norm[step], cpu.norm[step]);
        }
        print_message("%s: weights differ by %.2g of the largest\n", c->text, distance(gpu, &cpu));
        assert_true(distance(gpu, &cpu) < 30 * c->tolerance);
        free(cpu.masters);
    }
}

static void steps_in_flight_give_the_same_bits(void **state)
{
    for (int i = 0; i < SETTINGS; i += rig_is_short() ? 3 : 1) {
        const struct outcome *one = one_by_one(i);
        struct outcome two = train(settings[i].text, "cuda", 2);
        assert_memory_equal(one->loss, two.loss, sizeof two.loss);
        assert_memory_equal(one->norm, two.norm, sizeof two.norm);
        assert_true(one->state == two.state);
        free(two.masters);
    }
}

/* A traced step enqueues op by op what others replay. */
static void a_traced_step_is_a_step(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct trace trace = {0};
    uint64_t hash[2];
    for (int traced = 0; traced < 2; traced++) {
        struct session *s = open_session(&mem, settings[1].text, "cuda");
        struct step_input input = rig_input(s, 1);
        struct step_output output;
        input.load = load;
        input.user = s;
        if (traced)
            trace_begin(&trace);
        if (executor_run_step(s->executor, s->train, &input, &output, traced ? &trace : NULL, &err))
            fail_msg("%s", err.text);
        hash[traced] = rig_hash(s);
        session_close(s);
    }
    assert_true(hash[0] == hash[1]);
    int ops = 0, runs = 0;
    for (int i = 0; i < trace.events; i++) {
        assert_true(trace.event[i].start_ns >= 0);
        assert_true(trace.event[i].end_ns >= trace.event[i].start_ns);
        ops += trace.event[i].lane == TRACE_OPS;
        runs += !strncmp(trace.event[i].name, "RUN", 3);
    }
    assert_true(runs >= 2 * (2 * 4 + 1));
    assert_true(ops > 5 * runs);
    trace_free(&trace);
}

/* A gradient that is not finite changes nothing, and says so. */
static void a_broken_gradient_updates_nothing(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct session *s = open_session(&mem, settings[0].text, "cuda");
    struct step_input input = rig_input(s, 1);
    struct step_output output;
    const float nan = NAN;
    input.load = load;
    input.user = s;
    int flat;
    const struct flat_tensor *tensor = rig_tensor(s, "layers.1.norm1", &flat);
    assert_non_null(tensor);
    float *master =
        executor_buffer(s->executor, &s->train->buffer[s->train->state->flat[flat].master]);
    if (device_upload(s->device, master + tensor->offset, &nan, sizeof nan, &err))
        fail_msg("%s", err.text);
    uint64_t before = rig_hash(s);
    if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
        fail_msg("%s", err.text);
    assert_true(output.skipped);
    assert_true(rig_hash(s) == before);
    session_close(s);
}

/* Nor does one that fp16 makes infinite; the step after it, with a scale that fits, is the first.
 */
static void too_large_a_loss_scale_updates_nothing(void **state)
{
    static const double scales[] = {1e9, 1024};
    struct mem mem = {0};
    struct error err = {0};
    struct session *s = open_session(&mem, MODEL "precision=fp16", "cuda");
    uint64_t before = rig_hash(s);
    for (int i = 0; i < 2; i++) {
        struct step_input input = rig_input(s, 1);
        struct step_output output;
        input.load = load;
        input.user = s;
        input.loss_scale = scales[i];
        if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
            fail_msg("%s", err.text);
        assert_int_equal(output.skipped, i == 0);
        assert_int_equal(rig_hash(s) == before, i == 0);
        assert_true(isfinite(output.loss));
    }
    session_close(s);
}

/* One that looks at each product and hands it on. */
static const struct device_ops *multiplying;
static int products, misaligned;

static int look_and_multiply(struct device *d, const struct gemm *g, void *scratch,
                             struct error *err)
{
    int64_t in = (int64_t)dtype_bytes(g->dt), out = (int64_t)dtype_bytes(g->dt_c);
    uintptr_t bits = (uintptr_t)g->a | (uintptr_t)g->b | (uintptr_t)g->c;
    bits |= (uintptr_t)(g->lda * in | g->ldb * in | g->ldc * out);
    products++;
    misaligned += bits % 16 != 0;
    return multiplying->gemm(d, g, scratch, err);
}

/* Libraries have their fast kernels for operands whose rows begin at multiples of 16 bytes.  The
 * vocabulary is odd here, as GPT-2's is; all other sizes are multiples of 8. */
static void rows_of_products_begin_at_16_bytes(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct trace trace = {0};
    struct step_output output;
    struct session *s =
        open_session(&mem, MODEL "precision=bf16 model.tie_embeddings=true", "cuda");
    struct device_ops ops = *s->device->ops;
    struct step_input input = rig_input(s, 1);
    input.load = load;
    input.user = s;
    products = misaligned = 0;
    multiplying = s->device->ops;
    ops.gemm = look_and_multiply;
    s->device->ops = &ops;
    trace_begin(&trace); /* op by op, not replayed */
    if (executor_run_step(s->executor, s->train, &input, &output, &trace, &err))
        fail_msg("%s", err.text);
    assert_int_equal(products, 3 * 12 + 3);
    assert_int_equal(misaligned, 0);
    trace_free(&trace);
    s->device->ops = multiplying;
    session_close(s);
}

static void memory_is_what_was_planned(void **state)
{
    struct mem mem = {0};
    struct session *s = open_session(&mem, settings[1].text, "cuda");
    for (int pool = 0; pool < POOL_HOST; pool++)
        assert_int_equal(mem.now_bytes[pool], s->train->pool_bytes[pool]);
    session_close(s);
    assert_int_equal(mem.blocks, 0);
}

static int streams_of(const char *keys)
{
    struct mem mem = {0};
    struct session *s = open_session(&mem, keys, "cuda");
    int streams = 0;
    for (int i = 0; i < DEVICE_STREAMS; i++)
        streams += cuda_state(s->device)->stream[i] != NULL;
    session_close(s);
    return streams;
}

static void streams_are_those_that_a_step_uses(void **state)
{
    assert_int_equal(streams_of(MODEL "precision=fp32"), 1);
    assert_int_equal(streams_of(MODEL "precision=fp32 train.overlap_update=true"), 2);
}

/* Milliseconds that the compute stream stands still before the first micro-batch, and before each
 * other one. */
struct pauses {
    int first, other;
    struct session *session;
};

static void pause_ms(void *ms)
{
    const struct timespec pause = {.tv_sec = *(int *)ms / 1000,
                                   .tv_nsec = *(int *)ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static int pause_and_load(void *user, const struct step_batch *batch, struct error *err)
{
    struct pauses *p = user;
    int *ms = batch->micro ? &p->other : &p->first;
    return device_call(p->session->device, DEVICE_COMPUTE, pause_ms, ms, err) ||
                   load(p->session, batch, err)
               ? -1
               : 0;
}

/* Small, so that all of a step but its pauses is short, on a busy machine too. */
#define SMALL                                                                              \
    "model.layers=1 model.hidden=16 model.heads=2 model.kv_heads=1 model.ffn=16 "          \
    "model.vocab=17 data.seq_len=4 train.global_batch=8 train.micro_batch=1 train.lr=0.1 " \
    "train.steps=100 precision=fp32 "

/* Two steps in flight of eight micro-batches each, while a step may stand still for two seconds. */
static int run_with(struct pauses *p, struct error *err)
{
    struct mem mem = {0};
    struct step_pending pending[2];
    struct step_output output;
    struct session *s = p->session = open_session(&mem, SMALL, "cuda");
    int rc = 0;
    executor_watch(s->executor, 2);
    for (int i = 0; i < 2 && !rc; i++) {
        struct step_input input = rig_input(s, i + 1);
        input.load = pause_and_load;
        input.user = p;
        rc = step_start(s->executor, s->train, &input, NULL, &pending[i], err);
    }
    for (int i = 0; i < 2 && !rc; i++)
        rc = step_finish(s->executor, &pending[i], &output, err);
    session_close(s);
    return rc;
}

static void a_long_step_is_not_one_that_hangs(void **state)
{
    struct error err = {0};
    if (run_with(&(struct pauses){.first = 300, .other = 300}, &err))
        fail_msg("%s", err.text);
    assert_int_equal(run_with(&(struct pauses){.first = 4000}, &err), -1);
    assert_int_equal(err.code, EXIT_HANG);
    assert_non_null(strstr(err.text, "has not ended for 2 s: this rank's GPU has not finished"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_to_what_they_do_on_the_cpu),
        cmocka_unit_test(steps_in_flight_give_the_same_bits),
        cmocka_unit_test(a_traced_step_is_a_step),
        cmocka_unit_test(a_broken_gradient_updates_nothing),
        cmocka_unit_test(too_large_a_loss_scale_updates_nothing),
        cmocka_unit_test(rows_of_products_begin_at_16_bytes),
        cmocka_unit_test(memory_is_what_was_planned),
        cmocka_unit_test(streams_are_those_that_a_step_uses),
        cmocka_unit_test(a_long_step_is_not_one_that_hangs),
    };
    if (skip_without_gpu(NULL))
        return 77;
    return cmocka_run_group_tests_name("cuda_step", tests, NULL, NULL);
}
