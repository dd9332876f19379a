/* test_cuda_offload.c - state of a GPU's rank that lives in the host's memory or in a file: the
 * numbers of a rank that keeps it, whether steps are in flight, traced or skipped, memory as
 * planned, and files that are slow or fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "plan/report.h"
#include "tests/unit/rig.h"

enum { STEPS = 5, SHORT_STEPS = 3, PLACES = 12 };

#define MODEL                                                                             \
    "model.layers=3 model.hidden=48 model.heads=6 model.kv_heads=2 model.ffn=72 "         \
    "model.vocab=101 data.seq_len=19 train.global_batch=3 train.lr=3e-3 train.steps=100 " \
    "train.warmup_steps=2 device=cuda parallel.strategy=FULL_SHARD "

/* The update's operations are the same on both sides, but for the rounding of a fused step. */
static const struct {
    const char *text;
    double tolerance;
} settings[] = {
    {MODEL "precision=fp32 train.clip=0.3", 1e-5},
    {MODEL "precision=bf16 train.micro_batch=1 model.tie_embeddings=true", 5e-3},
    {MODEL "precision=bf16_pure train.optimizer_dtype=bf16", 1e-2},
    /* Small units are whole on every rank, and are fetched whole. */
    {MODEL "precision=bf16 train.micro_batch=1 parallel.persist_below=9000", 5e-3},
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static const char *const places[PLACES] = {
    "offload.params=host",
    "offload.optimizer=host",
    "offload.optimizer=host offload.params=host",
    "offload.optimizer=disk offload.path=/tmp",
    "offload.optimizer=disk offload.params=disk offload.path=/tmp",
    "offload.params=disk offload.path=/tmp",
    "offload.gradients=host",
    "offload.gradients=disk offload.path=/tmp",
    "offload.gradients=host offload.params=host",
    "offload.optimizer=host offload.gradients=host offload.params=host",
    "offload.optimizer=host offload.gradients=disk offload.path=/tmp",
    "offload.optimizer=disk offload.gradients=disk offload.params=disk offload.path=/tmp",
};

static int updates_on_host(int place)
{
    return !!strstr(places[place], "optimizer");
}

static int uses_disk(int place)
{
    return !!strstr(places[place], "disk");
}

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    struct rig_step data = {.session = user};
    return rig_load_step(&data, batch, err);
}

static struct session *open_session(struct mem *mem, int setting, int place)
{
    char text[1024];
    snprintf(text, sizeof text, "%s %s", settings[setting].text, place < 0 ? "" : places[place]);
    struct config config = rig_config(text);
    struct session *s = rig_open(mem, &config, NULL, 0);
    rig_init(s);
    return s;
}

static int steps_taken(void)
{
    return rig_is_short() ? SHORT_STEPS : STEPS;
}

/* What steps came to; 0 for those not taken. */
struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t state;
};

static struct outcome train(int setting, int place, int depth)
{
    struct mem mem = {0};
    struct error err = {0};
    struct outcome outcome = {0};
    struct step_pending pending[2];
    struct step_output output;
    struct session *s = open_session(&mem, setting, place);
    for (int step = 1; step < steps_taken() + depth; step++) {
        struct step_input input = rig_input(s, step);
        int ends = step - depth + 1;
        struct rig_step data = {s, step};
        input.load = rig_load_step;
        input.user = &data;
        if (step <= steps_taken() &&
            step_start(s->executor, s->train, &input, NULL, &pending[step % 2], &err))
            fail_msg("%s", err.text);
        if (ends < 1)
            continue;
        if (step_finish(s->executor, &pending[ends % 2], &output, &err))
            fail_msg("%s", err.text);
        assert_false(output.skipped);
        outcome.loss[ends - 1] = output.loss;
        outcome.norm[ends - 1] = output.grad_norm;
    }
    outcome.state = rig_hash(s);
    session_close(s);
    assert_int_equal(mem.blocks, 0);
    return outcome;
}

/* Of a setting and a place, one step after the other: several tests compare with that. */
static const struct outcome *one_by_one(int setting, int place)
{
    static struct outcome outcome[SETTINGS][PLACES];
    static int is_made[SETTINGS][PLACES];
    if (!is_made[setting][place]++)
        outcome[setting][place] = train(setting, place, 1);
    return &outcome[setting][place];
}

/* Every setting, or every other one. */
static int stride(void)
{
    return rig_is_short() ? 2 : 1;
}

static void the_numbers_are_those_of_a_rank_that_keeps_its_state(void **state)
{
    for (int i = 0; i < SETTINGS; i += stride()) {
        struct outcome here = train(i, -1, 1);
        assert_true(here.loss[steps_taken() - 1] < here.loss[0]);
        for (int place = 0; place < PLACES; place++) {
            const struct outcome *there = one_by_one(i, place);
            double off = 0;
            for (int step = 0; step < steps_taken(); step++) {
                off = fmax(off, fabs(there->loss[step] / here.loss[step] - 1));
                off = fmax(off, fabs(there->norm[step] / here.norm[step] - 1) / 10);
            }
            print_message("%s %s: losses differ by %.2g\n", settings[i].text, places[place], off);
            assert_true(off <= (updates_on_host(place) ? settings[i].tolerance : 0));
            if (!updates_on_host(place))
                assert_true(here.state == there->state);
        }
    }
}

static void steps_in_flight_give_the_same_bits(void **state)
{
    for (int i = 0; i < SETTINGS; i += stride())
        for (int place = 0; place < PLACES; place++) {
            struct outcome two = train(i, place, 2);
            assert_memory_equal(one_by_one(i, place), &two, sizeof two);
        }
}

static void a_traced_step_is_a_step(void **state)
{
    uint64_t hash[2];
    struct trace trace = {0};
    for (int traced = 0; traced < 2; traced++) {
        struct mem mem = {0};
        struct error err = {0};
        struct step_output output;
        struct session *s = open_session(&mem, 1, 2);
        struct step_input input = rig_input(s, 1);
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
    int count[STREAMS] = {0};
    for (int i = 0; i < trace.events; i++)
        if (trace.event[i].lane < STREAMS)
            count[trace.event[i].lane]++;
    assert_true(count[STREAM_FETCH] > 0 && count[STREAM_SPILL] > 0);
    assert_int_equal(count[STREAM_HOST], 5); /* an UPDATE per unit */
    trace_free(&trace);
}

static void a_broken_gradient_updates_nothing(void **state)
{
    for (int i = 0; i < SETTINGS; i++)
        for (int place = 0; place < PLACES; place++) {
            struct mem mem = {0};
            struct error err = {0};
            struct step_output output;
            struct session *s = open_session(&mem, i, place);
            const struct state_flat *unit = &s->train->state->flat[1];
            struct step_input input = rig_input(s, 1);
            uint32_t nan = 0x7fc07fc0; /* fp32, or two of bf16 */
            input.load = load;
            input.user = s;
            if (executor_write(s->executor, &s->train->buffer[unit->param], 0, &nan, sizeof nan,
                               &err))
                fail_msg("%s", err.text);
            if (state_master_dtype(s->state) == s->layout.dtype &&
                executor_write(s->executor, &s->train->buffer[unit->master], 0, &nan, sizeof nan,
                               &err))
                fail_msg("%s", err.text);
            uint64_t before = rig_hash(s);
            if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
                fail_msg("%s", err.text);
            assert_true(output.skipped);
            assert_true(rig_hash(s) == before);
            session_close(s);
        }
}

static void memory_is_what_was_planned(void **state)
{
    for (int i = 0; i < SETTINGS; i++)
        for (int place = 0; place < PLACES; place++) {
            struct mem mem = {0};
            struct error err = {0};
            struct report report;
            struct session *s = open_session(&mem, i, place);
            struct report_request request = {
                .config = &s->config, .ranks = 1, .nodes = 1, .threads = 1};
            if (report_make(&report, &request, &err))
                fail_msg("%s", err.text);
            if (!report.verified)
                fail_msg("%s", report.verdict.text);
            for (int pool = 0; pool < POOL_COUNT; pool++)
                assert_int_equal(mem.now_bytes[pool], report.rank[0].need.pool_bytes[pool]);
            assert_int_equal(s->train->pool_bytes[POOL_DISK] > 0, uses_disk(place));
            assert_int_equal(!s->train->pool_bytes[POOL_GRADS],
                             strstr(places[place], "gradients") || layout_grads_pass(&s->layout));
            assert_int_equal(!s->train->pool_bytes[POOL_PARAMS], !!strstr(places[place], "params"));
            report_free(&report);
            session_close(s);
        }
}

/* Nothing that is captured before the first step is left behind, on the device or the host. */
static void state_is_clear_at_first(void **state)
{
    enum { MOST_BYTES = 8 << 20 }; /* of a buffer: a product's workspace has 4 MiB */
    for (int place = 0; place < PLACES; place++) {
        char text[1024];
        snprintf(text, sizeof text, "%s %s", settings[1].text, places[place]);
        struct config config = rig_config(text);
        struct mem mem = {0};
        struct session *s = rig_open(&mem, &config, NULL, 0);
        const char *none = calloc(1, MOST_BYTES);
        for (int b = 0; b < s->state->buffers; b++) {
            const struct program_buffer *buffer = &s->state->buffer[b];
            if (buffer->pool == POOL_DISK || b == s->state->constants)
                continue;
            assert_true(buffer->bytes <= MOST_BYTES);
            char *held = rig_download(s, b);
            if (memcmp(held, none, buffer->bytes))
                fail_msg("%s holds something, with %s", buffer->name, places[place]);
            free(held);
        }
        free((void *)none);
        session_close(s);
    }
}

/* Logits that tokens are drawn from are in the host's memory, and counted there. */
static void memory_of_generation_is_planned(void **state)
{
    enum { TEXTS = 5 };
    struct config config = rig_config(MODEL "offload.optimizer=host data.valid=none.h5 "
                                            "generate.samples=5");
    struct mem mem = {0};
    struct error err = {0};
    struct report report;
    struct session *s = rig_open(&mem, &config, NULL, TEXTS);
    struct report_request request = {.config = &config, .ranks = 1, .nodes = 1, .threads = 1};
    if (report_make(&report, &request, &err))
        fail_msg("%s", err.text);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        assert_int_equal(mem.now_bytes[pool], report.rank[0].need.pool_bytes[pool]);
    assert_int_equal(report.rank[0].need.logits_bytes,
                     TEXTS * config.model.vocab * (int64_t)sizeof(float));
    report_free(&report);
    session_close(s);
}

/* ---- files, by slow_file.c ---- */

enum { FIRST_ON_DISK = 3, ON_DISK = 5, NEVER_MS = 60000, PATIENCE_S = 20 };

static const struct timespec nap = {.tv_nsec = 10000000};
static char slow_path[] = "/tmp/trireme-slow-XXXXXX";

static void calls_last(int ms)
{
    FILE *file = fopen(slow_path, "w");
    assert_non_null(file);
    fprintf(file, "%d", ms);
    fclose(file);
}

/* The descriptor of the file of offloaded state. */
static int descriptor(void)
{
    char link[64], to[256] = "";
    for (int fd = 3; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, to, sizeof to - 1);
        if (length > 0 && !strncmp(to, "/tmp/rank-", 10))
            return fd;
    }
    fail_msg("no file is open");
    return -1;
}

/* Who waits for them after all is not kept for ever. */
static void let_go(int signal)
{
    if (truncate(slow_path, 0))
        abort();
}

/* While no read ends, the host gives the device all of a step: reads are not what it waits for. */
static void a_step_is_issued_while_its_file_waits(void **state)
{
    for (int i = 0; i < SETTINGS; i++) {
        struct mem mem = {0};
        struct error err = {0};
        struct step_pending pending;
        struct step_output here, there;
        struct session *s = open_session(&mem, i, -1);
        struct step_input input = rig_input(s, 1);
        input.load = load;
        input.user = s;
        assert_int_equal(executor_run_step(s->executor, s->train, &input, &here, NULL, &err), 0);
        session_close(s);
        s = open_session(&mem, i, ON_DISK);
        input.user = s;
        calls_last(NEVER_MS);
        signal(SIGALRM, let_go);
        alarm(PATIENCE_S);
        int64_t begin_ns = clock_ns();
        if (step_start(s->executor, s->train, &input, NULL, &pending, &err))
            fail_msg("%s", err.text);
        assert_in_range(clock_ns() - begin_ns, 0, PATIENCE_S * 900000000LL);
        alarm(0);
        for (int look = 0; look < 20; look++) {
            assert_int_equal(device_event_done(s->device, pending.done, &err), 0);
            nanosleep(&nap, NULL);
        }
        calls_last(0);
        if (step_finish(s->executor, &pending, &there, &err))
            fail_msg("%s", err.text);
        assert_true(here.loss == there.loss && here.grad_norm == there.grad_norm);
        assert_true(here.targets == there.targets && here.skipped == there.skipped);
        session_close(s);
    }
}

static void expect_failure(struct session *s, int code, const char *first, const char *second)
{
    struct error err = {0};
    struct step_output output;
    struct step_input input = rig_input(s, 1);
    input.load = load;
    input.user = s;
    assert_int_equal(executor_run_step(s->executor, s->train, &input, &output, NULL, &err), -1);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, first) || !strstr(err.text, second) ||
        !strstr(err.text, "offload.path: /tmp/rank-00000"))
        fail_msg("said \"%s\"", err.text);
}

static void a_file_that_was_cut_ends_the_step(void **state)
{
    for (int place = FIRST_ON_DISK; place <= ON_DISK; place++) {
        struct mem mem = {0};
        struct session *s = open_session(&mem, 0, place);
        assert_int_equal(ftruncate(descriptor(), 1000), 0);
        expect_failure(s, EXIT_NODE, "[in FETCH ", "ends at byte 1000");
        session_close(s);
        assert_int_equal(mem.blocks, 0);
    }
}

static void a_file_that_does_not_answer_ends_the_step(void **state)
{
    for (int place = FIRST_ON_DISK; place <= ON_DISK; place++) {
        struct mem mem = {0};
        struct session *s = open_session(&mem, 0, place);
        executor_watch(s->executor, 2);
        calls_last(NEVER_MS);
        expect_failure(s, EXIT_HANG, "[in FETCH ", "nothing was read for 2 s");
        calls_last(0);
        for (int i = 0; i < 20; i++)
            nanosleep(&nap, NULL);
        session_close(s);
    }
}

/* A slow one is not one that hangs, though a step takes longer than is waited for what hangs. */
static void a_slow_file_is_waited_for(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct step_output output;
    struct session *s = open_session(&mem, 0, ON_DISK);
    struct step_input input = rig_input(s, 1);
    input.load = load;
    input.user = s;
    executor_watch(s->executor, 2);
    calls_last(250);
    int64_t begin_ns = clock_ns();
    if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
        fail_msg("%s", err.text);
    assert_true(clock_ns() - begin_ns > 2000000000);
    calls_last(0);
    session_close(s);
}

int slow_file_meetings(void);

/* One unit's state is read while another one's is written, though functions of the host are called
 * one at a time: in some step, as the order in which streams come to theirs is drawn. */
static void reads_and_writes_go_on_together(void **state)
{
    enum { ATTEMPTS = 60 };
    struct mem mem = {0};
    struct error err = {0};
    struct step_output output;
    struct session *s = open_session(&mem, 0, ON_DISK);
    int before = slow_file_meetings();
    calls_last(5);
    for (int step = 1; step <= ATTEMPTS && slow_file_meetings() == before; step++) {
        struct step_input input = rig_input(s, step);
        input.load = load;
        input.user = s;
        if (executor_run_step(s->executor, s->train, &input, &output, NULL, &err))
            fail_msg("%s", err.text);
    }
    calls_last(0);
    assert_true(slow_file_meetings() > before);
    session_close(s);
}

static int prepare(void **state)
{
    int fd = mkstemp(slow_path);
    return fd < 0 || close(fd) || setenv("SLOW_FILE", slow_path, 1);
}

static int clean_up(void **state)
{
    return unlink(slow_path);
}

static int skip_without_gpu(void)
{
    char why[128];
    if (device_gpu_count(why))
        return 0;
    print_message("skipped: no GPU: %s\n", why);
    return 77;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_numbers_are_those_of_a_rank_that_keeps_its_state),
        cmocka_unit_test(steps_in_flight_give_the_same_bits),
        cmocka_unit_test(a_traced_step_is_a_step),
        cmocka_unit_test(a_broken_gradient_updates_nothing),
        cmocka_unit_test(memory_is_what_was_planned),
        cmocka_unit_test(memory_of_generation_is_planned),
        cmocka_unit_test(state_is_clear_at_first),
        cmocka_unit_test(a_step_is_issued_while_its_file_waits),
        cmocka_unit_test(a_file_that_was_cut_ends_the_step),
        cmocka_unit_test(a_file_that_does_not_answer_ends_the_step),
        cmocka_unit_test(a_slow_file_is_waited_for),
        cmocka_unit_test(reads_and_writes_go_on_together),
    };
    int rc = skip_without_gpu();
    return rc ? rc : cmocka_run_group_tests(tests, prepare, clean_up);
}
