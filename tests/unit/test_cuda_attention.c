/* test_cuda_attention.c - attention on the GPU against the CPU's.
 *
 * The launchers of the own kernels are called directly, as the op leaves to them only what the
 * library cannot do; the op is tried too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "device/cuda/state.h"
#include "graph/graph.h"

/* Both devices, for the whole program. */
struct rig {
    struct device *cpu, *gpu;
    struct mem mem;
    uint64_t seed, drawn;
};

/* A problem in host memory and what the CPU makes of it. */
struct problem {
    struct attention a;
    size_t qkv_bytes, out_bytes, lse_bytes;
    size_t kv_bytes; /* 0: keys and values are packed */
    void *qkv, *dout, *o, *dqkv, *kv, *dkv;
    float *lse;
    int32_t *documents; /* NULL: none are packed */
    size_t documents_bytes;
};

/* What the GPU makes of it. */
struct result {
    void *o, *dqkv, *dkv;
    float *lse;
};

enum path { OWN_KERNELS, OP };

static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
enum { TYPES = 3 };

static const int64_t lengths[] = {1, 3, 7, 17, 63, 64, 65, 129, 200};
static const int64_t groups[][2] = {{1, 1}, {3, 1}, {4, 2}, {8, 8}};
static const int64_t dims[] = {2, 6, 16, 34, 64, 80, 96, 128, 256};
enum { LENGTHS = 9, GROUPS = 4, DIMS = 9 };

/* Every length meets three head_dims, every head_dim three lengths and three groups. */
static const struct attention shapes[] = {
    {.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.batch = 2, .seq = 3, .heads = 3, .kv_heads = 1, .head_dim = 6},
    {.batch = 1, .seq = 7, .heads = 4, .kv_heads = 2, .head_dim = 16},
    {.batch = 3, .seq = 17, .heads = 8, .kv_heads = 8, .head_dim = 34},
    {.batch = 1, .seq = 63, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {.batch = 1, .seq = 64, .heads = 4, .kv_heads = 2, .head_dim = 80},
    {.batch = 2, .seq = 65, .heads = 1, .kv_heads = 1, .head_dim = 96},
    {.batch = 1, .seq = 129, .heads = 3, .kv_heads = 1, .head_dim = 128},
    {.batch = 1, .seq = 200, .heads = 1, .kv_heads = 1, .head_dim = 256},
    {.batch = 2, .seq = 200, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {.batch = 1, .seq = 129, .heads = 4, .kv_heads = 2, .head_dim = 34},
    {.batch = 1, .seq = 200, .heads = 4, .kv_heads = 2, .head_dim = 128},
    {.batch = 1, .seq = 129, .heads = 1, .kv_heads = 1, .head_dim = 96},
    {.batch = 5, .seq = 3, .heads = 8, .kv_heads = 8, .head_dim = 128},
    {.batch = 2, .seq = 1, .heads = 4, .kv_heads = 2, .head_dim = 64},
    {.batch = 2, .seq = 65, .heads = 4, .kv_heads = 2, .head_dim = 256},
    {.batch = 1, .seq = 65, .heads = 8, .kv_heads = 8, .head_dim = 16},
    {.batch = 2,
     .seq = 65,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 80,
     .forms = ATTENTION_SEPARATE,
     .kv_seq = 65},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- the rig ---- */

static void *device_bytes(struct rig *rig, const void *host, size_t bytes)
{
    struct error err = {0};
    void *block = device_alloc(rig->gpu, &rig->mem, POOL_WORKSPACE, bytes, &err);
    if (!block || (bytes && device_upload(rig->gpu, block, host, bytes, &err)))
        fail_msg("%s", err.text);
    return block;
}

static void *device_poisoned(struct rig *rig, size_t bytes)
{
    void *host = malloc(bytes + 1);
    memset(host, 0xff, bytes + 1); /* NaN in every type */
    void *block = device_bytes(rig, host, bytes);
    free(host);
    return block;
}

static void release(struct rig *rig, void *block, size_t bytes)
{
    device_free(rig->gpu, &rig->mem, POOL_WORKSPACE, bytes, block);
}

/* Download what a pass wrote, and free it. */
static void *take(struct rig *rig, void *block, size_t bytes)
{
    struct error err = {0};
    void *host = malloc(bytes);
    if (device_check(rig->gpu, &err) || device_download(rig->gpu, host, block, bytes, &err))
        fail_msg("%s", err.text);
    release(rig, block, bytes);
    return host;
}

/* ---- problems ---- */

static double value(enum dtype dt, const void *p, int64_t i)
{
    if (dt == DTYPE_BF16)
        return bf16_to_f32(((const bf16 *)p)[i]);
    return dt == DTYPE_F16 ? f16_to_f32(((const f16 *)p)[i]) : ((const float *)p)[i];
}

static void put(enum dtype dt, void *p, int64_t i, float x)
{
    if (dt == DTYPE_BF16)
        ((bf16 *)p)[i] = f32_to_bf16(x);
    else if (dt == DTYPE_F16)
        ((f16 *)p)[i] = f32_to_f16(x);
    else
        ((float *)p)[i] = x;
}

static void *random_elems(struct rig *rig, enum dtype dt, size_t bytes)
{
    int64_t elems = (int64_t)(bytes / dtype_bytes(dt));
    void *p = malloc(bytes);
    for (int64_t i = 0; i < elems; i++)
        put(dt, p, i, philox_normal(rig->seed, rig->drawn++));
    return p;
}

/* Of each query the first key of its document: documents of 1 to some forty keys. */
static void draw_documents(struct rig *rig, struct problem *p)
{
    const struct attention *a = &p->a;
    int64_t keys = attention_keys(a);
    int32_t *first = malloc((size_t)keys * sizeof *first);
    p->documents_bytes = (size_t)(a->batch * a->seq) * sizeof *p->documents;
    p->documents = malloc(p->documents_bytes);
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t k = 0; k < keys; k++)
            first[k] =
                k && philox_u64(rig->seed, rig->drawn++) % 23 ? first[k - 1] : (int32_t)k;
        for (int64_t r = 0; r < a->seq; r++)
            p->documents[b * a->seq + r] = first[sequence_position(&a->part, r)];
    }
    p->a.documents = p->documents;
    free(first);
}

static struct problem problem_make(struct rig *rig, const struct attention *shape, enum dtype dt)
{
    struct problem p = {.a = *shape};
    struct attention *a = &p.a;
    size_t positions = (size_t)(a->batch * a->seq), head = (size_t)a->head_dim * dtype_bytes(dt);
    a->dt = dt;
    if (a->scale == 0)
        a->scale = 1 / sqrtf((float)a->head_dim);
    int is_apart = !!(a->forms & ATTENTION_SEPARATE);
    p.qkv_bytes = positions * (size_t)(a->heads + (is_apart ? 0 : 2 * a->kv_heads)) * head;
    p.kv_bytes = is_apart ? (size_t)(a->batch * a->kv_seq * 2 * a->kv_heads) * head : 0;
    p.out_bytes = positions * (size_t)a->heads * head;
    p.lse_bytes = positions * (size_t)a->heads * sizeof(float);
    p.qkv = random_elems(rig, dt, p.qkv_bytes);
    p.dout = random_elems(rig, dt, p.out_bytes);
    p.o = malloc(p.out_bytes);
    p.lse = malloc(p.lse_bytes);
    p.dqkv = malloc(p.qkv_bytes);
    p.kv = random_elems(rig, dt, p.kv_bytes);
    p.dkv = malloc(p.kv_bytes + 1);
    a->kv = p.kv;
    a->dkv = p.dkv;
    if (a->forms & ATTENTION_DOCUMENTS)
        draw_documents(rig, &p);
    return p;
}

static void problem_solve(struct rig *rig, struct problem *p)
{
    const struct device_ops *ops = rig->cpu->ops;
    void *scratch[2];
    for (enum device_pass pass = DEVICE_FORWARD; pass <= DEVICE_BACKWARD; pass++) {
        size_t bytes = ops->attention_scratch(rig->cpu, &p->a, pass);
        scratch[pass] = aligned_alloc(64, (bytes + 64) / 64 * 64);
    }
    ops->attention(rig->cpu, &p->a, p->o, p->lse, p->qkv, scratch[0]);
    ops->attention_backward(rig->cpu, &p->a, p->dqkv, p->dout, p->o, p->lse, p->qkv, scratch[1]);
    for (size_t i = 0; i < p->lse_bytes / sizeof(float); i++) /* as GPUs have it */
        p->lse[i] *= p->a.scale;
    free(scratch[0]);
    free(scratch[1]);
}

static void problem_free(struct problem *p)
{
    free(p->qkv);
    free(p->dout);
    free(p->o);
    free(p->lse);
    free(p->dqkv);
    free(p->kv);
    free(p->dkv);
    free(p->documents);
}

static size_t scratch_bytes(struct rig *rig, const struct attention *a, enum path path,
                            enum device_pass pass)
{
    return path == OP ? rig->gpu->ops->attention_scratch(rig->gpu, a, pass)
                      : cuda_own_attention_scratch(a, pass);
}

static void forward(struct rig *rig, const struct problem *p, enum path path, struct result *r)
{
    size_t bytes = scratch_bytes(rig, &p->a, path, DEVICE_FORWARD);
    void *scratch = device_poisoned(rig, bytes), *qkv = device_bytes(rig, p->qkv, p->qkv_bytes);
    void *o = device_poisoned(rig, p->out_bytes), *lse = device_poisoned(rig, p->lse_bytes);
    void *kv = device_bytes(rig, p->kv, p->kv_bytes);
    void *documents = device_bytes(rig, p->documents, p->documents_bytes);
    struct attention a = p->a;
    a.kv = kv;
    a.documents = documents;
    if (path == OP)
        rig->gpu->ops->attention(rig->gpu, &a, o, lse, qkv, scratch);
    else
        cuda_own_attention(rig->gpu, &a, o, lse, qkv, scratch);
    release(rig, documents, p->documents_bytes);
    release(rig, kv, p->kv_bytes);
    r->o = take(rig, o, p->out_bytes);
    r->lse = take(rig, lse, p->lse_bytes);
    release(rig, qkv, p->qkv_bytes);
    release(rig, scratch, bytes);
}

/* From what the CPU's forward pass left, so that differences do not add up. */
static void backward(struct rig *rig, const struct problem *p, enum path path, struct result *r)
{
    size_t bytes = scratch_bytes(rig, &p->a, path, DEVICE_BACKWARD);
    void *scratch = device_poisoned(rig, bytes), *qkv = device_bytes(rig, p->qkv, p->qkv_bytes);
    void *o = device_bytes(rig, p->o, p->out_bytes), *lse = device_bytes(rig, p->lse, p->lse_bytes);
    void *dout = device_bytes(rig, p->dout, p->out_bytes);
    void *dqkv = device_poisoned(rig, p->qkv_bytes);
    void *kv = device_bytes(rig, p->kv, p->kv_bytes), *dkv = device_poisoned(rig, p->kv_bytes);
    void *documents = device_bytes(rig, p->documents, p->documents_bytes);
    struct attention a = p->a;
    a.kv = kv;
    a.dkv = dkv;
    a.documents = documents;
    if (path == OP)
        rig->gpu->ops->attention_backward(rig->gpu, &a, dqkv, dout, o, lse, qkv, scratch);
    else
        cuda_own_attention_backward(rig->gpu, &a, dqkv, dout, o, lse, qkv, scratch);
    r->dqkv = take(rig, dqkv, p->qkv_bytes);
    r->dkv = take(rig, dkv, p->kv_bytes);
    release(rig, documents, p->documents_bytes);
    release(rig, kv, p->kv_bytes);
    release(rig, dout, p->out_bytes);
    release(rig, lse, p->lse_bytes);
    release(rig, o, p->out_bytes);
    release(rig, qkv, p->qkv_bytes);
    release(rig, scratch, bytes);
}

static struct result solve(struct rig *rig, const struct problem *p, enum path path)
{
    struct result r;
    forward(rig, p, path, &r);
    backward(rig, p, path, &r);
    return r;
}

static void result_free(struct result *r)
{
    free(r->o);
    free(r->lse);
    free(r->dqkv);
    free(r->dkv);
}

/* ---- comparing ---- */

/* How far results may be from the CPU's: all of a tensor by its norm, and each element by the
 * root mean squares of the tensor and of its row, as gradients of early keys are larger.  fp32:
 * sums of some hundred rounded products in another order.  bf16: results are rounded to 2^-9 of
 * themselves on either side, weights and their gradients before they are summed; of a hundred
 * thousand such sums the worst are five deviations off.  fp16 rounds to 2^-12, an eighth. */
struct tolerance {
    double norm, element;
};

static const struct tolerance tolerances[] = {
    [DTYPE_F32] = {5e-6, 3e-5},
    [DTYPE_BF16] = {1e-2, 4e-2},
    [DTYPE_F16] = {1.25e-3, 5e-3},
};

/* Adds the squares of what is wanted and of the difference, and returns the largest difference. */
static double compare_row(enum dtype dt, const void *got, const void *want, int64_t begin,
                          int64_t end, double *square, double *wrong)
{
    double worst = 0;
    for (int64_t i = begin; i < end; i++) {
        double x = value(dt, want, i), d = fabs(value(dt, got, i) - x);
        *square += x * x;
        *wrong += d * d;
        worst = d <= worst ? worst : d; /* NaN becomes the worst */
    }
    return worst;
}

/* Of the elements [rows][row], `each` rows of a sequence, the columns [begin, end). */
static void assert_rows_close(const char *what, const struct problem *p, enum dtype dt,
                              const void *got, const void *want, int64_t each, int64_t row,
                              int64_t begin, int64_t end, struct tolerance most)
{
    const struct attention *a = &p->a;
    int64_t rows = a->batch * each, cols = end - begin;
    double square = 0, wrong = 0, worst = 0, size;
    for (int64_t i = 0; i < rows; i++)
        compare_row(dt, got, want, i * row + begin, i * row + end, &square, &wrong);
    size = sqrt(square / (double)(rows * cols));
    if (a->seq == 1)
        size = fmax(size, 1); /* gradients of the scores are 0, and only rounding is left */
    wrong = sqrt(wrong / (double)(rows * cols)) / size;
    for (int64_t i = 0; i < rows; i++) {
        double of_row = 0, unused = 0;
        double d = compare_row(dt, got, want, i * row + begin, i * row + end, &of_row, &unused);
        d /= size + sqrt(of_row / (double)cols);
        worst = d <= worst ? worst : d;
    }
    if (!(wrong <= most.norm && worst <= most.element))
        fail_msg("%s: off by %g, an element by %g (%s, batch %d, seq %d, heads %d/%d, dim %d)",
                 what, wrong, worst, dtype_name(a->dt), (int)a->batch, (int)a->seq, (int)a->heads,
                 (int)a->kv_heads, (int)a->head_dim);
}

static void assert_close(const char *what, const struct problem *p, enum dtype dt, const void *got,
                         const void *want, int64_t row, int64_t begin, int64_t end,
                         struct tolerance most)
{
    assert_rows_close(what, p, dt, got, want, p->a.seq, row, begin, end, most);
}

static void assert_result(const struct problem *p, const struct result *r)
{
    const struct attention *a = &p->a;
    const struct tolerance most = tolerances[a->dt], exact = tolerances[DTYPE_F32];
    int64_t q = a->heads * a->head_dim, k = q + a->kv_heads * a->head_dim, row = 2 * k - q;
    assert_close("o", p, a->dt, r->o, p->o, q, 0, q, most);
    assert_close("lse", p, DTYPE_F32, r->lse, p->lse, a->heads, 0, a->heads, exact);
    if (p->kv_bytes) {
        int64_t keys = k - q;
        assert_close("dq", p, a->dt, r->dqkv, p->dqkv, q, 0, q, most);
        assert_rows_close("dk", p, a->dt, r->dkv, p->dkv, a->kv_seq, 2 * keys, 0, keys, most);
        assert_rows_close("dv", p, a->dt, r->dkv, p->dkv, a->kv_seq, 2 * keys, keys, 2 * keys,
                          most);
        return;
    }
    assert_close("dq", p, a->dt, r->dqkv, p->dqkv, row, 0, q, most);
    assert_close("dk", p, a->dt, r->dqkv, p->dqkv, row, q, k, most);
    assert_close("dv", p, a->dt, r->dqkv, p->dqkv, row, k, row, most);
}

static void check(struct rig *rig, const struct attention *shape, enum dtype dt, enum path path)
{
    struct problem p = problem_make(rig, shape, dt);
    problem_solve(rig, &p);
    struct result r = solve(rig, &p, path);
    assert_result(&p, &r);
    result_free(&r);
    problem_free(&p);
}

/* ---- tests ---- */

static void agrees_with_the_cpu(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++)
            check(*state, &shapes[i], types[j], OWN_KERNELS);
}

static void the_op_agrees_with_the_cpu(void **state)
{
    for (int i = 1; i < SHAPES; i += 5)
        for (int j = 0; j < TYPES; j++)
            check(*state, &shapes[i], types[j], OP);
}

static void agrees_on_drawn_shapes(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 8; i++) {
        uint64_t draw = philox_u64(rig->seed + 1, (uint64_t)i);
        const int64_t *group = groups[draw / 100 % GROUPS];
        struct attention a = {.batch = 1 + (int64_t)(draw / 10000 % 2),
                              .seq = lengths[draw % LENGTHS],
                              .heads = group[0],
                              .kv_heads = group[1],
                              .head_dim = dims[draw / 1000 % DIMS]};
        check(rig, &a, types[draw / 100000 % TYPES], OWN_KERNELS);
    }
}

/* Own rows of sequences that ranks share, with every tile of the kernels; some keys nobody sees. */
static void parts_agree_with_the_cpu(void **state)
{
    static const struct {
        int shape, ranks, rank;
        int64_t chunk;
    } parts[] = {{1, 2, 0, 3},  {9, 2, 1, 65},  {11, 3, 1, 64}, {10, 3, 2, 33},
                 {8, 3, 1, 20}, {12, 2, 0, 17}, {5, 2, 1, 1}};
    for (size_t i = 0; i < TYPES * sizeof parts / sizeof parts[0]; i++) {
        struct attention a = shapes[parts[i / TYPES].shape];
        struct graph_group group = {.size = parts[i / TYPES].ranks, .rank = parts[i / TYPES].rank};
        a.seq = 2 * parts[i / TYPES].chunk;
        a.kv_seq = a.seq * group.size;
        a.forms = ATTENTION_SEPARATE | ATTENTION_PART;
        a.part = graph_sequence_part(a.seq, group);
        check(*state, &a, types[i % TYPES], OWN_KERNELS);
        check(*state, &a, types[i % TYPES], OP);
    }
}

/* Packed documents, in whole sequences and in parts of them, with every tile of the kernels. */
static void documents_agree_with_the_cpu(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++) {
            struct attention a = shapes[i];
            a.forms |= ATTENTION_DOCUMENTS;
            check(*state, &a, types[j], OWN_KERNELS);
            if (i % 5 == 0)
                check(*state, &a, types[j], OP);
        }
    for (int i = 5; i < 10; i++)
        for (int rank = 0; rank < 2; rank++) {
            struct attention a = shapes[i];
            a.seq = 66;
            a.kv_seq = 132;
            a.forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_DOCUMENTS;
            a.part = graph_sequence_part(a.seq, (struct graph_group){.size = 2, .rank = rank});
            check(*state, &a, types[i % TYPES], OWN_KERNELS);
        }
}

/* What a query gives and gets does not depend, by a single bit, on documents that it is not of. */
static void documents_do_not_see_each_other(void **state)
{
    enum { CUT = 71 };
    for (int j = 0; j < TYPES; j++) {
        struct attention a = shapes[9]; /* 200 rows */
        a.forms |= ATTENTION_DOCUMENTS;
        struct problem p = problem_make(*state, &a, types[j]);
        size_t row = p.qkv_bytes / (size_t)(a.batch * a.seq);
        size_t out = p.out_bytes / (size_t)(a.batch * a.seq);
        for (int64_t r = 0; r < a.batch * a.seq; r++)
            p.documents[r] = r % a.seq < CUT ? 0 : CUT;
        struct result one = solve(*state, &p, OWN_KERNELS);
        for (int64_t b = 0; b < a.batch; b++)
            for (size_t i = 0; i < CUT * row / dtype_bytes(types[j]); i++)
                put(types[j], (char *)p.qkv + (size_t)(b * a.seq) * row, (int64_t)i, 900);
        struct result two = solve(*state, &p, OWN_KERNELS);
        for (int64_t b = 0; b < a.batch; b++) {
            size_t first = (size_t)(b * a.seq + CUT), rows = (size_t)(a.seq - CUT);
            assert_memory_equal((char *)one.o + first * out, (char *)two.o + first * out,
                                rows * out);
            assert_memory_equal((char *)one.dqkv + first * row, (char *)two.dqkv + first * row,
                                rows * row);
            assert_memory_not_equal((char *)one.o + (first - CUT) * out,
                                    (char *)two.o + (first - CUT) * out, CUT * out);
        }
        result_free(&one);
        result_free(&two);
        problem_free(&p);
    }
}

/* More heads than a grid has rows, more keys than a cache holds, and long sequences. */
static void large_problems_agree_with_the_cpu(void **state)
{
    static const struct attention large[] = {
        {.batch = 9001, .seq = 5, .heads = 8, .kv_heads = 8, .head_dim = 64},
        {.batch = 2, .seq = 1021, .heads = 8, .kv_heads = 2, .head_dim = 128},
        {.batch = 16, .seq = 2048, .heads = 6, .kv_heads = 3, .head_dim = 96},
    };
    struct device_gpu gpu;
    struct error err = {0};
    if (device_gpu_describe(0, &gpu, &err) || strcmp(gpu.name, "emulated") == 0) {
        print_message("skipped: large problems need a real GPU\n");
        skip();
    }
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        for (int j = 0; j < TYPES; j++)
            check(*state, &large[i], types[j], OWN_KERNELS);
}

/* Every dimension of the tiles, and a head_dim between them. */
static void two_runs_are_alike(void **state)
{
    struct rig *rig = *state;
    for (int i = 3 * TYPES; i < 10 * TYPES; i++) {
        const enum dtype dt = types[i % TYPES];
        struct problem p = problem_make(rig, &shapes[i / TYPES], dt);
        problem_solve(rig, &p);
        struct result one = solve(rig, &p, OWN_KERNELS), two = solve(rig, &p, OWN_KERNELS);
        assert_memory_equal(one.o, two.o, p.out_bytes);
        assert_memory_equal(one.lse, two.lse, p.lse_bytes);
        assert_memory_equal(one.dqkv, two.dqkv, p.qkv_bytes);
        result_free(&one);
        result_free(&two);
        problem_free(&p);
    }
}

/* Scores of thousands of either sign: one key takes nearly all, and nothing overflows.  Scores
 * differ by 1e-6 of themselves from the CPU's, weights thus by a hundredth. */
static void large_scores_stay_finite(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < TYPES; i++) {
        const enum dtype dt = types[i];
        struct attention a = {
            .batch = 1, .seq = 129, .heads = 3, .kv_heads = 1, .head_dim = 128, .scale = 300};
        const struct tolerance loose = {2e-2, 5e-2}, exact = tolerances[DTYPE_F32];
        struct problem p = problem_make(rig, &a, dt);
        problem_solve(rig, &p);
        struct result r = solve(rig, &p, OWN_KERNELS);
        int64_t q = a.heads * a.head_dim, elems = (int64_t)(p.qkv_bytes / dtype_bytes(dt));
        assert_close("o", &p, dt, r.o, p.o, q, 0, q, loose);
        assert_close("lse", &p, DTYPE_F32, r.lse, p.lse, a.heads, 0, a.heads, exact);
        for (int64_t e = 0; e < elems; e++)
            assert_true(isfinite(value(dt, r.dqkv, e)));
        result_free(&r);
        problem_free(&p);
    }
}

/* Rows after `cut` change: nothing up to it may, not by one bit. */
static void the_future_is_not_seen(void **state)
{
    struct rig *rig = *state;
    const struct attention a = {.batch = 1, .seq = 129, .heads = 3, .kv_heads = 1, .head_dim = 64};
    for (int i = 0; i < TYPES; i++) {
        const enum dtype dt = types[i];
        struct problem p = problem_make(rig, &a, dt);
        int64_t row = (a.heads + 2 * a.kv_heads) * a.head_dim, cut = 70;
        struct result before, after;
        forward(rig, &p, OWN_KERNELS, &before);
        for (int64_t e = cut * row; e < a.seq * row; e++)
            put(dt, p.qkv, e, 30 * philox_normal(rig->seed, rig->drawn++));
        forward(rig, &p, OWN_KERNELS, &after);
        size_t kept = (size_t)(cut * a.heads * a.head_dim) * dtype_bytes(dt);
        assert_memory_equal(before.o, after.o, kept);
        assert_memory_not_equal((char *)before.o + kept, (char *)after.o + kept, 64);
        assert_memory_equal(before.lse, after.lse, (size_t)cut * sizeof(float));
        before.dqkv = after.dqkv = before.dkv = after.dkv = NULL;
        result_free(&before);
        result_free(&after);
        problem_free(&p);
    }
}

/* A diverged run must show: NaN in a query is NaN in its output, lse and gradient, and in no
 * other head's output. */
static void nan_is_not_hidden(void **state)
{
    struct rig *rig = *state;
    const struct attention a = {.batch = 1, .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 64};
    for (int i = 0; i < TYPES; i++) {
        const enum dtype dt = types[i];
        struct problem p = problem_make(rig, &a, dt);
        put(dt, p.qkv, (40 * 4 + 1) * 64 + 5, NAN); /* position 40, head 1 */
        problem_solve(rig, &p);
        struct result r = solve(rig, &p, OWN_KERNELS);
        assert_true(isnan(value(dt, r.o, (40 * 2 + 1) * 64)));
        assert_true(isnan(r.lse[a.seq + 40]));
        assert_true(isnan(value(dt, r.dqkv, (40 * 4 + 1) * 64)));
        assert_false(isnan(value(dt, r.o, 40 * 2 * 64)));
        assert_false(isnan(value(dt, r.o, (41 * 2 + 1) * 64)));
        result_free(&r);
        problem_free(&p);
    }
}

/* Scores to 1e9: the gradients of values, which one key of each query has, are still the CPU's
 * where weights are fp32; nothing overflows in any type but fp16's gradients of queries and keys,
 * rounding errors times a scale that is beyond its range: infinity, as ops.h says. */
static void huge_scores_stay_finite(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < TYPES; i++) {
        struct attention a = {.batch = 1, .seq = 97, .heads = 2, .kv_heads = 1, .head_dim = 64};
        const enum dtype dt = types[i];
        struct problem p = problem_make(rig, &a, dt);
        p.a.scale = 2e7f;
        problem_solve(rig, &p);
        struct result r;
        forward(rig, &p, OWN_KERNELS, &r);
        struct problem own_results = p; /* the CPU's scores differ by more than 1 */
        own_results.o = r.o;
        own_results.lse = r.lse;
        backward(rig, &own_results, OWN_KERNELS, &r);
        for (int64_t e = 0; e < a.seq * 2 * 64; e++)
            assert_true(isfinite(value(dt, r.o, e)));
        for (int64_t e = 0; e < a.seq * 4 * 64; e++)
            if (dt != DTYPE_F16 || e / 64 % 4 == 3)
                assert_true(isfinite(value(dt, r.dqkv, e)));
            else
                assert_false(isnan(value(dt, r.dqkv, e)));
        if (dt == DTYPE_F32)
            assert_close("o", &p, dt, r.o, p.o, 2, 0, 2, tolerances[dt]);
        result_free(&r);
        problem_free(&p);
    }
}

static int rig_open(void **state)
{
    static struct rig rig; /* as cmocka's state outlives this function */
    struct error err = {0};
    struct device_request cpu = {.kind = DEVICE_CPU, .threads = 0};
    struct device_request gpu = {.kind = DEVICE_CUDA};
    const char *seed = getenv("TRIREME_TEST_SEED");
    char why[128];
    if (!device_gpu_count(why)) {
        print_message("skipped: no GPU: %s\n", why);
        exit(77);
    }
    rig.seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    print_message("TRIREME_TEST_SEED=%llu\n", (unsigned long long)rig.seed);
    if (device_open(&rig.cpu, &cpu, &err) || device_open(&rig.gpu, &gpu, &err)) {
        print_error("%s\n", err.text);
        return -1;
    }
    *state = &rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;
    int64_t left = rig->mem.blocks;
    device_close(rig->gpu);
    device_close(rig->cpu);
    return left ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_cpu),
        cmocka_unit_test(the_op_agrees_with_the_cpu),
        cmocka_unit_test(agrees_on_drawn_shapes),
        cmocka_unit_test(parts_agree_with_the_cpu),
        cmocka_unit_test(documents_agree_with_the_cpu),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(large_problems_agree_with_the_cpu),
        cmocka_unit_test(two_runs_are_alike),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(the_future_is_not_seen),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(huge_scores_stay_finite),
    };
    return cmocka_run_group_tests_name("CUDA attention", tests, rig_open, rig_close);
}
