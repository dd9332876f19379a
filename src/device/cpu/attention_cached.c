/* attention_cached.c - attention of rows that continue sequences, over a cache of keys and values.
 *
 * Many rows of a sequence are a part of it (ATTENTION_PART), whose keys and values are the cache's:
 * the kernel of training does them, a sequence at a time.  Of one row each, the usual case, a task
 * is a key head of a sequence with the query heads that read it; it goes through keys and values
 * once, in their order in memory, and it is their reading that takes the time:
 *   score[h][p] = q_h . k_p;  weight = exp(scale (score - max));  o_h = sum weight v_p / sum weight
 */
#include <omp.h>

#include "device/cpu/attention.h"

enum { AHEAD = 12 }; /* positions that are fetched before they are used */

/* Copy keys and values of the rows into the cache; in both the values lie after the keys. */
static void keep_rows(const struct attention_cached *a, void *cache, const void *qkv,
                      const int32_t *positions)
{
    size_t head = (size_t)a->head_dim * dtype_bytes(a->dt);
    size_t kept = 2 * (size_t)a->kv_heads * head, queries = (size_t)a->heads * head;
    for (int64_t row = 0; row < a->batch * a->seq; row++) {
        int64_t b = row / a->seq, position = positions[b * a->seq] + row % a->seq;
        memcpy((char *)cache + (size_t)(b * a->capacity + position) * kept,
               (const char *)qkv + (size_t)row * (queries + kept) + queries, kept);
    }
}

/* The task of one key head of a sequence: where its keys and values lie in the cache, and which
 * positions are seen. */
struct token_task {
    const struct attention_cached *a;
    const void *q, *cache;
    int64_t q_first, key_first, value_first; /* elements */
    int64_t stride;                          /* from one position to the next */
    int64_t low, high;                       /* positions [low, high) */
    float *scores;                           /* [group][high - low] */
};

/* Prefetch `elems` elements from index on: what one position has for a head is a few cache lines of
 * a row of kilobytes, which a processor does not foresee. */
SIMD_INLINE void prefetch(const enum dtype dt, const void *base, int64_t index, int64_t elems)
{
    enum { LINE = 64 };
    const int64_t bytes = value_bytes(dt);
    const char *from = (const char *)base + index * bytes;
    for (int64_t at = 0; at < elems * bytes; at += LINE)
        __builtin_prefetch(from + at);
}

SIMD_INLINE float dot(const enum dtype dt, const void *x, int64_t x_first, const void *y,
                      int64_t y_first, int64_t n)
{
    vf sum = {0};
    for (int64_t i = 0; i < n; i += CPU_LANES)
        sum += vf_get_some(dt, x, x_first + i, n - i) * vf_get_some(dt, y, y_first + i, n - i);
    return vf_sum(sum);
}

SIMD_INLINE void token_scores(const enum dtype dt, const struct token_task *t, int64_t group)
{
    int64_t d = t->a->head_dim, seen = t->high - t->low;
    for (int64_t p = 0; p < seen; p++) {
        int64_t key = t->key_first + p * t->stride;
        prefetch(dt, t->cache, key + AHEAD * t->stride, d);
        for (int64_t h = 0; h < group; h++)
            t->scores[h * seen + p] = dot(dt, t->q, t->q_first + h * d, t->cache, key, d);
    }
}

/* Make weights of scores, in place; returns their sum. */
static float token_softmax(float *scores, int64_t n, float scale)
{
    float top = -__builtin_inff();
    for (int64_t p = 0; p < n; p++)
        top = scores[p] > top ? scores[p] : top;
    vf sum = {0};
    for (int64_t p = 0; p < n; p += CPU_LANES) {
        vf x = vf_get_some(DTYPE_F32, scores, p, n - p);
        vf weight = vf_exp((x - top) * scale);
        if (n - p < CPU_LANES)
            weight = vf_select(vi_lanes() < (int32_t)(n - p), weight, (vf){0});
        sum += weight;
        vf_put_some(DTYPE_F32, scores, p, n - p, weight);
    }
    return vf_sum(sum);
}

/* Compute the output of one query head, two vectors of elements at a time. */
SIMD_INLINE void token_values(const enum dtype dt, const struct token_task *t, int64_t h, void *o,
                              int64_t o_first, float sum)
{
    int64_t d = t->a->head_dim, seen = t->high - t->low;
    const float *weight = t->scores + h * seen;
    for (int64_t i = 0; i < d; i += 2 * CPU_LANES) {
        int64_t left = d - i, second = left > CPU_LANES;
        vf o0 = {0}, o1 = {0};
        for (int64_t p = 0; p < seen; p++) {
            int64_t at = t->value_first + p * t->stride + i;
            prefetch(dt, t->cache, at + AHEAD * t->stride, min_i64(left, 2 * CPU_LANES));
            o0 += vf_get_some(dt, t->cache, at, left) * weight[p];
            if (second)
                o1 += vf_get_some(dt, t->cache, at + CPU_LANES, left - CPU_LANES) * weight[p];
        }
        vf_put_some(dt, o, o_first + i, left, o0 / sum);
        if (second)
            vf_put_some(dt, o, o_first + i + CPU_LANES, left - CPU_LANES, o1 / sum);
    }
}

static void token_task(const struct attention_cached *a, int64_t b, int64_t kv, int64_t position,
                       const void *qkv, const void *cache, void *o, float *scores)
{
    int64_t group = a->heads / a->kv_heads, d = a->head_dim, row = 2 * a->kv_heads * d;
    int64_t low = a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
    int64_t first = (b * a->capacity + low) * row + kv * d,
            o_first = (b * a->heads + kv * group) * d;
    const struct token_task t = {
        .a = a,
        .q = qkv,
        .cache = cache,
        .q_first = (b * (a->heads + 2 * a->kv_heads) + kv * group) * d,
        .key_first = first,
        .value_first = first + a->kv_heads * d,
        .stride = row,
        .low = low,
        .high = position + 1,
        .scores = scores,
    };
    WITH_DTYPE(token_scores, a->dt, &t, group);
    for (int64_t h = 0; h < group; h++) {
        float sum = token_softmax(scores + h * (t.high - low), t.high - low, a->scale);
        WITH_DTYPE(token_values, a->dt, &t, h, o, o_first + h * d, sum);
    }
}

/* Bytes of the scores of one task. */
static size_t task_bytes(const struct attention_cached *a)
{
    size_t elems = (size_t)(a->heads / a->kv_heads * a->capacity);
    return round_up_bytes(elems * sizeof(float), 64);
}

static void one_row_each(struct device *d, const struct attention_cached *a, void *o,
                         const void *cache, const void *qkv, const int32_t *positions,
                         void *scratch)
{
    int64_t tasks = a->batch * a->kv_heads, bytes = 0;
    for (int64_t b = 0; b < a->batch; b++)
        bytes += positions[b] * 2 * a->kv_heads * a->head_dim * (int64_t)dtype_bytes(a->dt);
#pragma omp parallel for num_threads(cpu_threads(d, bytes))
    for (int64_t t = 0; t < tasks; t++)
        token_task(a, t / a->kv_heads, t % a->kv_heads, positions[t / a->kv_heads], qkv, cache, o,
                   (float *)((char *)scratch + (size_t)omp_get_thread_num() * task_bytes(a)));
}

/* The problem of ATTENTION_PART that rows of one sequence from a position on are. */
static struct attention part_of(const struct attention_cached *a, int64_t position)
{
    int64_t chunk = a->seq / 2;
    return (struct attention){
        .dt = a->dt,
        .batch = 1,
        .seq = a->seq,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .scale = a->scale,
        .forms = ATTENTION_SEPARATE | ATTENTION_PART | (a->window > 0 ? ATTENTION_WINDOW : 0),
        .kv_seq = position + a->seq, /* what is after them may be no numbers */
        .part = {.chunk = chunk, .first = {position, position + chunk}},
        .window = a->window,
    };
}

/* Bytes of the queries of one sequence, dense, and of its log-sum-exps, which nobody reads. */
static size_t queries_bytes(const struct attention_cached *a)
{
    size_t rows = (size_t)(a->seq * a->heads);
    return round_up_bytes(rows * (size_t)a->head_dim * dtype_bytes(a->dt), 64) +
           round_up_bytes(rows * sizeof(float), 64);
}

static void many_rows(struct device *d, const struct attention_cached *a, int64_t b, void *o,
                      const void *cache, const void *qkv, int64_t position, void *scratch)
{
    size_t size = dtype_bytes(a->dt), queries = (size_t)(a->heads * a->head_dim) * size;
    size_t kept = (size_t)(2 * a->kv_heads * a->head_dim) * size;
    size_t row = queries + kept, bytes = round_up_bytes((size_t)a->seq * queries, 64);
    struct attention part = part_of(a, position);
    part.kv = (const char *)cache + (size_t)(b * a->capacity) * kept;
    for (int64_t r = 0; r < a->seq; r++)
        memcpy((char *)scratch + (size_t)r * queries,
               (const char *)qkv + (size_t)(b * a->seq + r) * row, queries);
    CPU(attention)
    (d, &part, (char *)o + (size_t)(b * a->seq) * queries, (float *)((char *)scratch + bytes),
     scratch, (char *)scratch + queries_bytes(a));
}

void CPU(attention_cached)(struct device *d, const struct attention_cached *a, void *o, void *cache,
                           const void *qkv, const int32_t *positions, void *scratch)
{
    keep_rows(a, cache, qkv, positions);
    if (a->seq == 1)
        one_row_each(d, a, o, cache, qkv, positions, scratch);
    for (int64_t b = 0; a->seq > 1 && b < a->batch; b++)
        many_rows(d, a, b, o, cache, qkv, positions[b * a->seq], scratch);
}

size_t CPU(attention_cached_scratch)(struct device *d, const struct attention_cached *a)
{
    if (a->seq == 1)
        return task_bytes(a) * d->threads;
    struct attention part = part_of(a, a->capacity - a->seq);
    return queries_bytes(a) + CPU(attention_scratch)(d, &part, DEVICE_FORWARD);
}
