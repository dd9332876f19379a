/* test_ops.c - ops without arithmetic to speak of: moves, sums, rotations, gates. */
#include "ops_check.h"

#include "base/philox.h"
#include "graph/graph.h"

static const int64_t sizes[][2] = {{1, 1},  {3, 7},    {2, 16},  {7, 17},
                                   {5, 33}, {13, 127}, {31, 64}, {67, 521}};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

static struct tensor doubled(const double *values, int64_t elems, enum dtype dt)
{
    struct tensor t = tensor_poisoned(dt, elems);
    for (int64_t i = 0; i < elems; i++)
        tensor_set(&t, i, values[i]);
    return t;
}

static void assert_same(const struct tensor *a, const struct tensor *b)
{
    assert_int_equal(a->elems, b->elems);
    assert_memory_equal(a->data, b->data, (size_t)a->elems * dtype_bytes(a->dt));
}

/* tokens[i] in [0, vocab), the same for the same seed */
static int32_t *random_tokens(int64_t rows, int64_t vocab, uint64_t seed)
{
    int32_t *tokens = malloc((size_t)rows * sizeof *tokens);
    for (int64_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)(philox_u64(seed, (uint64_t)i) % (uint64_t)vocab);
    return tokens;
}

/* divided: the table has a part of the rows. */
static uint64_t embedding_case(struct device *d, enum dtype dt, int64_t rows, int64_t hidden,
                               int accumulate, int divided)
{
    int64_t all = rows / 2 + 1; /* every token more than once */
    int64_t first = divided ? all / 3 : 0, vocab = divided ? all / 2 + 1 - first : all;
    int32_t *tokens = random_tokens(rows, all, 3);
    struct tensor table = tensor_random(dt, vocab * hidden, 1, 1);
    struct tensor dy = tensor_random(dt, rows * hidden, 2, 1);
    struct tensor y = tensor_poisoned(dt, rows * hidden);
    struct tensor dtable = accumulate ? tensor_random(DTYPE_F32, vocab * hidden, 4, 1)
                                      : tensor_poisoned(DTYPE_F32, vocab * hidden);
    double *want = calloc((size_t)(vocab * hidden), sizeof *want);
    for (int64_t i = 0; i < vocab * hidden && accumulate; i++)
        want[i] = tensor_get(&dtable, i);
    d->ops->embedding(d, dt, y.data, table.data, tokens, rows, hidden, first, vocab);
    d->ops->embedding_backward(d, dt, dtable.data, dy.data, tokens, rows, hidden, first, vocab,
                               accumulate);
    for (int64_t i = 0; i < rows * hidden; i++) {
        int64_t row = tokens[i / hidden] - first, entry = row * hidden + i % hidden;
        int own = row >= 0 && row < vocab;
        assert_true(tensor_get(&y, i) == (own ? tensor_get(&table, entry) : 0));
        if (own)
            want[entry] += tensor_get(&dy, i);
    }
    check_close("dtable", &dtable, want, 1e-5);
    uint64_t hash = tensor_hash(&dtable);
    tensor_free(&table);
    tensor_free(&dy);
    tensor_free(&y);
    tensor_free(&dtable);
    free(tokens);
    free(want);
    return hash;
}

static uint64_t embedding(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < SIZES; i++)
        for (int form = 0; form < 4; form++)
            hash = hash * 31 + embedding_case(d, dt, sizes[i][0], sizes[i][1], form & 1, form >> 1);
    return hash;
}

static void rope_reference(const struct rope *r, double *y, const struct tensor *x,
                           const struct tensor *cos_sin)
{
    int64_t half = r->head_dim / 2;
    for (int64_t i = 0; i < x->elems; i++) {
        int64_t in_head = i % r->head_dim, head = i / r->head_dim % r->row_heads;
        int64_t angle = i / (r->row_heads * r->head_dim) % r->seq * r->head_dim + in_head % half;
        double c = tensor_get(cos_sin, angle), s = tensor_get(cos_sin, angle + half);
        s = r->inverse ? -s : s;
        double here = tensor_get(x, i);
        if (head >= r->rotated)
            y[i] = here;
        else if (in_head < half)
            y[i] = here * c - tensor_get(x, i + half) * s;
        else
            y[i] = here * c + tensor_get(x, i - half) * s;
    }
}

/* Positions that say what rows say are the same bits; and rows that change places with their
 * positions change places in the result. */
static void rope_positions(struct device *d, const struct rope *r, const struct tensor *x,
                           const struct tensor *cos_sin, const struct tensor *want)
{
    int64_t elems = r->row_heads * r->head_dim;
    int32_t *at = malloc((size_t)r->rows * sizeof *at);
    struct tensor moved = tensor_copy(x), y = tensor_poisoned(r->dt, x->elems);
    for (int64_t row = 0; row < r->rows; row++)
        at[row] = (int32_t)(row % r->seq);
    d->ops->rope(d, r, y.data, x->data, cos_sin->data, at);
    assert_same(&y, want);
    for (int64_t row = 0; row < r->rows; row++) {
        int64_t from = (row * 5 + 2) % r->rows; /* no multiple of 5 rows: each once */
        at[row] = (int32_t)(from % r->seq);
        for (int64_t i = 0; i < elems; i++)
            tensor_set(&moved, row * elems + i, tensor_get(x, from * elems + i));
    }
    d->ops->rope(d, r, y.data, moved.data, cos_sin->data, at);
    for (int64_t i = 0; i < x->elems; i++) {
        int64_t from = (i / elems * 5 + 2) % r->rows;
        assert_true(tensor_get(&y, i) == tensor_get(want, from * elems + i % elems));
    }
    tensor_free(&moved);
    tensor_free(&y);
    free(at);
}

static uint64_t rope_case(struct device *d, struct rope r)
{
    int64_t elems = r.rows * r.row_heads * r.head_dim, half = r.head_dim / 2;
    struct tensor x = tensor_random(r.dt, elems, 5, 1), y = tensor_poisoned(r.dt, elems);
    struct tensor cos_sin = tensor_poisoned(DTYPE_F32, r.seq * r.head_dim);
    double *want = malloc((size_t)elems * sizeof *want);
    for (int64_t i = 0; i < r.seq * half; i++) {
        double angle = (double)(i / half) * pow(10000, -(double)(i % half) / (double)half);
        tensor_set(&cos_sin, i / half * r.head_dim + i % half, cos(angle));
        tensor_set(&cos_sin, i / half * r.head_dim + half + i % half, sin(angle));
    }
    rope_reference(&r, want, &x, &cos_sin);
    d->ops->rope(d, &r, y.data, x.data, cos_sin.data, NULL);
    rope_positions(d, &r, &x, &cos_sin, &y);
    check_close("rope", &y, want, tolerance_of(r.dt));
    struct tensor in_place = tensor_copy(&x), back = tensor_poisoned(r.dt, elems);
    d->ops->rope(d, &r, in_place.data, in_place.data, cos_sin.data, NULL);
    assert_same(&in_place, &y);
    for (int64_t i = 0; i < elems; i++)
        want[i] = tensor_get(&x, i);
    r.inverse = !r.inverse;
    d->ops->rope(d, &r, back.data, y.data, cos_sin.data, NULL);
    check_close("rope and back", &back, want, 2 * tolerance_of(r.dt));
    uint64_t hash = tensor_hash(&y);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&cos_sin);
    tensor_free(&in_place);
    tensor_free(&back);
    free(want);
    return hash;
}

static uint64_t rope(struct device *d, enum dtype dt)
{
    static const int64_t dims[] = {2, 6, 34, 64, 254};
    uint64_t hash = 0;
    for (int i = 0; i < 5; i++)
        for (int inverse = 0; inverse < 2; inverse++) {
            struct rope r = {dt, 21, 7, 5, 3, dims[i], inverse};
            hash = hash * 31 + rope_case(d, r);
            r = (struct rope){dt, 3, 3, 1, 1, dims[i], inverse};
            hash = hash * 31 + rope_case(d, r);
        }
    return hash;
}

/* Of each query head the key head that stands for it in a packed row is the one it reads in the
 * whole model; and dkv is the transpose of that. */
static uint64_t pack_case(struct device *d, struct pack_heads p)
{
    int64_t dim = p.head_dim, width = (p.heads + 2 * p.packed) * dim,
            kv_width = 2 * p.kv_heads * dim;
    struct tensor q = tensor_random(p.dt, p.rows * p.heads * dim, 5, 1);
    struct tensor kv = tensor_random(p.dt, p.rows * kv_width, 6, 1);
    struct tensor y = tensor_poisoned(p.dt, p.rows * width),
                  dy = tensor_random(p.dt, y.elems, 7, 1);
    struct tensor dq = tensor_poisoned(p.dt, q.elems), dkv = tensor_poisoned(p.dt, kv.elems);
    double *want = calloc((size_t)kv.elems, sizeof *want);
    d->ops->pack_heads(d, &p, y.data, q.data, kv.data);
    d->ops->pack_heads_backward(d, &p, dq.data, dkv.data, dy.data);
    for (int64_t i = 0; i < y.elems; i++) {
        int64_t row = i / width, head = i % width / dim, in_head = i % dim, slot = head - p.heads;
        if (slot < 0) {
            int64_t from = (row * p.heads + head) * dim + in_head;
            assert_true(tensor_get(&y, i) == tensor_get(&q, from));
            assert_true(tensor_get(&dy, i) == tensor_get(&dq, from));
            continue;
        }
        int64_t value = slot >= p.packed, readers = p.heads / p.packed;
        int64_t source = (p.first + slot % p.packed * readers) / p.group;
        assert_int_equal(source, (p.first + slot % p.packed * readers + readers - 1) / p.group);
        int64_t from = row * kv_width + (value * p.kv_heads + source) * dim + in_head;
        assert_true(tensor_get(&y, i) == tensor_get(&kv, from));
        want[from] += tensor_get(&dy, i);
    }
    check_close("pack_heads_backward", &dkv, want, tolerance_of(p.dt));
    uint64_t hash = tensor_hash(&y) * 31 + tensor_hash(&dkv);
    tensor_free(&q);
    tensor_free(&kv);
    tensor_free(&y);
    tensor_free(&dy);
    tensor_free(&dq);
    tensor_free(&dkv);
    free(want);
    return hash;
}

static uint64_t pack(struct device *d, enum dtype dt)
{
    static const int64_t dims[] = {2, 7, 16, 34};
    uint64_t hash = 0;
    for (int i = 0; i < 4; i++) {
        hash = hash * 31 + pack_case(d, (struct pack_heads){dt, 9, 3, 2, dims[i], 2, 4, 3});
        hash = hash * 31 + pack_case(d, (struct pack_heads){dt, 9, 2, 2, dims[i], 2, 4, 1});
        hash = hash * 31 + pack_case(d, (struct pack_heads){dt, 40, 4, 3, dims[i], 2, 2, 2});
        hash = hash * 31 + pack_case(d, (struct pack_heads){dt, 7, 6, 2, dims[i], 2, 4, 3});
        hash = hash * 31 + pack_case(d, (struct pack_heads){dt, 1, 5, 1, dims[i], 0, 5, 5});
    }
    return hash;
}

/* Gathered rows land at their positions, and come back. */
static uint64_t order_case(struct device *d, enum dtype dt, int64_t batch, int ranks, int64_t chunk,
                           int64_t width)
{
    int64_t own = 2 * chunk, all = batch * ranks * own * width;
    struct tensor x = tensor_random(dt, all, 5, 1), y = tensor_poisoned(dt, all);
    struct tensor back = tensor_poisoned(dt, all);
    struct order_chunks o = {
        .batch = batch, .ranks = ranks, .chunk_bytes = (size_t)(chunk * width) * dtype_bytes(dt)};
    d->ops->order_chunks(d, &o, y.data, x.data);
    o.inverse = 1;
    d->ops->order_chunks(d, &o, back.data, y.data);
    for (int64_t i = 0; i < all; i++) {
        int64_t row = i / width, rank = row / own / batch, b = row / own % batch;
        struct graph_group group = {.size = ranks, .rank = (int)rank};
        struct sequence_part part = graph_sequence_part(own, group);
        int64_t to = b * ranks * own + sequence_position(&part, row % own);
        assert_true(tensor_get(&x, i) == tensor_get(&y, to * width + i % width));
        assert_true(tensor_get(&x, i) == tensor_get(&back, i));
    }
    uint64_t hash = tensor_hash(&y);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&back);
    return hash;
}

static uint64_t order(struct device *d, enum dtype dt)
{
    uint64_t hash = order_case(d, dt, 1, 2, 1, 1);
    hash = hash * 31 + order_case(d, dt, 3, 2, 5, 7);
    hash = hash * 31 + order_case(d, dt, 2, 3, 4, 34);
    return hash * 31 + order_case(d, dt, 2, 5, 3, 64);
}

static void gathered_rows_are_put_in_order(void **state)
{
    for_each_setting(order);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* d silu / dx */
static double silu_slope(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

static void heads_are_packed_and_their_gradients_summed(void **state)
{
    for_each_setting(pack);
}

static void the_slope_of_silu_is_its_difference_quotient(void **state)
{
    const double h = 1e-5;
    for (double x = -20; x < 20; x += 0.37)
        assert_true(fabs((silu(x + h) - silu(x - h)) / (2 * h) - silu_slope(x)) < 1e-9);
}

static uint64_t swiglu_case(struct device *d, enum dtype dt, int64_t rows, int64_t ffn,
                            double scale)
{
    struct tensor gate_up = tensor_random(dt, rows * 2 * ffn, 6, scale);
    struct tensor dy = tensor_random(dt, rows * ffn, 7, 1);
    struct tensor y = tensor_poisoned(dt, rows * ffn), dx = tensor_poisoned(dt, rows * 2 * ffn);
    double *want = malloc((size_t)(rows * ffn) * sizeof *want);
    double *want_dx = malloc((size_t)(rows * 2 * ffn) * sizeof *want);
    for (int64_t i = 0; i < rows * ffn; i++) {
        int64_t gate = i / ffn * 2 * ffn + i % ffn, up = gate + ffn;
        double g = tensor_get(&gate_up, gate), u = tensor_get(&gate_up, up);
        want[i] = silu(g) * u;
        want_dx[gate] = tensor_get(&dy, i) * u * silu_slope(g);
        want_dx[up] = tensor_get(&dy, i) * silu(g);
    }
    d->ops->swiglu(d, dt, y.data, gate_up.data, rows, ffn);
    d->ops->swiglu_backward(d, dt, dx.data, dy.data, gate_up.data, rows, ffn);
    check_close("swiglu", &y, want, tolerance_of(dt));
    check_close("swiglu backward", &dx, want_dx, tolerance_of(dt));
    struct tensor in_place = tensor_copy(&gate_up);
    d->ops->swiglu_backward(d, dt, in_place.data, dy.data, in_place.data, rows, ffn);
    assert_same(&in_place, &dx);
    uint64_t hash = tensor_hash(&y) ^ tensor_hash(&dx);
    tensor_free(&gate_up);
    tensor_free(&dy);
    tensor_free(&y);
    tensor_free(&dx);
    tensor_free(&in_place);
    free(want);
    free(want_dx);
    return hash;
}

static uint64_t swiglu(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < SIZES; i++) {
        hash = hash * 31 + swiglu_case(d, dt, sizes[i][0], sizes[i][1], 2);
        hash = hash * 31 + swiglu_case(d, dt, sizes[i][0], sizes[i][1], 60);
    }
    return hash;
}

static uint64_t scale(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < SIZES; i++) {
        int64_t elems = sizes[i][0] * sizes[i][1];
        struct tensor x = tensor_random(dt, elems, 8, 1), y = tensor_poisoned(dt, elems);
        double *want = malloc((size_t)elems * sizeof *want);
        for (int64_t j = 0; j < elems; j++)
            want[j] = (float)tensor_get(&x, j) * 1.7f;
        struct tensor exact = doubled(want, elems, dt);
        d->ops->scale(d, dt, y.data, x.data, 1.7f, elems);
        assert_same(&y, &exact);
        d->ops->scale(d, dt, x.data, x.data, 1.7f, elems);
        assert_same(&x, &exact);
        hash = hash * 31 + tensor_hash(&y);
        tensor_free(&x);
        tensor_free(&y);
        tensor_free(&exact);
        free(want);
    }
    return hash;
}

static uint64_t add(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int i = 0; i < SIZES; i++) {
        int64_t elems = sizes[i][0] * sizes[i][1];
        struct tensor a = tensor_random(dt, elems, 8, 1), b = tensor_random(dt, elems, 9, 1);
        struct tensor y = tensor_poisoned(dt, elems), onto_a = tensor_copy(&a);
        double *want = malloc((size_t)elems * sizeof *want);
        for (int64_t j = 0; j < elems; j++)
            want[j] = (float)tensor_get(&a, j) + (float)tensor_get(&b, j);
        struct tensor exact = doubled(want, elems, dt);
        d->ops->add(d, dt, y.data, a.data, b.data, elems);
        assert_same(&y, &exact);
        d->ops->add(d, dt, onto_a.data, onto_a.data, b.data, elems);
        assert_same(&onto_a, &exact);
        d->ops->add(d, dt, b.data, a.data, b.data, elems);
        assert_same(&b, &exact);
        hash = hash * 31 + tensor_hash(&y);
        tensor_free(&a);
        tensor_free(&b);
        tensor_free(&y);
        tensor_free(&onto_a);
        tensor_free(&exact);
        free(want);
    }
    return hash;
}

/* Any bits at all, so NaN, infinity and denormals too. */
static struct tensor random_bits(enum dtype dt, int64_t elems, uint64_t seed)
{
    struct tensor x = tensor_poisoned(dt, elems);
    for (int64_t i = 0; i < elems; i++) {
        uint64_t bits = philox_u64(seed, (uint64_t)i);
        memcpy((char *)x.data + (size_t)i * dtype_bytes(dt), &bits, dtype_bytes(dt));
    }
    return x;
}

/* The float an element is, and the element a float becomes, to the bit. */
static float exact_value(const struct tensor *x, int64_t i)
{
    if (x->dt == DTYPE_BF16)
        return bf16_to_f32(((bf16 *)x->data)[i]);
    return x->dt == DTYPE_F16 ? f16_to_f32(((f16 *)x->data)[i]) : ((float *)x->data)[i];
}

static void put_exact(struct tensor *y, int64_t i, float value)
{
    if (y->dt == DTYPE_BF16)
        ((bf16 *)y->data)[i] = f32_to_bf16(value);
    else if (y->dt == DTYPE_F16)
        ((f16 *)y->data)[i] = f32_to_f16(value);
    else
        memcpy((float *)y->data + i, &value, sizeof value);
}

static uint64_t cast_case(struct device *d, enum dtype from, enum dtype to, int64_t elems)
{
    struct tensor x = random_bits(from, elems, 10);
    struct tensor y = tensor_poisoned(to, elems), want = tensor_poisoned(to, elems);
    d->ops->cast(d, to, y.data, from, x.data, elems);
    for (int64_t i = 0; i < elems; i++)
        put_exact(&want, i, exact_value(&x, i));
    if (from == to)
        assert_same(&y, &x);
    else
        assert_same(&y, &want);
    uint64_t hash = tensor_hash(&y);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&want);
    return hash;
}

static uint64_t cast(struct device *d, enum dtype dt)
{
    uint64_t hash = 0;
    for (int type = 0; type < TYPES; type++)
        hash = hash * 31 + cast_case(d, dt, op_types[type], 100003) +
               cast_case(d, dt, op_types[type], 7);
    return hash;
}

/* All sums that random pairs of halves have: infinity where they are too large, and denormals,
 * which in fp16 are as exact as any number. */
static uint64_t add_anything(struct device *d, enum dtype dt)
{
    enum { ELEMS = 100003 };
    struct tensor a = random_bits(DTYPE_F16, ELEMS, 11), b = random_bits(DTYPE_F16, ELEMS, 12);
    struct tensor y = tensor_poisoned(DTYPE_F16, ELEMS);
    int64_t infinite = 0, denormal = 0;
    for (int64_t i = 0; i < ELEMS; i += 3)
        ((f16 *)b.data)[i] &= 0x87ff; /* small ones, of which sums are small */
    for (int64_t i = 0; i < ELEMS; i += 9)
        ((f16 *)a.data)[i] &= 0x87ff;
    d->ops->add(d, DTYPE_F16, y.data, a.data, b.data, ELEMS);
    for (int64_t i = 0; i < ELEMS; i++) {
        float x = exact_value(&a, i), z = exact_value(&b, i);
        f16 want = f32_to_f16(x + z), got = ((f16 *)y.data)[i];
        assert_true(isnan(x + z) ? isnan(f16_to_f32(got)) : got == want);
        infinite += isfinite(x) && isfinite(z) && (got & 0x7fff) == 0x7c00;
        denormal += (got & 0x7fff) > 0 && (got & 0x7fff) < 0x400;
    }
    assert_true(infinite > 100 && denormal > 100);
    uint64_t hash = tensor_hash(&y);
    tensor_free(&a);
    tensor_free(&b);
    tensor_free(&y);
    return hash;
}

static uint64_t copy_and_fill(struct device *d, enum dtype dt)
{
    static const size_t bytes[] = {0, 1, 3, 63, 65, 4099, 300007};
    uint64_t hash = 0;
    for (int i = 0; i < 7; i++) {
        char *x = malloc(bytes[i] + 2), *y = malloc(bytes[i] + 2);
        memset(x, 0x5a, bytes[i] + 2);
        memset(y, 0xff, bytes[i] + 2);
        for (size_t j = 0; j < bytes[i]; j++)
            x[j + 1] = (char)(j * 7 + j / 256);
        d->ops->copy(d, y + 1, x + 1, bytes[i]);
        assert_memory_equal(y + 1, x + 1, bytes[i]);
        assert_int_equal(y[0], (char)0xff);
        assert_int_equal(y[bytes[i] + 1], (char)0xff);
        d->ops->fill_zero(d, x + 1, bytes[i]);
        for (size_t j = 0; j < bytes[i]; j++)
            assert_int_equal(x[j + 1], 0);
        assert_int_equal(x[0], 0x5a);
        assert_int_equal(x[bytes[i] + 1], 0x5a);
        free(x);
        free(y);
    }
    return hash;
}

static void embedding_gathers_and_sums_rows(void **state)
{
    for_each_setting(embedding);
}

static void rope_rotates_and_back(void **state)
{
    for_each_setting(rope);
}

static void swiglu_and_its_gradient(void **state)
{
    for_each_setting(swiglu);
}

static void add_rounds_once(void **state)
{
    for_each_setting(add);
    for_each_setting(scale);
}

static void fp16_has_infinity_and_denormals(void **state)
{
    for_each_setting(add_anything);
}

static void cast_is_exact_to_the_bit(void **state)
{
    for_each_setting(cast);
}

static void copy_and_fill_touch_their_bytes_only(void **state)
{
    for_each_setting(copy_and_fill);
}

static void a_device_is_what_was_asked_for(void **state)
{
    struct error err = {0};
    struct device *d;
    assert_non_null(device_cpu_level(0));
    for (int level = 0; device_cpu_level(level); level++) {
        d = open_device(device_cpu_level(level), 2);
        assert_string_equal(d->level, device_cpu_level(level));
        assert_string_equal(d->ops->name, device_cpu_level(level));
        assert_int_equal(d->threads, 2);
        device_close(d);
    }
    d = open_device(NULL, 0);
    assert_string_equal(d->level, device_cpu_level(0));
    assert_true(d->threads >= 1);
    device_close(d);
    device_close(NULL);
    assert_true(strlen(device_gemm_library()) > 0);
    assert_int_equal(device_open(&d, &(struct device_request){.level = "mmx"}, &err), -1);
    assert_null(d);
    assert_non_null(strstr(err.text, "mmx"));
    assert_int_equal(device_open(&d, &(struct device_request){.kind = DEVICE_CUDA}, &err), -1);
    assert_true(strstr(err.text, "CUDA") || strstr(err.text, "NVIDIA"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_what_was_asked_for),
        cmocka_unit_test(embedding_gathers_and_sums_rows),
        cmocka_unit_test(rope_rotates_and_back),
        cmocka_unit_test(heads_are_packed_and_their_gradients_summed),
        cmocka_unit_test(gathered_rows_are_put_in_order),
        cmocka_unit_test(the_slope_of_silu_is_its_difference_quotient),
        cmocka_unit_test(swiglu_and_its_gradient),
        cmocka_unit_test(add_rounds_once),
        cmocka_unit_test(fp16_has_infinity_and_denormals),
        cmocka_unit_test(cast_is_exact_to_the_bit),
        cmocka_unit_test(copy_and_fill_touch_their_bytes_only),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
