/* test_faults.c - the emulated GPU catches what goes unnoticed, or does not, on a real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/emulate/fault_kernels.h"

enum { COUNT = 128, TRIES = 20 };

static float *make(size_t bytes)
{
    void *block = NULL;
    assert_int_equal(cudaMalloc(&block, bytes), cudaSuccess);
    return block;
}

static cudaStream_t make_stream(void)
{
    cudaStream_t s;
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    return s;
}

static int is(const float *x, int count, float value)
{
    float got[COUNT];
    assert_int_equal(cudaMemcpy(got, x, sizeof(float) * (size_t)count, cudaMemcpyDeviceToHost),
                     cudaSuccess);
    for (int i = 0; i < count; i++)
        if (!(got[i] == value))
            return 0;
    return 1;
}

/* Whether the numbers come out right. */
static int right(enum fault fault)
{
    float *out = make(2 * COUNT * sizeof(float)), got[COUNT];
    int good = 1;
    fault_run(NULL, fault, COUNT, out);
    assert_int_equal(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < COUNT; i++)
        good = good && got[i] == (float)(COUNT - 1 - i);
    assert_int_equal(cudaFree(out), cudaSuccess);
    return good;
}

static void test_wrong_numbers(void **state)
{
    for (int i = 0; i < TRIES; i++)
        assert_true(right(FAULT_NONE));
    for (int fault = FAULT_NO_BARRIER; fault < FAULT_LAST_WRONG; fault++) {
        int caught = 0;
        for (int i = 0; i < TRIES; i++)
            caught += !right((enum fault)fault);
        if (caught < TRIES - 1)
            fail_msg("fault %d was seen %d times of %d", fault, caught, TRIES);
    }
}

static void test_launches_that_fail(void **state)
{
    static const cudaError_t codes[FAULT_KINDS] = {
        [FAULT_MISALIGNED_LOAD] = cudaErrorMisalignedAddress,
        [FAULT_MISALIGNED_STORE] = cudaErrorMisalignedAddress,
        [FAULT_MISALIGNED_PAIR] = cudaErrorMisalignedAddress,
        [FAULT_MISALIGNED_ASYNC] = cudaErrorMisalignedAddress,
        [FAULT_MISALIGNED_MATRICES] = cudaErrorMisalignedAddress,
        [FAULT_MATRICES_GLOBAL] = cudaErrorIllegalAddress,
        [FAULT_PAST_END] = cudaErrorIllegalAddress,
        [FAULT_PAST_SHARED] = cudaErrorIllegalAddress,
        [FAULT_NULL] = cudaErrorIllegalAddress,
        [FAULT_STACK] = cudaErrorLaunchOutOfResources,
    };
    for (int fault = FAULT_LAST_WRONG + 1; fault < FAULT_KINDS; fault++) {
        cudaError_t expected = codes[fault] ? codes[fault] : cudaErrorLaunchFailure;
        float *out = make(2 * COUNT * sizeof(float));
        void *more;
        fault_run(NULL, (enum fault)fault, COUNT, out);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        assert_int_equal(cudaDeviceSynchronize(), expected);
        assert_int_equal(cudaGetLastError(), expected);
        assert_int_equal(cudaMalloc(&more, 1), expected);
        assert_int_equal(cudaGetLastError(), expected);
        assert_int_equal(cudaDeviceReset(), cudaSuccess);
        assert_true(right(FAULT_NONE));
    }
}

static void test_launches_that_are_refused(void **state)
{
    for (int refused = 0; refused < REFUSED_KINDS; refused++) {
        fault_refused(NULL, (enum refused)refused);
        assert_int_equal(cudaGetLastError(), refused == REFUSED_SHARED
                                                 ? cudaErrorInvalidValue
                                                 : cudaErrorInvalidConfiguration);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    }
}

static void test_memory_that_is_gone(void **state)
{
    float *x = make(COUNT * sizeof(float)), *y = make(COUNT * sizeof(float));
    assert_int_equal(cudaFree(x), cudaSuccess);
    fault_next(NULL, y, x, COUNT);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    assert_int_equal(cudaFree(x), cudaErrorInvalidValue);
    cudaGetLastError();
}

/* Past the end, but not as far as the next multiple of 256. */
static void test_a_few_bytes_too_far(void **state)
{
    float *x = make(10 * sizeof(float));
    fault_set(NULL, x, 11, 1);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(cudaFree(x), cudaErrorIllegalAddress);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
}

static void test_the_host_does_not_touch_device_memory(void **state)
{
    volatile float *x = make(COUNT * sizeof(float));
    int status;
    fault_set(NULL, (float *)x, COUNT, 1);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(x[0] == 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_int_equal(cudaFree((void *)x), cudaSuccess);
}

/* ---- streams ---- */

static void test_nothing_runs_before_it_is_waited_for(void **state)
{
    float *x = make(sizeof(float));
    volatile float *host;
    cudaStream_t s = make_stream();
    assert_int_equal(cudaMallocHost((void **)&host, sizeof(float)), cudaSuccess);
    *host = 5;
    fault_set(s, x, 1, 7);
    assert_int_equal(cudaMemcpyAsync((void *)host, x, sizeof(float), cudaMemcpyDefault, s),
                     cudaSuccess);
    assert_true(*host == 5);
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    assert_true(*host == 7);
    assert_int_equal(cudaFreeHost((void *)host), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(s), cudaSuccess);
    assert_int_equal(cudaFree(x), cudaSuccess);
}

/* a: x = 1; b: y = x + 1, with or without having waited for a. */
static int crossed(int wait)
{
    float *x = make(COUNT * sizeof(float)), *y = make(COUNT * sizeof(float));
    cudaStream_t a = make_stream(), b = make_stream();
    cudaEvent_t event;
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    fault_set(a, x, COUNT, 1);
    assert_int_equal(cudaEventRecord(event, a), cudaSuccess);
    if (wait)
        assert_int_equal(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    fault_next(b, y, x, COUNT);
    assert_int_equal(cudaStreamSynchronize(b), cudaSuccess);
    int good = is(y, COUNT, 2);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(a), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(b), cudaSuccess);
    assert_int_equal(cudaFree(x), cudaSuccess);
    assert_int_equal(cudaFree(y), cudaSuccess);
    return good;
}

static void test_streams_that_do_not_wait(void **state)
{
    int caught = 0;
    for (int i = 0; i < TRIES; i++) {
        assert_true(crossed(1));
        caught += !crossed(0);
    }
    assert_in_range(caught, TRIES / 2, TRIES);
}

/* A wait is for what was recorded when it was called. */
static void test_events_are_those_of_the_call(void **state)
{
    float *x = make(sizeof(float));
    cudaStream_t a = make_stream(), b = make_stream();
    cudaEvent_t event;
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(cudaEventQuery(event), cudaSuccess); /* never recorded: nothing to wait for */
    assert_int_equal(cudaEventRecord(event, a), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    fault_set(b, x, 1, 3);
    assert_int_equal(cudaEventRecord(event, b), cudaSuccess); /* b would wait for itself */
    int asked = 0;
    while (cudaEventQuery(event) == cudaErrorNotReady)
        asked++;
    assert_true(asked > 0);
    assert_true(is(x, 1, 3));
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(a), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(b), cudaSuccess);
    assert_int_equal(cudaFree(x), cudaSuccess);
}

/* ---- captures ---- */

/* x = 1 on a; y = x + 1 on b, which joins; then x = y + 1 on a: launched twice. */
static void test_captures(void **state)
{
    float *x = make(COUNT * sizeof(float)), *y = make(COUNT * sizeof(float));
    cudaStream_t a = make_stream(), b = make_stream();
    cudaEvent_t forth, back;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    cudaEventCreateWithFlags(&forth, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&back, cudaEventDisableTiming);
    fault_set(a, x, COUNT, 100);
    assert_int_equal(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    fault_set(a, x, COUNT, 1);
    assert_int_equal(cudaEventRecord(forth, a), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(b, forth, 0), cudaSuccess);
    fault_next(b, y, x, COUNT);
    assert_int_equal(cudaEventRecord(back, b), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(a, back, 0), cudaSuccess);
    fault_next(a, x, y, COUNT);
    assert_int_equal(cudaStreamEndCapture(a, &graph), cudaSuccess);
    assert_int_equal(cudaGraphGetNodes(graph, NULL, &nodes), cudaSuccess);
    assert_int_equal(nodes, 3);
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(a), cudaSuccess);
    assert_true(is(x, COUNT, 100)); /* recorded, not run */
    for (int i = 0; i < 2; i++) {
        fault_set(a, x, COUNT, 50);
        assert_int_equal(cudaGraphLaunch(exec, a), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(a), cudaSuccess);
        assert_true(is(x, COUNT, 3));
    }
    assert_int_equal(cudaGraphExecDestroy(exec), cudaSuccess);
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
}

static void test_what_spoils_a_capture(void **state)
{
    float *x = make(COUNT * sizeof(float));
    cudaStream_t a = make_stream(), b = make_stream();
    cudaEvent_t event;
    cudaGraph_t graph;
    void *more;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (int kind = 0; kind < 5; kind++) {
        cudaError_t code = cudaSuccess, end = cudaErrorStreamCaptureInvalidated;
        assert_int_equal(cudaEventRecord(event, b), cudaSuccess);
        assert_int_equal(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        fault_set(a, x, COUNT, 1);
        if (kind == 0)
            code = cudaStreamSynchronize(a);
        if (kind == 1)
            code = cudaMalloc(&more, 16);
        if (kind == 2)
            code = cudaDeviceSynchronize();
        if (kind == 3)
            code = cudaStreamWaitEvent(a, event, 0);
        if (kind == 4) { /* b joins, and does not come back */
            cudaEventRecord(event, a);
            cudaStreamWaitEvent(b, event, 0);
            fault_set(b, x, COUNT, 2);
            end = cudaErrorStreamCaptureUnjoined;
        }
        assert_int_equal(code, kind == 3   ? cudaErrorStreamCaptureIsolation
                               : kind == 4 ? cudaSuccess
                                           : cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(a, &graph), end);
        assert_null(graph);
        cudaGetLastError();
        assert_int_equal(cudaStreamSynchronize(a), cudaSuccess);
    }
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
}

/* As much as a stream holds: the call after that waits for the first of it. */
static void test_a_stream_that_is_full(void **state)
{
    enum { HELD = 1024 };
    float *x = make(COUNT * sizeof *x);
    cudaStream_t s = make_stream();
    cudaEvent_t first;
    assert_int_equal(cudaEventCreateWithFlags(&first, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(cudaEventRecord(first, s), cudaSuccess);
    for (int i = 1; i < HELD + 1; i++)
        fault_set(s, x, COUNT, (float)i);
    assert_int_equal(cudaEventQuery(first), cudaSuccess);
    assert_int_equal(cudaStreamQuery(s), cudaErrorNotReady);
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    assert_true(is(x, COUNT, (float)HELD));
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_numbers),
        cmocka_unit_test(test_launches_that_fail),
        cmocka_unit_test(test_launches_that_are_refused),
        cmocka_unit_test(test_memory_that_is_gone),
        cmocka_unit_test(test_a_few_bytes_too_far),
        cmocka_unit_test(test_the_host_does_not_touch_device_memory),
        cmocka_unit_test(test_nothing_runs_before_it_is_waited_for),
        cmocka_unit_test(test_streams_that_do_not_wait),
        cmocka_unit_test(test_events_are_those_of_the_call),
        cmocka_unit_test(test_captures),
        cmocka_unit_test(test_what_spoils_a_capture),
        cmocka_unit_test(test_a_stream_that_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
