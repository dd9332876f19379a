/* cuda_attention_check.c - see cuda_attention_check.h. */
#include "tests/unit/cuda_attention_check.h"

#include <time.h>

const enum dtype types[TYPES] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* Every length meets three head_dims, every head_dim three lengths and three groups. */
const struct attention shapes[SHAPES] = {
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

double value(enum dtype dt, const void *p, int64_t i)
{
    if (dt == DTYPE_BF16)
        return bf16_to_f32(((const bf16 *)p)[i]);
    return dt == DTYPE_F16 ? f16_to_f32(((const f16 *)p)[i]) : ((const float *)p)[i];
}

void put(enum dtype dt, void *p, int64_t i, float x)
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
            first[k] = k && philox_u64(rig->seed, rig->drawn++) % 23 ? first[k - 1] : (int32_t)k;
        for (int64_t r = 0; r < a->seq; r++)
            p->documents[b * a->seq + r] = first[sequence_position(&a->part, r)];
    }
    p->a.documents = p->documents;
    free(first);
}

/* A quarter of the weights is dropped, of any samples. */
static void draw_samples(struct rig *rig, struct problem *p)
{
    p->samples_bytes = (size_t)(2 * p->a.batch) * sizeof *p->samples;
    p->samples = malloc(p->samples_bytes);
    for (int64_t i = 0; i < 2 * p->a.batch; i++)
        p->samples[i] = (uint32_t)(philox_u64(rig->seed, rig->drawn++) >> (i % 2 ? 48 : 32));
    p->a.dropout = dropout_mask_of(0.25);
    p->a.dropout.key = philox_u64(rig->seed, rig->drawn++);
    p->a.dropout.samples = p->samples;
}

struct problem problem_make(struct rig *rig, const struct attention *shape, enum dtype dt)
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
    if (a->forms & ATTENTION_DROPOUT)
        draw_samples(rig, &p);
    return p;
}

void problem_solve(struct rig *rig, struct problem *p)
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

void problem_free(struct problem *p)
{
    free(p->qkv);
    free(p->dout);
    free(p->o);
    free(p->lse);
    free(p->dqkv);
    free(p->kv);
    free(p->dkv);
    free(p->documents);
    free(p->samples);
}

static size_t scratch_bytes(struct rig *rig, const struct attention *a, enum path path,
                            enum device_pass pass)
{
    return path == OP ? rig->gpu->ops->attention_scratch(rig->gpu, a, pass)
                      : cuda_own_attention_scratch(a, pass);
}

void forward(struct rig *rig, const struct problem *p, enum path path, struct result *r)
{
    size_t bytes = scratch_bytes(rig, &p->a, path, DEVICE_FORWARD);
    void *scratch = device_poisoned(rig, bytes), *qkv = device_bytes(rig, p->qkv, p->qkv_bytes);
    void *o = device_poisoned(rig, p->out_bytes), *lse = device_poisoned(rig, p->lse_bytes);
    void *kv = device_bytes(rig, p->kv, p->kv_bytes);
    void *documents = device_bytes(rig, p->documents, p->documents_bytes);
    void *samples = device_bytes(rig, p->samples, p->samples_bytes);
    struct attention a = p->a;
    a.kv = kv;
    a.documents = documents;
    a.dropout.samples = samples;
    if (path == OP)
        rig->gpu->ops->attention(rig->gpu, &a, o, lse, qkv, scratch);
    else
        cuda_own_attention(rig->gpu, &a, o, lse, qkv, scratch);
    release(rig, documents, p->documents_bytes);
    release(rig, samples, p->samples_bytes);
    release(rig, kv, p->kv_bytes);
    r->o = take(rig, o, p->out_bytes);
    r->lse = take(rig, lse, p->lse_bytes);
    release(rig, qkv, p->qkv_bytes);
    release(rig, scratch, bytes);
}

/* From what the CPU's forward pass left, so that differences do not add up. */
void backward(struct rig *rig, const struct problem *p, enum path path, struct result *r)
{
    size_t bytes = scratch_bytes(rig, &p->a, path, DEVICE_BACKWARD);
    void *scratch = device_poisoned(rig, bytes), *qkv = device_bytes(rig, p->qkv, p->qkv_bytes);
    void *o = device_bytes(rig, p->o, p->out_bytes), *lse = device_bytes(rig, p->lse, p->lse_bytes);
    void *dout = device_bytes(rig, p->dout, p->out_bytes);
    void *dqkv = device_poisoned(rig, p->qkv_bytes);
    void *kv = device_bytes(rig, p->kv, p->kv_bytes), *dkv = device_poisoned(rig, p->kv_bytes);
    void *documents = device_bytes(rig, p->documents, p->documents_bytes);
    void *samples = device_bytes(rig, p->samples, p->samples_bytes);
    struct attention a = p->a;
    a.kv = kv;
    a.dkv = dkv;
    a.documents = documents;
    a.dropout.samples = samples;
    if (path == OP)
        rig->gpu->ops->attention_backward(rig->gpu, &a, dqkv, dout, o, lse, qkv, scratch);
    else
        cuda_own_attention_backward(rig->gpu, &a, dqkv, dout, o, lse, qkv, scratch);
    r->dqkv = take(rig, dqkv, p->qkv_bytes);
    r->dkv = take(rig, dkv, p->kv_bytes);
    release(rig, documents, p->documents_bytes);
    release(rig, samples, p->samples_bytes);
    release(rig, kv, p->kv_bytes);
    release(rig, dout, p->out_bytes);
    release(rig, lse, p->lse_bytes);
    release(rig, o, p->out_bytes);
    release(rig, qkv, p->qkv_bytes);
    release(rig, scratch, bytes);
}

struct result solve(struct rig *rig, const struct problem *p, enum path path)
{
    struct result r;
    forward(rig, p, path, &r);
    backward(rig, p, path, &r);
    return r;
}

void result_free(struct result *r)
{
    free(r->o);
    free(r->lse);
    free(r->dqkv);
    free(r->dkv);
}

/* ---- comparing ---- */

const struct tolerance tolerances[] = {
    [DTYPE_F32] = {5e-6, 3e-5},
    [DTYPE_BF16] = {1e-2, 4e-2},
    [DTYPE_F16] = {1.25e-3, 5e-3},
};

/* From x to the next number of a format.  Two sums that are as near to one another as may be, on
 * either side of the middle between two numbers, are rounded to both. */
static double spacing(enum dtype dt, double x)
{
    static const int bits[] = {[DTYPE_F32] = 24, [DTYPE_BF16] = 8, [DTYPE_F16] = 11};
    int exponent;
    frexp(x, &exponent);
    return x != 0 ? ldexp(1, exponent - bits[dt]) : 0;
}

/* Adds the squares of what is wanted and of the difference, and returns the largest difference,
 * less what rounding the two results makes of none. */
static double compare_row(enum dtype dt, const void *got, const void *want, int64_t begin,
                          int64_t end, double *square, double *wrong)
{
    double worst = 0;
    for (int64_t i = begin; i < end; i++) {
        double x = value(dt, want, i), d = fabs(value(dt, got, i) - x);
        *square += x * x;
        *wrong += d * d;
        d = fmax(d - spacing(dt, x), 0) + (d - d); /* NaN stays */
        worst = d <= worst ? worst : d;            /* and becomes the worst */
    }
    return worst;
}

/* Of the elements [rows][row], `each` rows of a sequence, the columns [begin, end).  The gradient
 * of a query that sees one key is 0: what is left of terms of size 1 is rounding. */
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
    int is_query = !strcmp(what, "dq");
    if (a->seq == 1)
        size = fmax(size, 1);
    wrong = sqrt(wrong / (double)(rows * cols)) / size;
    for (int64_t i = 0; i < rows; i++) {
        double of_row = 0, unused = 0;
        double d = compare_row(dt, got, want, i * row + begin, i * row + end, &of_row, &unused);
        double terms = is_query && i % each == 0 ? 1 : 0;
        d /= size + fmax(sqrt(of_row / (double)cols), terms);
        worst = d <= worst ? worst : d;
    }
    if (!(wrong <= most.norm && worst <= most.element))
        fail_msg("%s: off by %g, an element by %g (%s, batch %d, seq %d, heads %d/%d, dim %d)",
                 what, wrong, worst, dtype_name(a->dt), (int)a->batch, (int)a->seq, (int)a->heads,
                 (int)a->kv_heads, (int)a->head_dim);
}

void assert_close(const char *what, const struct problem *p, enum dtype dt, const void *got,
                  const void *want, int64_t row, int64_t begin, int64_t end, struct tolerance most)
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

void check(struct rig *rig, const struct attention *shape, enum dtype dt, enum path path)
{
    struct problem p = problem_make(rig, shape, dt);
    problem_solve(rig, &p);
    struct result r = solve(rig, &p, path);
    assert_result(&p, &r);
    result_free(&r);
    problem_free(&p);
}

/* ---- both devices ---- */

int cuda_attention_open(void **state)
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

int cuda_attention_close(void **state)
{
    struct rig *rig = *state;
    int64_t left = rig->mem.blocks;
    device_close(rig->gpu);
    device_close(rig->cpu);
    return left ? -1 : 0;
}
