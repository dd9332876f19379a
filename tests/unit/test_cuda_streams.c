/* test_cuda_streams.c - a GPU's memory, streams, events and recordings, as device.h has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/cuda/state.h"
#include "device/device.h"

enum { ELEMS = 1031, BYTES = ELEMS * sizeof(float) };

struct rig {
    struct device *device;
    struct mem mem;
    struct error err;
};

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct device_request request = {.kind = DEVICE_CUDA};
    *state = r;
    if (device_open(&r->device, &request, &r->err)) {
        print_message("device_open: %s\n", r->err.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    int leaked = r->mem.blocks != 0;
    device_close(r->device);
    free(r);
    return leaked ? -1 : 0;
}

/* Check that a call of device.h succeeded. */
static void good(struct rig *r, int rc)
{
    if (rc)
        fail_msg("%s", r->err.text);
}

static float *device_floats(struct rig *r, float value)
{
    float host[ELEMS], *x = device_alloc(r->device, &r->mem, POOL_WORKSPACE, BYTES, &r->err);
    assert_non_null(x);
    for (int i = 0; i < ELEMS; i++)
        host[i] = value;
    good(r, device_upload(r->device, x, host, BYTES, &r->err));
    return x;
}

static void free_floats(struct rig *r, float *x)
{
    device_free(r->device, &r->mem, POOL_WORKSPACE, BYTES, x);
}

static void expect_floats(struct rig *r, const float *x, float value)
{
    float host[ELEMS];
    good(r, device_download(r->device, host, x, BYTES, &r->err));
    for (int i = 0; i < ELEMS; i++)
        if (host[i] != value)
            fail_msg("[%d] is %g, expected %g", i, (double)host[i], (double)value);
}

/* y = a + b on a stream */
static void add(struct rig *r, enum device_stream stream, float *y, const float *a, const float *b)
{
    device_sum_parts(r->device, stream, y, DTYPE_F32, a, 2, b - a, ELEMS, 0);
}

static struct device_event *event(struct rig *r, enum device_event_kind kind)
{
    struct device_event *made = device_event_create(r->device, kind, &r->err);
    assert_non_null(made);
    return made;
}

static void test_memory(void **state)
{
    static const size_t sizes[] = {1, 3, 257, 4096, 100003};
    struct rig *r = *state;
    size_t total, before, after;
    good(r, device_memory(r->device, &total, &before, &r->err));
    assert_true(before <= total && total > 0);
    for (int s = 0; s < 5; s++) {
        uint8_t *from = malloc(sizes[s]), *to = malloc(sizes[s]);
        void *x = device_alloc(r->device, &r->mem, POOL_PARAMS, sizes[s], &r->err);
        assert_non_null(x);
        assert_int_equal((uintptr_t)x % 256, 0);
        assert_int_equal(r->mem.now_bytes[POOL_PARAMS], sizes[s]);
        for (size_t i = 0; i < sizes[s]; i++)
            from[i] = (uint8_t)(i * 31 + 7);
        good(r, device_upload(r->device, x, from, sizes[s], &r->err));
        good(r, device_download(r->device, to, x, sizes[s], &r->err));
        assert_memory_equal(from, to, sizes[s]);
        device_free(r->device, &r->mem, POOL_PARAMS, sizes[s], x);
        free(from);
        free(to);
    }
    good(r, device_memory(r->device, &total, &after, &r->err));
    assert_null(device_alloc(r->device, &r->mem, POOL_GRADS, 2 * total, &r->err));
    assert_non_null(strstr(r->err.text, mem_pool_name(POOL_GRADS)));
    good(r, device_check(r->device, &r->err)); /* that failure is over */
}

/* Host memory to host memory through the GPU, nothing waited for on the way. */
static void test_one_stream_is_in_order(void **state)
{
    enum { ROUNDS = 20 };
    struct rig *r = *state;
    float *x = device_floats(r, 0), *one = device_floats(r, 1);
    float *from = device_host_alloc(r->device, &r->mem, POOL_HOST, BYTES, &r->err);
    float *to = device_host_alloc(r->device, &r->mem, POOL_HOST, BYTES, &r->err);
    assert_true(from && to);
    for (int i = 0; i < ELEMS; i++)
        from[i] = (float)i;
    good(r, device_copy_async(r->device, DEVICE_COMPUTE, x, from, BYTES, &r->err));
    for (int i = 0; i < ROUNDS; i++)
        add(r, DEVICE_COMPUTE, x, x, one);
    good(r, device_copy_async(r->device, DEVICE_COMPUTE, to, x, BYTES, &r->err));
    good(r, device_sync(r->device, &r->err));
    for (int i = 0; i < ELEMS; i++)
        assert_true(to[i] == (float)(i + ROUNDS));
    device_host_free(r->device, &r->mem, POOL_HOST, BYTES, from);
    device_host_free(r->device, &r->mem, POOL_HOST, BYTES, to);
    free_floats(r, x);
    free_floats(r, one);
}

/* GATHER fills one of two buffers, COMPUTE adds it up, and gives it back. */
static void test_events_relate_streams(void **state)
{
    enum { ROUNDS = 40 };
    struct rig *r = *state;
    float *buffer[2] = {device_floats(r, 0), device_floats(r, 0)};
    float *sum = device_floats(r, 0), *one = device_floats(r, 1), *count = device_floats(r, 0);
    float *zero = device_floats(r, 0);
    struct device_event *full[2] = {event(r, DEVICE_EVENT_UNTIMED), event(r, DEVICE_EVENT_UNTIMED)},
                        *empty[2] = {event(r, DEVICE_EVENT_UNTIMED),
                                     event(r, DEVICE_EVENT_UNTIMED)};
    for (int i = 0; i < ROUNDS; i++) { /* empty was never recorded in the first two */
        int b = i % 2;
        good(r, device_event_wait(r->device, DEVICE_GATHER, empty[b], &r->err));
        add(r, DEVICE_GATHER, count, count, one);
        add(r, DEVICE_GATHER, buffer[b], count, zero);
        good(r, device_event_record(r->device, full[b], DEVICE_GATHER, &r->err));
        good(r, device_event_wait(r->device, DEVICE_COMPUTE, full[b], &r->err));
        add(r, DEVICE_COMPUTE, sum, sum, buffer[b]);
        good(r, device_event_record(r->device, empty[b], DEVICE_COMPUTE, &r->err));
    }
    expect_floats(r, sum, (float)(ROUNDS * (ROUNDS + 1) / 2));
    good(r, device_sync(r->device, &r->err));
    float *all[] = {buffer[0], buffer[1], sum, one, count, zero};
    for (int i = 0; i < 6; i++)
        free_floats(r, all[i]);
    for (int b = 0; b < 2; b++) {
        device_event_destroy(r->device, full[b]);
        device_event_destroy(r->device, empty[b]);
    }
    device_event_destroy(r->device, NULL);
}

static void test_events_get_done(void **state)
{
    struct rig *r = *state;
    float *x = device_floats(r, 1);
    struct device_event *from = event(r, DEVICE_EVENT_TIMED), *to = event(r, DEVICE_EVENT_TIMED),
                        *never = event(r, DEVICE_EVENT_UNTIMED);
    good(r, device_event_wait(r->device, DEVICE_POINT, never, &r->err));
    assert_int_equal(device_event_done(r->device, never, &r->err), 1);
    good(r, device_event_record(r->device, from, DEVICE_POINT, &r->err));
    for (int i = 0; i < 10; i++)
        add(r, DEVICE_POINT, x, x, x);
    good(r, device_event_record(r->device, to, DEVICE_POINT, &r->err));
    int done;
    while ((done = device_event_done(r->device, to, &r->err)) == 0) {
    }
    assert_int_equal(done, 1);
    assert_int_equal(device_event_done(r->device, from, &r->err), 1);
    int64_t ns = device_event_ns(r->device, from, to);
    assert_in_range(ns, 0, 10000000000);
    expect_floats(r, x, 1024);
    device_event_destroy(r->device, from);
    device_event_destroy(r->device, to);
    device_event_destroy(r->device, never);
    free_floats(r, x);
}

static struct device_recording *record_adds(struct rig *r, int count, float *y, const float *x)
{
    good(r, device_record_begin(r->device, &r->err));
    for (int i = 0; i < count; i++)
        add(r, DEVICE_COMPUTE, y, y, x);
    struct device_recording *made = device_record_end(r->device, &r->err);
    assert_non_null(made);
    return made;
}

static void test_recordings(void **state)
{
    struct rig *r = *state;
    float *y = device_floats(r, 0), *x = device_floats(r, 1);
    struct device_recording *twice = record_adds(r, 2, y, x), *ten = record_adds(r, 10, y, x);
    struct device_recording *none = record_adds(r, 0, y, x);
    expect_floats(r, y, 0); /* recorded and not run */
    for (int i = 0; i < 3; i++) {
        good(r, device_replay(r->device, twice, &r->err));
        add(r, DEVICE_COMPUTE, x, x, x); /* 2, 4, 8: in order with what is between */
        good(r, device_replay(r->device, ten, &r->err));
        good(r, device_replay(r->device, none, &r->err));
    }
    expect_floats(r, y, 2 * (1 + 2 + 4) + 10 * (2 + 4 + 8));
    device_recording_destroy(r->device, twice);
    device_recording_destroy(r->device, ten);
    device_recording_destroy(r->device, none);
    free_floats(r, x);
    free_floats(r, y);
}

/* Waiting cannot be recorded: that fails, and so does the recording, and it goes on after. */
static void test_recordings_that_fail(void **state)
{
    struct rig *r = *state;
    float *y = device_floats(r, 0), *x = device_floats(r, 1);
    good(r, device_record_begin(r->device, &r->err));
    add(r, DEVICE_COMPUTE, y, y, x);
    assert_int_equal(device_sync(r->device, &r->err), -1);
    assert_null(device_record_end(r->device, &r->err));
    cudaGetLastError();
    expect_floats(r, y, 0);
    struct device_recording *made = record_adds(r, 3, y, x);
    good(r, device_replay(r->device, made, &r->err));
    expect_floats(r, y, 3);
    device_recording_destroy(r->device, made);
    free_floats(r, x);
    free_floats(r, y);
}

static void ranks_of_a_node_share_its_cores(void **state)
{
    struct rig *r = *state;
    const struct device_request request = {.kind = DEVICE_CUDA, .local_ranks = 1 << 20};
    struct device *d;
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(device_open(&d, &request, &r->err), 0);
    assert_int_equal(d->threads, 1);
    device_close(d);
}

/* CUDA is asked for a connection of each stream, unless the user has said how many. */
static void streams_share_no_connection(void **state)
{
    static const char name[] = "CUDA_DEVICE_MAX_CONNECTIONS";
    char why[128];
    unsetenv(name);
    assert_true(device_gpu_count(why) > 0);
    assert_true(atoi(getenv(name)) >= DEVICE_STREAMS);
    setenv(name, "1", 1);
    assert_true(device_gpu_count(why) > 0);
    assert_string_equal(getenv(name), "1");
    unsetenv(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_stream_is_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_events_relate_streams, setup, teardown),
        cmocka_unit_test_setup_teardown(test_events_get_done, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recordings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recordings_that_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_of_a_node_share_its_cores, setup, teardown),
        cmocka_unit_test(streams_share_no_connection),
    };
    char why[128];
    if (!device_gpu_count(why)) {
        print_message("skipped: no GPU: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
