/* test_nccl.c - the emulated NCCL, between processes that this program forks.
 *
 * The parent makes no call of CUDA.  A rank ends with the number of its checks that failed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

int emulate_nccl_single_rank_comms(void);

enum { MAX_RANKS = 4, TIMEOUT_S = 60 };

struct shared {
    int has_id;
    ncclUniqueId id;
    int arrived;
};

struct rank {
    int rank, ranks, failed;
    struct shared *shared;
    ncclComm_t comm;
    cudaStream_t stream;
};

static void check_at(struct rank *r, int holds, const char *what, int line)
{
    if (holds)
        return;
    if (r->failed++ < 5)
        fprintf(stderr, "%s:%d: rank %d of %d: does not hold: %s (%s)\n", __FILE__, line, r->rank,
                r->ranks, what, ncclGetLastError(NULL));
}

#define CHECK(r, holds) check_at(r, (holds) != 0, #holds, __LINE__)

/* Run body as ranks processes.  Returns how many checks failed. */
static int run(int ranks, void (*body)(struct rank *))
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = 0, status;
    for (int i = 0; i < ranks; i++)
        if (fork() == 0) {
            struct rank r = {.rank = i, .ranks = ranks, .shared = shared};
            char host[16];
            snprintf(host, sizeof host, "r%d", i);
            setenv("NCCL_HOSTID", host, 1); /* all ranks use GPU 0 */
            alarm(TIMEOUT_S);
            body(&r);
            _exit(r.failed < 100 ? r.failed : 100);
        }
    for (int i = 0; i < ranks; i++) {
        wait(&status);
        failed += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    munmap(shared, sizeof *shared);
    return failed;
}

static ncclUniqueId the_id(struct rank *r)
{
    if (r->rank == 0) {
        CHECK(r, ncclGetUniqueId(&r->shared->id) == ncclSuccess);
        __atomic_store_n(&r->shared->has_id, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&r->shared->has_id, __ATOMIC_ACQUIRE))
        usleep(100);
    return r->shared->id;
}

static void meet(struct rank *r)
{
    __atomic_add_fetch(&r->shared->arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&r->shared->arrived, __ATOMIC_ACQUIRE) % r->ranks)
        usleep(100);
}

static void start(struct rank *r)
{
    CHECK(r, cudaSetDevice(0) == cudaSuccess);
    CHECK(r, cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(r, ncclCommInitRank(&r->comm, r->ranks, the_id(r), r->rank) == ncclSuccess);
    if (r->failed)
        _exit(r->failed);
}

static void finish(struct rank *r)
{
    CHECK(r, cudaStreamSynchronize(r->stream) == cudaSuccess);
    CHECK(r, ncclCommDestroy(r->comm) == ncclSuccess);
    CHECK(r, cudaStreamDestroy(r->stream) == cudaSuccess);
}

/* Device memory of elems floats: the i-th is first + i * step. */
static float *floats(struct rank *r, int64_t elems, float first, float step)
{
    float *host = malloc((size_t)elems * 4), *device = NULL;
    for (int64_t i = 0; i < elems; i++)
        host[i] = first + (float)i * step;
    CHECK(r, cudaMalloc((void **)&device, (size_t)elems * 4) == cudaSuccess);
    CHECK(r, cudaMemcpy(device, host, (size_t)elems * 4, cudaMemcpyHostToDevice) == cudaSuccess);
    free(host);
    return device;
}

/* Is the i-th of elems floats on the device first + i * step? */
static int are(struct rank *r, const float *device, int64_t elems, float first, float step)
{
    float *host = malloc((size_t)elems * 4);
    int same = 1;
    CHECK(r, cudaMemcpyAsync(host, device, (size_t)elems * 4, cudaMemcpyDefault, r->stream) ==
                 cudaSuccess);
    CHECK(r, cudaStreamSynchronize(r->stream) == cudaSuccess);
    for (int64_t i = 0; i < elems; i++)
        same &= host[i] == first + (float)i * step;
    free(host);
    return same;
}

static void collectives_of(struct rank *r, int64_t n)
{
    const float ranks = (float)r->ranks, all = ranks * (ranks - 1) / 2;
    const int64_t total = n * r->ranks, mine = n * r->rank;
    float *part = floats(r, n, (float)mine, 1), *whole = floats(r, total, -1, 0);
    float *grown = floats(r, total, (float)r->rank, 1);

    CHECK(r, !ncclAllGather(part, whole, (size_t)n, ncclFloat, r->comm, r->stream));
    CHECK(r, are(r, whole, total, 0, 1));
    CHECK(r, !ncclReduceScatter(grown, part, (size_t)n, ncclFloat, ncclSum, r->comm, r->stream));
    CHECK(r, are(r, part, n, all + ranks * (float)mine, ranks));
    CHECK(r, !ncclAllReduce(grown, whole, (size_t)total, ncclFloat, ncclSum, r->comm, r->stream));
    CHECK(r, are(r, whole, total, all, ranks));
    CHECK(r, !ncclAllReduce(whole, whole, (size_t)total, ncclFloat, ncclMax, r->comm, r->stream));
    CHECK(r, are(r, whole, total, all, ranks));
    /* in place */
    CHECK(r, !ncclReduceScatter(grown, grown + mine, (size_t)n, ncclFloat, ncclSum, r->comm,
                                r->stream));
    CHECK(r, are(r, grown + mine, n, all + ranks * (float)mine, ranks));
    CHECK(r, !ncclAllGather(grown + mine, grown, (size_t)n, ncclFloat, r->comm, r->stream));
    CHECK(r, are(r, grown, total, all, ranks));
    CHECK(r, !ncclAllReduce(grown, grown, (size_t)total, ncclFloat, ncclSum, r->comm, r->stream));
    CHECK(r, are(r, grown, total, all * ranks, ranks * ranks));
    for (int root = 0; root < r->ranks; root++) {
        float *data = floats(r, n, (float)r->rank, 1);
        CHECK(r, !ncclBroadcast(data, data, (size_t)n, ncclFloat, root, r->comm, r->stream));
        CHECK(r, are(r, data, n, (float)root, 1));
        cudaFree(data);
    }
    cudaFree(part);
    cudaFree(whole);
    cudaFree(grown);
}

static void collectives(struct rank *r)
{
    static const int64_t counts[] = {1, 3, 7, 257, 1000};
    start(r);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        collectives_of(r, counts[i]);
    CHECK(r, emulate_nccl_single_rank_comms() == (r->ranks == 1));
    finish(r);
}

/* Sums of bf16 are rounded at every hop, so their order shows; it is the same everywhere. */
static void rounding(struct rank *r)
{
    const uint16_t one = 0x3f80, much = 0x4380; /* 1 and 256 */
    uint16_t value[6], before[6], *data;
    start(r);
    CHECK(r, cudaMalloc((void **)&data, sizeof value) == cudaSuccess);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 6; i++)
            value[i] = r->rank == 0 ? much : one;
        cudaMemcpy(data, value, sizeof value, cudaMemcpyHostToDevice);
        CHECK(r, !ncclAllReduce(data, data, 6, ncclBfloat16, ncclSum, r->comm, r->stream));
        CHECK(r, !cudaStreamSynchronize(r->stream));
        cudaMemcpy(value, data, sizeof value, cudaMemcpyDeviceToHost);
        CHECK(r, turn == 0 || !memcmp(value, before, sizeof value));
        memcpy(before, value, sizeof value);
    }
    if (r->ranks == 3) /* (1 + 1) + 256, but (1 + 256) + 1 */
        CHECK(r, value[0] == 0x4381 && value[2] == 0x4380);
    cudaFree(data);
    finish(r);
}

/* Everybody sends to everybody, itself too, in one group; then two messages in a row. */
static void messages(struct rank *r)
{
    enum { N = 129 };
    float *out = floats(r, N * r->ranks, (float)(1000 * r->rank), 1);
    float *in = floats(r, N * r->ranks, -1, 0);
    start(r);
    CHECK(r, !ncclGroupStart());
    for (int p = 0; p < r->ranks; p++) {
        CHECK(r, !ncclSend(out + p * N, N, ncclFloat, p, r->comm, r->stream));
        CHECK(r, !ncclRecv(in + p * N, N, ncclFloat, p, r->comm, r->stream));
    }
    CHECK(r, !ncclGroupEnd());
    for (int p = 0; p < r->ranks; p++)
        CHECK(r, are(r, in + p * N, N, (float)(1000 * p + r->rank * N), 1));
    for (int turn = 0; turn < 2 && r->ranks > 1; turn++) {
        if (r->rank == 0)
            CHECK(r, !ncclSend(out + turn, N, ncclFloat, r->ranks - 1, r->comm, r->stream));
        if (r->rank == r->ranks - 1) {
            CHECK(r, !ncclRecv(in, N, ncclFloat, 0, r->comm, r->stream));
            CHECK(r, are(r, in, N, (float)turn, 1));
        }
    }
    CHECK(r, ncclSend(out, N, ncclFloat, r->rank, r->comm, r->stream) == ncclInvalidUsage);
    cudaStreamSynchronize(r->stream);
    cudaFree(out);
    cudaFree(in);
    finish(r);
}

static ncclResult_t settled(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress)
        usleep(100);
    return state;
}

/* Calls on a communicator that does not block return before they are done. */
static void non_blocking(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t child = NULL;
    float *data = floats(r, 5, 1, 1);
    config.blocking = 0;
    CHECK(r, !cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    CHECK(r, ncclCommInitRankConfig(&r->comm, r->ranks, the_id(r), r->rank, &config) ==
                 ncclInProgress);
    CHECK(r, settled(r->comm) == ncclSuccess);
    for (int turn = 0; turn < 3; turn++) {
        CHECK(r, ncclAllReduce(data, data, 5, ncclFloat, ncclMax, r->comm, r->stream) ==
                     ncclInProgress);
        CHECK(r, settled(r->comm) == ncclSuccess);
    }
    CHECK(r, are(r, data, 5, 1, 1));
    CHECK(r, ncclCommSplit(r->comm, 0, -r->rank, &child, NULL) == ncclInProgress);
    CHECK(r, settled(r->comm) == ncclSuccess && settled(child) == ncclSuccess);
    int rank = -1;
    CHECK(r, !ncclCommUserRank(child, &rank) && rank == r->ranks - 1 - r->rank);
    CHECK(r, ncclCommFinalize(child) == ncclInProgress && settled(child) == ncclSuccess);
    CHECK(r, ncclCommDestroy(child) == ncclSuccess);
    cudaFree(data);
    finish(r);
}

/* By parity, the last rank in none. */
static void splits(struct rank *r)
{
    const int last = r->ranks - 1;
    ncclComm_t child = NULL;
    int count = 0;
    float *data = floats(r, 3, (float)(r->rank % 2), 0);
    start(r);
    CHECK(r, !ncclCommSplit(r->comm, r->rank == last ? NCCL_SPLIT_NOCOLOR : r->rank % 2, 0, &child,
                            NULL));
    CHECK(r, !child == (r->rank == last));
    if (child) {
        CHECK(r, !ncclCommCount(child, &count) && count == (last + 1 - r->rank % 2) / 2);
        CHECK(r, emulate_nccl_single_rank_comms() == (count == 1));
        CHECK(r, !ncclAllReduce(data, data, 3, ncclFloat, ncclSum, child, r->stream));
        CHECK(r, are(r, data, 3, (float)(count * (r->rank % 2)), 0));
        CHECK(r, !ncclCommDestroy(child));
    }
    cudaFree(data);
    finish(r);
}

/* Rank 0 receives twice on one stream, and sends on another one.  In the order of the calls what it
 * sends does not start before the second receive does, which is after the end of the first. */
static void starts(struct rank *r)
{
    enum { NAPS = 300, NAP_US = 1000 };
    const int is_ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT") != NULL;
    cudaStream_t other;
    ncclComm_t child = NULL;
    float *data = floats(r, 3, (float)r->rank, 0);
    start(r);
    CHECK(r, !cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(r, !ncclCommSplit(r->comm, 0, r->rank, &child, NULL));
    if (r->rank == 0) {
        CHECK(r, !ncclRecv(data, 1, ncclFloat, 1, r->comm, r->stream));
        CHECK(r, !ncclRecv(data + 1, 1, ncclFloat, 1, r->comm, r->stream));
        CHECK(r, !ncclSend(data + 2, 1, ncclFloat, 1, child, other));
    } else {
        CHECK(r, !ncclRecv(data + 2, 1, ncclFloat, 0, child, other));
        for (int i = 0; (is_ordered ? i < NAPS : 1) && cudaStreamQuery(other); i++)
            usleep(NAP_US);
        CHECK(r, cudaStreamQuery(other) == (is_ordered ? cudaErrorNotReady : cudaSuccess));
        CHECK(r, !ncclSend(data, 1, ncclFloat, 0, r->comm, r->stream));
        CHECK(r, !ncclSend(data + 1, 1, ncclFloat, 0, r->comm, r->stream));
    }
    CHECK(r, !cudaStreamSynchronize(other));
    CHECK(r, are(r, data, 2, 1, 0));
    CHECK(r, are(r, data + 2, 1, 0, 0));
    CHECK(r, !ncclCommDestroy(child));
    CHECK(r, !cudaStreamDestroy(other));
    cudaFree(data);
    finish(r);
}

/* Ranks that differ all learn it; what waits ends when the communicator is aborted. */
static void disagreement(struct rank *r)
{
    float *data = floats(r, 8, 0, 0);
    start(r);
    CHECK(r, !ncclAllReduce(data, data, r->rank ? 8 : 7, ncclFloat, ncclSum, r->comm, r->stream));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess)
        CHECK(r, !ncclCommGetAsyncError(r->comm, &state));
    CHECK(r, state == ncclInvalidUsage);
    CHECK(r, cudaStreamQuery(r->stream) == cudaErrorNotReady);
    meet(r);
    CHECK(r, !ncclCommAbort(r->comm));
    CHECK(r, !cudaStreamSynchronize(r->stream));
    cudaFree(data);
}

static void death(struct rank *r)
{
    float *data = floats(r, 8, 0, 0);
    start(r);
    if (r->rank < r->ranks - 1)
        CHECK(r, !ncclAllReduce(data, data, 8, ncclFloat, ncclSum, r->comm, r->stream));
    meet(r);
    if (r->rank == r->ranks - 1)
        _exit(r->failed);
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess)
        CHECK(r, !ncclCommGetAsyncError(r->comm, &state));
    CHECK(r, state == ncclRemoteError);
    CHECK(r,
          ncclAllReduce(data, data, 8, ncclFloat, ncclSum, r->comm, r->stream) == ncclRemoteError);
    CHECK(r, ncclCommDestroy(r->comm) == ncclRemoteError); /* it can only be aborted */
    CHECK(r, !ncclCommAbort(r->comm));
    CHECK(r, !cudaStreamSynchronize(r->stream));
    cudaFree(data);
}

/* A rank that aborts leaves the others waiting, who are told so; what was done before stays. */
static void desertion(struct rank *r)
{
    float *data = floats(r, 8, 2, 0);
    ncclResult_t state = ncclSuccess;
    start(r);
    CHECK(r, !ncclAllReduce(data, data, 8, ncclFloat, ncclMax, r->comm, r->stream));
    CHECK(r, are(r, data, 8, 2, 0));
    if (r->rank < r->ranks - 1) {
        CHECK(r, !ncclAllReduce(data, data, 8, ncclFloat, ncclSum, r->comm, r->stream));
        while (state == ncclSuccess)
            CHECK(r, !ncclCommGetAsyncError(r->comm, &state));
        CHECK(r, state == ncclRemoteError);
    }
    CHECK(r, !ncclCommAbort(r->comm));
    CHECK(r, !cudaStreamSynchronize(r->stream));
    cudaFree(data);
}

static void duplicate(struct rank *r)
{
    ncclComm_t comm = NULL;
    setenv("NCCL_HOSTID", "one", 1);
    CHECK(r, ncclCommInitRank(&comm, r->ranks, the_id(r), r->rank) == ncclInvalidUsage);
    CHECK(r, strstr(ncclGetLastError(NULL), "Duplicate GPU detected") != NULL);
    CHECK(r, comm == NULL);
}

/* Forms that are not in place but overlap, host memory, and more than there is. */
static void refused(struct rank *r)
{
    float host[8] = {0}, *data = floats(r, 8, 0, 0);
    start(r);
    CHECK(r, ncclAllReduce(data, data + 1, 4, ncclFloat, ncclSum, r->comm, r->stream));
    CHECK(r, ncclAllReduce(host, host, 8, ncclFloat, ncclSum, r->comm, r->stream));
    CHECK(r, ncclAllReduce(data, data, 9, ncclFloat, ncclSum, r->comm, r->stream));
    CHECK(r, ncclBroadcast(data, data, 8, ncclFloat, r->ranks, r->comm, r->stream));
    CHECK(r, ncclGroupEnd() == ncclInvalidUsage);
    cudaFree(data);
    finish(r);
}

/* Gathers between windows of NCCL's memory, in place and not; windows that are none. */
static void windows(struct rank *r)
{
    enum { N = 100 };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclWindow_t window = NULL, own = NULL;
    size_t bytes = (size_t)(r->ranks + 1) * N * sizeof(float);
    float part[N], *data = NULL, *plain = NULL;
    char path[] = "/tmp/test_nccl.XXXXXX", line[256];
    unsetenv("NCCL_HOSTID");
    close(mkstemp(path));
    setenv("TRIREME_EMULATE_RECORD", path, 1);
    CHECK(r, !cudaSetDevice(r->rank));
    CHECK(r, !cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    config.commName = "windows";
    CHECK(r, !ncclCommInitRankConfig(&r->comm, r->ranks, the_id(r), r->rank, &config));
    CHECK(r, !ncclMemAlloc((void **)&data, bytes));
    CHECK(r, !cudaMalloc((void **)&plain, N * sizeof(float)));
    CHECK(r, !ncclCommWindowRegister(r->comm, plain, N * 4, &own, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(r, own == NULL); /* it is not NCCL's own */
    CHECK(r, !ncclCommWindowRegister(r->comm, data, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(r, window != NULL);
    for (int i = 0; i < N; i++)
        part[i] = (float)(r->rank * N + i);
    for (int in_place = 0; in_place < 2; in_place++) {
        float *from = data + (in_place ? r->rank : r->ranks) * N;
        CHECK(r, !cudaMemcpy(from, part, sizeof part, cudaMemcpyHostToDevice));
        CHECK(r, !ncclAllGather(from, data, N, ncclFloat, r->comm, r->stream));
        CHECK(r, are(r, data, (int64_t)N * r->ranks, 0, 1));
    }
    FILE *f = fopen(path, "r");
    int found = 0;
    while (f && fgets(line, sizeof line, f))
        found += strstr(line, "windows: all-gather by copy engines") != NULL;
    CHECK(r, f && !fclose(f) && found == 1);
    unlink(path);
    CHECK(r, !ncclCommWindowDeregister(r->comm, window));
    CHECK(r, ncclCommWindowDeregister(r->comm, window));
    CHECK(r, !ncclMemFree(data));
    CHECK(r, ncclMemFree(data));
    finish(r);
}

/* Without GPUs that reach each other a window is a registration.  Memory of one side of a message
 * alone, or of one rank of a collective, must not be registered. */
static void registered(struct rank *r)
{
    enum { N = 16, PARTS = MAX_RANKS + 1 };
    ncclResult_t state = ncclSuccess;
    ncclWindow_t window = NULL;
    void *handle = NULL;
    float *data = NULL;
    size_t bytes = PARTS * N * sizeof *data;
    int next = (r->rank + 1) % r->ranks, before = (r->rank + r->ranks - 1) % r->ranks;
    start(r);
    setenv("NCCL_P2P_DISABLE", "1", 1);
    CHECK(r, !cudaMalloc((void **)&data, bytes));
    CHECK(r, !ncclCommWindowRegister(r->comm, data, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(r, !ncclCommRegister(r->comm, data, bytes, &handle));
    CHECK(r, handle && handle == (void *)window);
    CHECK(r, !ncclCommDeregister(r->comm, handle));
    CHECK(r, !ncclAllGather(data, data + N, N, ncclFloat, r->comm, r->stream));
    CHECK(r, !cudaStreamSynchronize(r->stream)); /* all have it registered */
    CHECK(r, !ncclCommWindowDeregister(r->comm, window));
    CHECK(r, ncclCommDeregister(r->comm, handle));
    CHECK(r, !ncclAllGather(data, data + N, N, ncclFloat, r->comm, r->stream));
    CHECK(r, !cudaStreamSynchronize(r->stream));                           /* none */
    CHECK(r, !ncclCommRegister(r->comm, data, N * sizeof *data, &handle)); /* what is sent alone */
    CHECK(r, !ncclGroupStart());
    /* Calls may fail already, as another rank has found it. */
    ncclSend(data, N, ncclFloat, next, r->comm, r->stream);
    ncclRecv(data + N, N, ncclFloat, before, r->comm, r->stream);
    ncclGroupEnd();
    do
        CHECK(r, !ncclCommGetAsyncError(r->comm, &state));
    while (state == ncclSuccess);
    CHECK(r, state == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "registered"));
    meet(r);
    CHECK(r, !ncclCommAbort(r->comm));
    CHECK(r, !cudaStreamSynchronize(r->stream));
}

/* Symmetric means that all write at the same place of their windows. */
static void asymmetric(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclSuccess;
    ncclWindow_t window = NULL;
    float *data = NULL;
    unsetenv("NCCL_HOSTID");
    CHECK(r, !cudaSetDevice(r->rank));
    CHECK(r, !cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    CHECK(r, !ncclCommInitRankConfig(&r->comm, r->ranks, the_id(r), r->rank, &config));
    CHECK(r, !ncclMemAlloc((void **)&data, 4096));
    CHECK(r, !ncclCommWindowRegister(r->comm, data, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(r, !ncclAllGather(data + 512, data + 4 * r->rank, 8, ncclFloat, r->comm, r->stream));
    while (state == ncclSuccess && cudaStreamQuery(r->stream) == cudaErrorNotReady)
        CHECK(r, !ncclCommGetAsyncError(r->comm, &state));
    CHECK(r, state == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "window"));
    CHECK(r, cudaStreamQuery(r->stream) == cudaErrorNotReady);
    meet(r);
    CHECK(r, !ncclCommAbort(r->comm));
    CHECK(r, !cudaStreamSynchronize(r->stream));
}

static void at_ranks(int from, void (*body)(struct rank *))
{
    for (int ranks = from; ranks <= MAX_RANKS; ranks++)
        assert_int_equal(run(ranks, body), 0);
}

static void test_collectives(void **state)
{
    at_ranks(1, collectives);
}

static void test_rounding(void **state)
{
    assert_int_equal(run(3, rounding), 0);
}

static void test_messages(void **state)
{
    at_ranks(1, messages);
}

static void test_non_blocking(void **state)
{
    at_ranks(1, non_blocking);
}

static void test_splits(void **state)
{
    at_ranks(2, splits);
}

static void test_starts(void **state)
{
    assert_int_equal(run(2, starts), 0);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    assert_int_equal(run(2, starts), 0);
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

static void test_disagreement(void **state)
{
    assert_int_equal(run(3, disagreement), 0);
}

static void test_death(void **state)
{
    at_ranks(2, death);
}

static void test_desertion(void **state)
{
    at_ranks(2, desertion);
}

static void test_duplicate(void **state)
{
    at_ranks(2, duplicate);
}

static void test_refused(void **state)
{
    assert_int_equal(run(2, refused), 0);
}

static void test_registered(void **state)
{
    assert_int_equal(run(3, registered), 0);
}

static void test_windows(void **state)
{
    setenv("TRIREME_EMULATE_GPUS", "4", 1); /* of the processes that are forked */
    at_ranks(2, windows);
    assert_int_equal(run(2, asymmetric), 0);
    unsetenv("TRIREME_EMULATE_GPUS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_messages),    cmocka_unit_test(test_non_blocking),
        cmocka_unit_test(test_splits),      cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_death),       cmocka_unit_test(test_desertion),
        cmocka_unit_test(test_duplicate),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_windows),     cmocka_unit_test(test_starts),
        cmocka_unit_test(test_registered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
