/* test_cuda_sdpa.c - attention by cuDNN against the CPU and the own kernels, in slices, repeated
 * and recorded.
 *
 * Where no GPU is, its graphs are given to cuDNN with the properties of one: that they are well
 * formed and known to an engine shows there too.
 */
#include "ops_check.h"

#include <math.h>
#include <stdio.h>

#include "device/cuda/sdpa.h"
#include "device/cuda/sdpa_graph.h"
#include "device/cuda/state.h"

enum { SKIPPED = 77 };

static char no_gpu[128]; /* why, or "" */

struct gpu {
    struct device *d;
    struct mem mem;
};

/* The tensors of one attention in host memory. */
struct tensors {
    struct tensor qkv, dout, o, lse, dqkv;
};

static const struct attention shapes[] = {
    {DTYPE_BF16, 2, 128, 4, 4, 64, 0.125f},  {DTYPE_BF16, 1, 257, 4, 2, 128, 0.088f},
    {DTYPE_BF16, 3, 77, 6, 2, 64, 0.125f},   {DTYPE_BF16, 2, 64, 2, 1, 32, 0.177f},
    {DTYPE_BF16, 1, 300, 4, 4, 80, 0.112f},  {DTYPE_BF16, 1, 512, 8, 2, 128, 0.088f},
    {DTYPE_BF16, 2, 7, 3, 1, 64, 0.125f},    {DTYPE_BF16, 1, 129, 4, 1, 96, 0.102f},
    {DTYPE_BF16, 1, 192, 2, 2, 256, 0.063f}, {DTYPE_F16, 2, 128, 4, 4, 64, 0.125f},
    {DTYPE_F16, 1, 257, 4, 2, 128, 0.088f},  {DTYPE_F16, 3, 77, 6, 2, 64, 0.125f},
    {DTYPE_F16, 1, 300, 4, 4, 80, 0.112f},   {DTYPE_F16, 1, 129, 4, 1, 96, 0.102f},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void check(int status, const struct error *err)
{
    if (status)
        fail_msg("%s", err->text);
}

static struct gpu open_gpu(void)
{
    struct gpu gpu = {0};
    struct error err = {0};
    if (no_gpu[0])
        skip();
    check(device_open(&gpu.d, &(struct device_request){.kind = DEVICE_CUDA}, &err), &err);
    return gpu;
}

static void close_gpu(struct gpu *gpu)
{
    device_close(gpu->d);
    assert_int_equal(gpu->mem.blocks, 0);
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)t->elems * dtype_bytes(t->dt);
}

static void *alloc(struct gpu *gpu, size_t bytes)
{
    struct error err = {0};
    void *block = device_alloc(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, &err);
    check(block == NULL, &err);
    return block;
}

static void *on_gpu(struct gpu *gpu, const struct tensor *t)
{
    struct error err = {0};
    void *block = alloc(gpu, bytes_of(t));
    check(device_upload(gpu->d, block, t->data, bytes_of(t), &err), &err);
    return block;
}

static void off_gpu(struct gpu *gpu, const struct tensor *t, void *block)
{
    struct error err = {0};
    check(device_download(gpu->d, t->data, block, bytes_of(t), &err), &err);
    device_free(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes_of(t), block);
}

static struct tensors make_tensors(const struct attention *a)
{
    int64_t tokens = a->batch * a->seq, row = (a->heads + 2 * a->kv_heads) * a->head_dim;
    int64_t out = a->heads * a->head_dim;
    return (struct tensors){.qkv = tensor_random(a->dt, tokens * row, 1, 1),
                            .dout = tensor_random(a->dt, tokens * out, 2, 1),
                            .o = tensor_poisoned(a->dt, tokens * out),
                            .lse = tensor_poisoned(DTYPE_F32, tokens * a->heads),
                            .dqkv = tensor_poisoned(a->dt, tokens * row)};
}

static void free_tensors(struct tensors *t)
{
    tensor_free(&t->qkv);
    tensor_free(&t->dout);
    tensor_free(&t->o);
    tensor_free(&t->lse);
    tensor_free(&t->dqkv);
}

enum way { BY_CUDNN, BY_CUDNN_RECORDED, BY_OWN_KERNELS };

struct blocks {
    void *qkv, *dout, *o, *lse, *dqkv, *scratch;
    size_t scratch_bytes;
};

/* 1 when it was done this way, 0 when cuDNN is not for this. */
static int enqueue(struct device *d, const struct attention *a, enum way way,
                   const struct blocks *b)
{
    if (way == BY_OWN_KERNELS) {
        cuda_own_attention(d, a, b->o, b->lse, b->qkv, b->scratch);
        cuda_own_attention_backward(d, a, b->dqkv, b->dout, b->o, b->lse, b->qkv, b->scratch);
        return 1;
    }
    return cuda_sdpa_forward(d, a, b->o, b->lse, b->qkv, b->scratch, b->scratch_bytes) &&
           cuda_sdpa_backward(d, a, b->dqkv, b->dout, b->o, b->lse, b->qkv, b->scratch,
                              b->scratch_bytes);
}

static int enqueue_recorded(struct device *d, const struct attention *a, const struct blocks *b)
{
    struct error err = {0};
    enqueue(d, a, BY_CUDNN, b); /* plans and kernels are made at first use, not while recording */
    check(device_sync(d, &err), &err);
    check(device_record_begin(d, &err), &err);
    int done = enqueue(d, a, BY_CUDNN, b);
    struct device_recording *recording = device_record_end(d, &err);
    if (!recording && !done)
        return 0; /* nothing was recorded */
    check(recording == NULL, &err);
    for (int times = 0; times < 2; times++)
        check(device_replay(d, recording, &err), &err);
    check(device_sync(d, &err), &err);
    device_recording_destroy(d, recording);
    return done;
}

/* Forward and backward on the GPU into t; scratch is poisoned.  Returns what enqueue() does. */
static int run(struct gpu *gpu, const struct attention *a, enum way way, struct tensors *t)
{
    struct error err = {0};
    struct device *d = gpu->d;
    size_t forward = d->ops->attention_scratch(d, a, DEVICE_FORWARD),
           both = d->ops->attention_scratch(d, a, DEVICE_BACKWARD);
    struct blocks b = {on_gpu(gpu, &t->qkv), on_gpu(gpu, &t->dout), on_gpu(gpu, &t->o),
                       on_gpu(gpu, &t->lse), on_gpu(gpu, &t->dqkv)};
    b.scratch_bytes = both > forward ? both : forward;
    b.scratch = alloc(gpu, b.scratch_bytes);
    assert_int_equal(cudaMemsetAsync(b.scratch, 0xff, b.scratch_bytes, cuda_compute(d)), 0);
    int done = way == BY_CUDNN_RECORDED ? enqueue_recorded(d, a, &b) : enqueue(d, a, way, &b);
    check(device_sync(d, &err), &err);
    off_gpu(gpu, &t->qkv, b.qkv);
    off_gpu(gpu, &t->dout, b.dout);
    off_gpu(gpu, &t->o, b.o);
    off_gpu(gpu, &t->lse, b.lse);
    off_gpu(gpu, &t->dqkv, b.dqkv);
    device_free(d, &gpu->mem, POOL_WORKSPACE, b.scratch_bytes, b.scratch);
    return done;
}

static void run_on_cpu(const struct attention *a, struct tensors *t)
{
    struct device *d = open_device(NULL, 0);
    size_t forward = d->ops->attention_scratch(d, a, DEVICE_FORWARD),
           both = d->ops->attention_scratch(d, a, DEVICE_BACKWARD);
    size_t bytes = both > forward ? both : forward;
    struct tensor scratch = tensor_poisoned(DTYPE_F32, (int64_t)(bytes + 3) / 4);
    d->ops->attention(d, a, t->o.data, t->lse.data, t->qkv.data, scratch.data);
    d->ops->attention_backward(d, a, t->dqkv.data, t->dout.data, t->o.data, t->lse.data,
                               t->qkv.data, scratch.data);
    for (int64_t i = 0; i < t->lse.elems; i++) /* as GPUs have it */
        tensor_set(&t->lse, i, tensor_get(&t->lse, i) * a->scale);
    tensor_free(&scratch);
    device_close(d);
}

/* Close to what is wanted, by the size of all numbers, or of the `vector` numbers of one head and
 * token, where those are larger: what belongs to the first tokens, which all others see, is many
 * times the rest, and so are the terms that it is a sum of. */
static void close_to(const char *what, const struct tensor *got, const struct tensor *want,
                     int64_t vector, double tolerance)
{
    double all = 0;
    for (int64_t i = 0; i < want->elems; i++)
        all += pow(tensor_get(want, i), 2);
    assert_int_equal(want->elems % vector, 0);
    for (int64_t from = 0; from < want->elems; from += vector) {
        double here = 0;
        for (int64_t i = from; i < from + vector; i++)
            here += pow(tensor_get(want, i), 2);
        double size = sqrt(fmax(all / (double)want->elems, here / (double)vector));
        for (int64_t i = from; i < from + vector; i++) {
            double value = tensor_get(got, i), right = tensor_get(want, i);
            if (!(fabs(value - right) <= tolerance * (fabs(right) + size)))
                fail_msg("%s[%lld] of %lld (%s): got %.9g, want %.9g; numbers there are of size "
                         "%.3g",
                         what, (long long)i, (long long)want->elems, dtype_name(want->dt), value,
                         right, size);
        }
    }
}

/* Weights and gradients of scores are rounded to bf16, 2^-9 each, and sums of them again; cuDNN
 * rounds dk and dv of each query head before it adds those that share; the furthest of many
 * elements is some times as far from a sum in another order.  fp16 has three bits more. */
static void same_attention(const struct attention *a, const struct tensors *got,
                           const struct tensors *want)
{
    close_to("lse", &got->lse, &want->lse, 1, 1e-4);
    const double finer = got->o.dt == DTYPE_F16 ? 8 : 1;
    close_to("o", &got->o, &want->o, a->head_dim, 0.02 / finer);
    close_to("dqkv", &got->dqkv, &want->dqkv, a->head_dim, 0.04 / finer);
}

static int equal(const struct tensors *a, const struct tensors *b)
{
    return tensor_hash(&a->o) == tensor_hash(&b->o) &&
           tensor_hash(&a->lse) == tensor_hash(&b->lse) &&
           tensor_hash(&a->dqkv) == tensor_hash(&b->dqkv);
}

/* It may know no kernel for a shape; but one that it knows runs. */
static void not_used(struct gpu *gpu, const struct attention *a)
{
    struct device_attention met;
    device_attention(gpu->d, &met);
    if (strstr(met.why, "run:"))
        fail_msg("%s", met.why);
    printf("cuDNN is not in use for %lld x %lld, heads %lld/%lld of %lld: %s\n",
           (long long)a->batch, (long long)a->seq, (long long)a->heads, (long long)a->kv_heads,
           (long long)a->head_dim,
           met.why[0] ? met.why : cuda_sdpa_refusal(a, DEVICE_FORWARD, 91900));
}

/* Twice in the same memory with any_order: what one run added to dq is not there for the next. */
static void cudnn_and_the_cpu_agree(void **state)
{
    for (int i = 0; i < 2 * SHAPES; i++) {
        struct attention a = shapes[i / 2];
        a.any_order = i % 2;
        struct gpu gpu = open_gpu(); /* a new one, for its own reason */
        struct tensors got = make_tensors(&a), want = make_tensors(&a);
        run_on_cpu(&a, &want);
        if (run(&gpu, &a, a.any_order ? BY_CUDNN_RECORDED : BY_CUDNN, &got))
            same_attention(&a, &got, &want);
        else
            not_used(&gpu, &a);
        free_tensors(&got);
        free_tensors(&want);
        close_gpu(&gpu);
    }
}

static void own_kernels_and_the_cpu_agree(void **state)
{
    struct gpu gpu = open_gpu();
    for (int i = 0; i < SHAPES; i++) {
        if (shapes[i].head_dim > 128)
            continue;
        struct tensors got = make_tensors(&shapes[i]), want = make_tensors(&shapes[i]);
        run_on_cpu(&shapes[i], &want);
        run(&gpu, &shapes[i], BY_OWN_KERNELS, &got);
        same_attention(&shapes[i], &got, &want);
        free_tensors(&got);
        free_tensors(&want);
    }
    close_gpu(&gpu);
}

/* Plans that threads make are not met before they are run. */
static void begin_plans(struct gpu *gpu, const struct attention *a)
{
    struct device_attention met;
    device_attention_prepare(gpu->d, a, DEVICE_FORWARD);
    device_attention_prepare(gpu->d, a, DEVICE_BACKWARD);
    device_attention_prepare(gpu->d, a, DEVICE_BACKWARD); /* it was begun */
    device_attention(gpu->d, &met);
    assert_int_equal(met.by_library + met.by_own, 0);
}

/* By plans that were made where they were needed, and by such that were begun before. */
static void repeated_and_recorded_are_bitwise_equal(void **state)
{
    if (no_gpu[0])
        skip();
    for (int i = 0; i < SHAPES; i++) {
        struct tensors first = make_tensors(&shapes[i]);
        for (int round = 0; round < 4; round++) {
            struct gpu gpu = open_gpu();
            struct device_attention met;
            struct tensors again = make_tensors(&shapes[i]);
            enum way way = round % 2 ? BY_CUDNN_RECORDED : BY_CUDNN;
            if (round >= 2)
                begin_plans(&gpu, &shapes[i]);
            int used = run(&gpu, &shapes[i], way, round ? &again : &first);
            if (used && round && !equal(&first, &again))
                fail_msg("shape %d, round %d: other bits", i, round);
            device_attention(gpu.d, &met);
            assert_int_equal(met.from_text, met.by_library);
            free_tensors(&again);
            close_gpu(&gpu);
        }
        free_tensors(&first);
    }
}

/* So large that backward runs in slices: of sequences, of heads; and so that many blocks add up. */
static void large_ones_and_the_own_kernels_agree(void **state)
{
    static const struct attention large[] = {
        {DTYPE_BF16, 8, 2048, 16, 4, 64, 0.125f},
        {DTYPE_BF16, 2, 4096, 32, 8, 128, 0.088f},
        {DTYPE_F16, 8, 2048, 16, 4, 64, 0.125f},
        {DTYPE_BF16, 2, 4096, 32, 8, 128, 0.088f, .any_order = 1}};
    for (int i = 0; i < 4; i++) {
        struct gpu gpu = open_gpu();
        struct tensors got = make_tensors(&large[i]), want = make_tensors(&large[i]);
        struct tensors again = make_tensors(&large[i]);
        run(&gpu, &large[i], BY_OWN_KERNELS, &want);
        if (run(&gpu, &large[i], BY_CUDNN, &got)) {
            same_attention(&large[i], &got, &want);
            run(&gpu, &large[i], BY_CUDNN, &again);
            assert_true(large[i].any_order || equal(&got, &again));
        } else
            not_used(&gpu, &large[i]);
        free_tensors(&got);
        free_tensors(&want);
        free_tensors(&again);
        close_gpu(&gpu);
    }
}

/* A longer sequence runs in tiles; here a short one does. */
static void tiles_and_the_own_kernels_agree(void **state)
{
    static const struct {
        struct attention a;
        int64_t tokens;
    } row[] = {{{DTYPE_BF16, 2, 1024, 8, 2, 128, 0.088f}, 256},
               {{DTYPE_F16, 1, 768, 4, 4, 64, 0.125f}, 128}};
    for (int i = 0; i < 2; i++) {
        struct gpu gpu = open_gpu();
        struct tensors got = make_tensors(&row[i].a), want = make_tensors(&row[i].a);
        struct tensors again = make_tensors(&row[i].a);
        run(&gpu, &row[i].a, BY_OWN_KERNELS, &want);
        cuda_sdpa_set_tile_tokens(gpu.d, row[i].tokens);
        if (run(&gpu, &row[i].a, BY_CUDNN, &got)) {
            same_attention(&row[i].a, &got, &want);
            run(&gpu, &row[i].a, BY_CUDNN_RECORDED, &again);
            assert_true(equal(&got, &again));
        } else
            not_used(&gpu, &row[i].a);
        free_tensors(&got);
        free_tensors(&want);
        free_tensors(&again);
        close_gpu(&gpu);
    }
}

/* Set element 0 of the first `heads` of the slots of each row. */
static void set_first(const struct attention *a, struct tensor *rows, int64_t heads, float query,
                      float key)
{
    int64_t slots = a->heads + 2 * a->kv_heads;
    for (int64_t i = 0; i < a->batch * a->seq * slots; i++)
        if (i % slots < heads)
            tensor_set(rows, i * a->head_dim, i % slots < a->heads ? query : key);
}

/* All scores near -120, so that a key behind the last one, were it not masked, had a weight of
 * e^120; at 64, 192 and 1216 tokens, which leave 64 by 128, at others, and in tiles.  Elements 0 of
 * the gradients are terms of hundreds or cancel: left out, if they are finite. */
static void low_scores_and_the_cpu_agree(void **state)
{
    static const struct {
        struct attention a;
        int64_t tile;
    } row[] = {{{DTYPE_BF16, 2, 64, 4, 2, 64, 0.125f}},
               {{DTYPE_BF16, 1, 192, 4, 2, 128, 0.088f}},
               {{DTYPE_F16, 1, 192, 2, 2, 64, 0.125f}},
               {{DTYPE_BF16, 1, 1000, 2, 1, 128, 0.088f}},
               {{DTYPE_BF16, 1, 1216, 2, 1, 64, 0.125f}},
               {{DTYPE_BF16, 1, 1280, 2, 1, 64, 0.125f}},
               {{DTYPE_BF16, 1, 192, 4, 2, 128, 0.088f, .any_order = 1}},
               {{DTYPE_BF16, 1, 1024, 4, 2, 128, 0.088f}, 256}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const struct attention *a = &row[i].a;
        struct gpu gpu = open_gpu();
        struct tensors got = make_tensors(a), want = make_tensors(a);
        set_first(a, &got.qkv, a->heads + a->kv_heads, -120 / a->scale, 1);
        set_first(a, &want.qkv, a->heads + a->kv_heads, -120 / a->scale, 1);
        run_on_cpu(a, &want);
        cuda_sdpa_set_tile_tokens(gpu.d, row[i].tile);
        if (run(&gpu, a, BY_CUDNN, &got)) {
            for (int64_t e = 0; e < got.dqkv.elems; e++)
                assert_true(isfinite(tensor_get(&got.dqkv, e)));
            set_first(a, &got.dqkv, a->heads + a->kv_heads, 0, 0);
            set_first(a, &want.dqkv, a->heads + a->kv_heads, 0, 0);
            same_attention(a, &got, &want);
        } else
            not_used(&gpu, a);
        free_tensors(&got);
        free_tensors(&want);
        close_gpu(&gpu);
    }
}

static void what_is_not_for_cudnn_is_left(void **state)
{
    static const struct attention others[] = {{DTYPE_F32, 1, 64, 2, 2, 64, 0.125f},
                                              {DTYPE_BF16, 1, 64, 2, 2, 20, 0.125f},
                                              {DTYPE_BF16, 1, (1 << 20) + 7, 32, 1, 128, 0.1f}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(cuda_sdpa_scratch(&others[i], DEVICE_BACKWARD), 0);
    struct gpu gpu = open_gpu();
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            cuda_sdpa_backward(gpu.d, &others[i], NULL, NULL, NULL, NULL, NULL, NULL, 0), 0);
    struct device_attention met;
    device_attention(gpu.d, &met);
    if (met.has_library)
        assert_true(met.why[0] != 0);
    close_gpu(&gpu);
}

/* What is known of versions, and what they cannot do at all. */
static void versions_are_asked_for_what_they_do_right(void **state)
{
    static const struct {
        struct attention a;
        size_t version;
        int forward, backward; /* asked? */
    } row[] = {
        {{DTYPE_BF16, 1, 2048, 32, 8, 128, 0.1f}, 91900, 1, 1},
        {{DTYPE_BF16, 1, 2049, 32, 8, 128, 0.1f}, 91900, 1, 1},
        {{DTYPE_BF16, 1, 2048, 32, 8, 128, 0.1f}, 91500, 1, 1},
        {{DTYPE_BF16, 1, 2049, 32, 8, 128, 0.1f}, 91500, 1, 0},
        {{DTYPE_F16, 3, 77, 6, 2, 64, 0.1f}, 91002, 1, 0},
        {{DTYPE_F16, 3, 77, 6, 2, 64, 0.1f}, 91501, 1, 1},
        {{DTYPE_BF16, 1, 2048, 32, 8, 128, 0.1f}, 91001, 0, 0},
        {{DTYPE_BF16, 1, 16384, 32, 8, 128, 0.1f}, 91900, 1, 1},
        {{DTYPE_BF16, 1, 32768, 32, 8, 128, 0.1f}, 91900, 1, 1},
        {{DTYPE_BF16, 1, 20000, 32, 8, 128, 0.1f}, 91500, 1, 0},
        {{DTYPE_BF16, 1, 131072, 32, 8, 128, 0.1f}, 91500, 1, 1},
        {{DTYPE_BF16, 1, 65537, 32, 8, 128, 0.1f}, 91900, 1, 0},
        {{DTYPE_BF16, 1, 32768, 32, 8, 128, 0.1f, .any_order = 1}, 91900, 1, 1},
        {{DTYPE_BF16, 1, 131072, 32, 8, 128, 0.1f, .any_order = 1}, 91900, 1, 1},
        {{DTYPE_F32, 1, 2048, 32, 8, 128, 0.1f}, 91900, 0, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        assert_int_equal(!cuda_sdpa_refusal(&row[i].a, DEVICE_FORWARD, row[i].version),
                         row[i].forward);
        assert_int_equal(!cuda_sdpa_refusal(&row[i].a, DEVICE_BACKWARD, row[i].version),
                         row[i].backward);
    }
}

/* What cuDNN asks a GPU for, as an H200 answers. */
static const char h200[] =
    "{\"version\": 1, \"deviceName\": \"NVIDIA H200\", \"cudaDeviceId\": 0, \"deviceVer\": 900, "
    "\"driverVer\": 13000, \"totalGlobalMem\": 150754820096, "
    "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": 132, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, "
    "\"memClockRateKHz\": 3201000, \"l2CacheSize\": 62914560}";

/* Without a driver engines are named and cannot be loaded; any other failure is the graph's. */
static void check_graph(const struct attention *a, enum device_pass pass,
                        const struct sdpa_target *target)
{
    struct error err = {0};
    struct sdpa_plan plan;
    struct sdpa_slice slice = {a->batch, a->kv_heads, a->seq};
    if (!sdpa_plan_make(&plan, a, slice, pass, SDPA_CAUSAL, target, &err)) {
        assert_true(plan.workspace_bytes < cuda_sdpa_scratch(a, pass));
        sdpa_plan_drop(&plan);
    } else if (!strstr(err.text, "engine"))
        fail_msg("%s", err.text);
}

static void graphs_are_known_to_an_engine(void **state)
{
    struct sdpa_target target = {0};
    if (!no_gpu[0])
        skip(); /* the other tests run them */
    assert_int_equal(
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &target.properties),
        CUDNN_STATUS_SUCCESS);
    if (cudnnBackendSetAttribute(target.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, sizeof h200 - 1, h200) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendFinalize(target.properties) != CUDNN_STATUS_SUCCESS) {
        printf("skipped: this cuDNN describes GPUs in another way\n");
        cudnnBackendDestroyDescriptor(target.properties);
        skip();
    }
    for (int i = 0; i < 2 * SHAPES; i++)
        for (enum device_pass pass = DEVICE_FORWARD; pass <= DEVICE_BACKWARD; pass++) {
            struct attention a = shapes[i / 2];
            a.any_order = i % 2;
            check_graph(&a, pass, &target);
        }
    cudnnBackendDestroyDescriptor(target.properties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_asked_for_what_they_do_right),
        cmocka_unit_test(graphs_are_known_to_an_engine),
        cmocka_unit_test(what_is_not_for_cudnn_is_left),
        cmocka_unit_test(cudnn_and_the_cpu_agree),
        cmocka_unit_test(own_kernels_and_the_cpu_agree),
        cmocka_unit_test(repeated_and_recorded_are_bitwise_equal),
        cmocka_unit_test(large_ones_and_the_own_kernels_agree),
        cmocka_unit_test(tiles_and_the_own_kernels_agree),
        cmocka_unit_test(low_scores_and_the_cpu_agree),
    };
    if (device_gpu_count(no_gpu) > 0)
        no_gpu[0] = 0;
    else
        printf("what needs a GPU is skipped: %s\n", no_gpu);
    int failed = cmocka_run_group_tests_name("cuda sdpa", tests, NULL, NULL);
    return failed ? failed : no_gpu[0] ? SKIPPED : 0;
}
