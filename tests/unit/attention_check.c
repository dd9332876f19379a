/* attention_check.c - see attention_check.h. */
#include "tests/unit/attention_check.h"

#include "base/philox.h"

enum { GUARD = 256 }; /* bytes behind an output that nobody may touch */

const struct attention_type types[TYPES] = {
    {DTYPE_F32, 1e-5},  /* sums of some hundred rounded products */
    {DTYPE_BF16, 1e-2}, /* results, weights and their gradients are rounded to 2^-9 of themselves */
    {DTYPE_F16, 1e-3},  /* results are rounded to 2^-12, and o's enter the gradients */
};

const struct attention shapes[SHAPES] = {
    {.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.batch = 2, .seq = 3, .heads = 3, .kv_heads = 1, .head_dim = 6},
    {.batch = 1, .seq = 7, .heads = 4, .kv_heads = 2, .head_dim = 10},
    {.batch = 3, .seq = 37, .heads = 6, .kv_heads = 2, .head_dim = 6},
    {.batch = 1, .seq = 64, .heads = 2, .kv_heads = 2, .head_dim = 128},
    {.batch = 1, .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 64},
    {.batch = 2, .seq = 131, .heads = 4, .kv_heads = 4, .head_dim = 16},
    {.batch = 1, .seq = 97, .heads = 3, .kv_heads = 1, .head_dim = 256},
    {.batch = 1, .seq = 193, .heads = 5, .kv_heads = 1, .head_dim = 80},
    {.batch = 1, .seq = 577, .heads = 2, .kv_heads = 1, .head_dim = 34},
    {.batch = 2, .seq = 3, .heads = 2, .kv_heads = 1, .head_dim = 6, .forms = ATTENTION_FULL},
    {.batch = 2, .seq = 131, .heads = 4, .kv_heads = 2, .head_dim = 16, .forms = ATTENTION_FULL},
    {.batch = 1, .seq = 64, .heads = 2, .kv_heads = 2, .head_dim = 18, .forms = ATTENTION_FULL},
    {.batch = 2,
     .seq = 5,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_FULL | ATTENTION_SEPARATE,
     .kv_seq = 1},
    {.batch = 2,
     .seq = 1,
     .heads = 3,
     .kv_heads = 3,
     .head_dim = 4,
     .forms = ATTENTION_FULL | ATTENTION_SEPARATE,
     .kv_seq = 7},
    {.batch = 2,
     .seq = 70,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 10,
     .forms = ATTENTION_FULL | ATTENTION_SEPARATE,
     .kv_seq = 193},
    {.batch = 1,
     .seq = 200,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 34,
     .forms = ATTENTION_FULL | ATTENTION_SEPARATE,
     .kv_seq = 67},
    {.batch = 2,
     .seq = 97,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_SEPARATE,
     .kv_seq = 97},
    {.batch = 2, .seq = 7, .heads = 2, .kv_heads = 1, .head_dim = 6, .forms = ATTENTION_DOCUMENTS},
    {.batch = 3,
     .seq = 131,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 6,
     .forms = ATTENTION_DOCUMENTS},
    {.batch = 1,
     .seq = 323,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 34,
     .forms = ATTENTION_DOCUMENTS},
    {.batch = 2,
     .seq = 150,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_DOCUMENTS | ATTENTION_SEPARATE,
     .kv_seq = 150},
    {.batch = 2,
     .seq = 6,
     .heads = 3,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 12,
     .part = {3, {0, 9}}},
    {.batch = 2,
     .seq = 6,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 10,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 12,
     .part = {3, {3, 6}}},
    {.batch = 1,
     .seq = 2,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 4,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 6,
     .part = {1, {2, 3}}},
    {.batch = 2,
     .seq = 78,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 10,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 156,
     .part = {39, {0, 117}}},
    {.batch = 1,
     .seq = 256,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 64,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 768,
     .part = {128, {128, 512}}},
    {.batch = 2,
     .seq = 130,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 390,
     .part = {65, {130, 195}}},
    {.batch = 2,
     .seq = 6,
     .heads = 3,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_DOCUMENTS,
     .kv_seq = 12,
     .part = {3, {0, 9}}},
    {.batch = 2,
     .seq = 130,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_DOCUMENTS,
     .kv_seq = 390,
     .part = {65, {130, 195}}},
    /* a window of the query alone, of some keys, over several blocks, and longer than the sequence
     */
    {.batch = 2,
     .seq = 7,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_WINDOW,
     .window = 1},
    {.batch = 2,
     .seq = 37,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 6,
     .forms = ATTENTION_WINDOW,
     .window = 5},
    {.batch = 1,
     .seq = 577,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 34,
     .forms = ATTENTION_WINDOW,
     .window = 64},
    {.batch = 1,
     .seq = 700,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 16,
     .forms = ATTENTION_WINDOW,
     .window = 150},
    {.batch = 1,
     .seq = 65,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 64,
     .forms = ATTENTION_WINDOW,
     .window = 64},
    {.batch = 1,
     .seq = 65,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_WINDOW,
     .window = 200},
    {.batch = 2,
     .seq = 131,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 6,
     .forms = ATTENTION_WINDOW | ATTENTION_DOCUMENTS,
     .window = 9},
    {.batch = 2,
     .seq = 97,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_WINDOW | ATTENTION_SEPARATE,
     .kv_seq = 97,
     .window = 40},
    {.batch = 2,
     .seq = 130,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_WINDOW,
     .kv_seq = 390,
     .part = {65, {65, 260}},
     .window = 70},
    {.batch = 2,
     .seq = 78,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 10,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_WINDOW | ATTENTION_DOCUMENTS,
     .kv_seq = 156,
     .part = {39, {0, 117}},
     .window = 13},
    /* weights dropped, in each of the other forms; heads may be some of more */
    {.batch = 2, .seq = 7, .heads = 2, .kv_heads = 1, .head_dim = 6, .forms = ATTENTION_DROPOUT},
    {.batch = 2,
     .seq = 131,
     .heads = 4,
     .kv_heads = 4,
     .head_dim = 16,
     .forms = ATTENTION_DROPOUT,
     .first_head = 5},
    {.batch = 1,
     .seq = 323,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 34,
     .forms = ATTENTION_DROPOUT | ATTENTION_DOCUMENTS},
    {.batch = 2,
     .seq = 70,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 10,
     .forms = ATTENTION_DROPOUT | ATTENTION_FULL | ATTENTION_SEPARATE,
     .kv_seq = 193},
    {.batch = 1,
     .seq = 577,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 34,
     .forms = ATTENTION_DROPOUT | ATTENTION_WINDOW,
     .window = 64},
    {.batch = 2,
     .seq = 130,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_DROPOUT | ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 390,
     .part = {65, {65, 260}},
     .first_head = 2},
    {.batch = 2,
     .seq = 97,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .forms = ATTENTION_DROPOUT | ATTENTION_SEPARATE,
     .kv_seq = 97},
    /* queries in chunks, in backward of the CPU: all see few keys, a window, documents, a part */
    {.batch = 1,
     .seq = 530,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_FULL | ATTENTION_SEPARATE,
     .kv_seq = 70},
    {.batch = 2,
     .seq = 600,
     .heads = 2,
     .kv_heads = 2,
     .head_dim = 6,
     .forms = ATTENTION_WINDOW,
     .window = 150},
    {.batch = 1,
     .seq = 800,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_DOCUMENTS},
    {.batch = 1,
     .seq = 512,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_SEPARATE | ATTENTION_PART,
     .kv_seq = 1024,
     .part = {256, {256, 512}}},
    /* and weights dropped, of keys that the queries of three chunks see */
    {.batch = 1,
     .seq = 800,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 6,
     .forms = ATTENTION_DROPOUT,
     .first_head = 3},
};

static void *guarded(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    memset(p, 0xff, bytes + GUARD); /* NaN in every type */
    return p;
}

static void assert_guarded(const void *p, size_t bytes)
{
    const unsigned char *end = (const unsigned char *)p + bytes;
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(end[i], 0xff);
}

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

static void fill(enum dtype dt, void *p, double *as_double, int64_t elems, uint64_t key)
{
    for (int64_t i = 0; i < elems; i++) {
        put(dt, p, i, philox_normal(key, i));
        as_double[i] = value(dt, p, i);
    }
}

/* Documents of 1 to some thirty keys, others in each sequence. */
static void make_documents(struct problem *p)
{
    const struct attention *a = &p->a;
    int64_t keys = attention_keys(a);
    int32_t *first = calloc((size_t)keys, sizeof *first);
    p->documents = calloc((size_t)(a->batch * a->seq), sizeof *p->documents);
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t k = 1; k < keys; k++)
            first[k] = philox_u64(14, b * keys + k) % 17 ? first[k - 1] : (int32_t)k;
        for (int64_t r = 0; r < a->seq; r++)
            p->documents[b * a->seq + r] = first[sequence_position(&a->part, r)];
    }
    p->a.documents = p->documents;
    free(first);
}

/* A third is dropped, of samples far apart. */
static void make_samples(struct problem *p)
{
    p->samples = calloc((size_t)(2 * p->a.batch), sizeof *p->samples);
    for (int64_t b = 0; b < p->a.batch; b++) {
        p->samples[2 * b] = 0xfffffffeu + (uint32_t)b;
        p->samples[2 * b + 1] = (uint32_t)b;
    }
    p->a.dropout = dropout_mask_of(1.0 / 3);
    p->a.dropout.key = 4711;
    p->a.dropout.samples = p->samples;
}

/* What the weight of query t of head h and key u is multiplied by. */
static double kept(const struct problem *p, int64_t b, int64_t h, int64_t t, int64_t u)
{
    const struct dropout_mask *m = &p->a.dropout;
    if (!p->samples)
        return 1;
    int64_t position = sequence_position(&p->a.part, t);
    struct philox4 counter = {{(uint32_t)(u / 4), (uint32_t)position, p->samples[2 * b],
                               p->samples[2 * b + 1] | (uint32_t)(p->a.first_head + h) << 16}};
    struct philox4 drawn = philox(counter, (uint32_t)m->key, (uint32_t)(m->key >> 32));
    return drawn.v[u % 4] < m->limit ? 0 : m->factor;
}

int is_separate(const struct attention *a)
{
    return !!(a->forms & ATTENTION_SEPARATE);
}

/* What is separate of keys and values; else they are in the packed projections. */
static void make_keys(struct problem *p)
{
    const struct attention *a = &p->a;
    p->kv_row = p->row;
    p->kv_elems = p->qkv_elems;
    p->z = p->x;
    p->ref_dz = p->ref_dx;
    if (!is_separate(a))
        return;
    p->kv_row = 2 * a->kv_heads * a->head_dim;
    p->kv_elems = a->batch * a->kv_seq * p->kv_row;
    p->kv = guarded(p->kv_elems * dtype_bytes(a->dt));
    p->dkv = guarded(p->kv_elems * dtype_bytes(a->dt));
    p->z = calloc(p->kv_elems, sizeof(double));
    p->ref_dz = calloc(p->kv_elems, sizeof(double));
    fill(a->dt, p->kv, p->z, p->kv_elems, 15);
    p->a.kv = p->kv;
    p->a.dkv = p->dkv;
}

void problem_make(struct problem *p, const struct attention *shape, enum dtype dt)
{
    size_t size = dtype_bytes(dt);
    int packed = is_separate(shape) ? 0 : 2;
    *p = (struct problem){.a = *shape};
    p->a.dt = dt;
    p->a.scale = (float)(1 / sqrt((double)shape->head_dim));
    p->row = (shape->heads + packed * shape->kv_heads) * shape->head_dim;
    p->qkv_elems = shape->batch * shape->seq * p->row;
    p->out_elems = shape->batch * shape->seq * shape->heads * shape->head_dim;
    p->lse_elems = shape->batch * shape->heads * shape->seq;
    p->qkv = guarded(p->qkv_elems * size);
    p->dout = guarded(p->out_elems * size);
    p->o = guarded(p->out_elems * size);
    p->dqkv = guarded(p->qkv_elems * size);
    p->lse = guarded(p->lse_elems * sizeof(float));
    p->x = calloc(p->qkv_elems, sizeof(double));
    p->ref_dx = calloc(p->qkv_elems, sizeof(double));
    p->dy = calloc(p->out_elems, sizeof(double));
    p->ref_o = calloc(p->out_elems, sizeof(double));
    p->ref_lse = calloc(p->lse_elems, sizeof(double));
    fill(dt, p->qkv, p->x, p->qkv_elems, 11);
    fill(dt, p->dout, p->dy, p->out_elems, 12);
    make_keys(p);
    if (shape->forms & ATTENTION_DOCUMENTS)
        make_documents(p);
    if (shape->forms & ATTENTION_DROPOUT)
        make_samples(p);
}

void problem_free(struct problem *p)
{
    if (is_separate(&p->a)) {
        free(p->z);
        free(p->ref_dz);
    }
    void *blocks[] = {p->qkv,   p->dout,    p->o,      p->dqkv, p->lse, p->x,         p->dy,
                      p->ref_o, p->ref_lse, p->ref_dx, p->kv,   p->dkv, p->documents, p->samples};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        free(blocks[i]);
}

double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *y, double s, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += s * x[i];
}

int64_t at_head(const struct problem *p, int64_t b, int64_t t, int64_t slot)
{
    return (b * p->a.seq + t) * p->row + slot * p->a.head_dim;
}

int64_t at_key(const struct problem *p, int64_t b, int64_t u, int64_t kv)
{
    int64_t slot = kv + (is_separate(&p->a) ? 0 : p->a.heads);
    return (b * attention_keys(&p->a) + u) * p->kv_row + slot * p->a.head_dim;
}

int64_t at_out(const struct problem *p, int64_t b, int64_t t, int64_t h)
{
    return ((b * p->a.seq + t) * p->a.heads + h) * p->a.head_dim;
}

/* One query: weights over the keys that it sees, its output and lse, and what it adds to the
 * gradients. */
static void reference_query(struct problem *p, int64_t b, int64_t t, int64_t h, double *weight)
{
    const struct attention *a = &p->a;
    int64_t kv = h / (a->heads / a->kv_heads), n = a->head_dim;
    int64_t q = at_head(p, b, t, h), out = at_out(p, b, t, h);
    int64_t first = p->documents ? p->documents[b * a->seq + t] : 0;
    int64_t end = a->forms & ATTENTION_FULL ? attention_keys(a) : t + 1;
    if (a->forms & ATTENTION_PART)
        end = 1 + (t < a->part.chunk ? a->part.first[0] + t : a->part.first[1] + t - a->part.chunk);
    if (a->forms & ATTENTION_WINDOW && end - a->window > first)
        first = end - a->window;
    double top = -INFINITY, sum = 0;
    for (int64_t u = first; u < end; u++) {
        weight[u] = a->scale * dot(p->x + q, p->z + at_key(p, b, u, kv), n);
        top = fmax(top, weight[u]);
    }
    for (int64_t u = first; u < end; u++)
        sum += weight[u] = exp(weight[u] - top);
    p->ref_lse[(b * a->heads + h) * a->seq + t] = top + log(sum);
    memset(p->ref_o + out, 0, n * sizeof(double));
    for (int64_t u = first; u < end; u++) {
        weight[u] /= sum;
        add_scaled(p->ref_o + out, weight[u] * kept(p, b, h, t, u),
                   p->z + at_key(p, b, u, a->kv_heads + kv), n);
    }
    double d = dot(p->dy + out, p->ref_o + out, n);
    for (int64_t u = first; u < end; u++) {
        int64_t k = at_key(p, b, u, kv), v = at_key(p, b, u, a->kv_heads + kv);
        double by = kept(p, b, h, t, u);
        double ds = a->scale * weight[u] * (by * dot(p->dy + out, p->z + v, n) - d);
        add_scaled(p->ref_dz + v, by * weight[u], p->dy + out, n);
        add_scaled(p->ref_dx + q, ds, p->z + k, n);
        add_scaled(p->ref_dz + k, ds, p->x + q, n);
    }
}

void reference(struct problem *p)
{
    double *weight = malloc(attention_keys(&p->a) * sizeof *weight);
    memset(p->ref_dx, 0, p->qkv_elems * sizeof(double));
    memset(p->ref_dz, 0, p->kv_elems * sizeof(double));
    for (int64_t b = 0; b < p->a.batch; b++)
        for (int64_t h = 0; h < p->a.heads; h++)
            for (int64_t t = 0; t < p->a.seq; t++)
                reference_query(p, b, t, h, weight);
    free(weight);
}

static struct device *open_level(const char *level, int threads)
{
    struct device *d = NULL;
    struct error err = {0};
    struct device_request request = {.kind = DEVICE_CPU, .threads = threads, .level = level};
    if (device_open(&d, &request, &err))
        fail_msg("%s", err.text);
    return d;
}

void run(struct problem *p, const char *level, int threads)
{
    struct device *d = open_level(level, threads);
    size_t size = dtype_bytes(p->a.dt);
    for (enum device_pass pass = DEVICE_FORWARD; pass <= DEVICE_BACKWARD; pass++) {
        size_t bytes = d->ops->attention_scratch(d, &p->a, pass);
        void *scratch = guarded(bytes);
        if (pass == DEVICE_BACKWARD) {
            memset(p->dqkv, 0xff, p->qkv_elems * size);
            if (p->dkv)
                memset(p->dkv, 0xff, p->kv_elems * size);
            d->ops->attention_backward(d, &p->a, p->dqkv, p->dout, p->o, p->lse, p->qkv, scratch);
        } else {
            memset(p->o, 0xff, p->out_elems * size);
            memset(p->lse, 0xff, p->lse_elems * sizeof(float));
            d->ops->attention(d, &p->a, p->o, p->lse, p->qkv, scratch);
        }
        assert_guarded(scratch, bytes);
        free(scratch);
    }
    assert_guarded(p->o, p->out_elems * size);
    assert_guarded(p->dqkv, p->qkv_elems * size);
    if (p->dkv)
        assert_guarded(p->dkv, p->kv_elems * size);
    assert_guarded(p->lse, p->lse_elems * sizeof(float));
    device_close(d);
}

void assert_close(const char *what, const struct problem *p, enum dtype dt, const void *got,
                  const double *want, int64_t elems, double tolerance)
{
    double scale = 1e-3, worst = 0;
    for (int64_t i = 0; i < elems; i++) {
        double error = fabs(value(dt, got, i) - want[i]);
        scale = fmax(scale, fabs(want[i]));
        worst = error <= worst ? worst : error; /* NaN becomes the worst */
    }
    if (!(worst <= tolerance * scale))
        fail_msg("%s: error %g of scale %g (%s, batch %d, seq %d, heads %d/%d, head_dim %d)", what,
                 worst, scale, dtype_name(p->a.dt), (int)p->a.batch, (int)p->a.seq, (int)p->a.heads,
                 (int)p->a.kv_heads, (int)p->a.head_dim);
}

void assert_lse(const struct problem *p)
{
    float *scaled = malloc((size_t)p->lse_elems * sizeof *scaled);
    for (int64_t i = 0; i < p->lse_elems; i++)
        scaled[i] = p->lse[i] * p->a.scale;
    assert_close("lse", p, DTYPE_F32, scaled, p->ref_lse, p->lse_elems, 1e-5);
    free(scaled);
}
