/* heads.c - own query heads, and the key and value heads that they read, packed for attention; and
 * rows of ranks that share sequences, put in order. */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

static void pack_row(const struct pack_heads *p, char *y, const char *q, const char *kv)
{
    size_t head = (size_t)p->head_dim * dtype_bytes(p->dt), queries = (size_t)p->heads * head;
    memcpy(y, q, queries);
    y += queries;
    for (int64_t first = 0; first <= p->kv_heads; first += p->kv_heads)
        for (int64_t slot = 0; slot < p->packed; slot++, y += head)
            memcpy(y, kv + (size_t)(first + pack_heads_source(p, slot)) * head, head);
}

void CPU(pack_heads)(struct device *d, const struct pack_heads *p, void *y, const void *q,
                     const void *kv)
{
    size_t head = (size_t)p->head_dim * dtype_bytes(p->dt);
    size_t row_y = (size_t)(p->heads + 2 * p->packed) * head, row_q = (size_t)p->heads * head;
    size_t row_kv = (size_t)(2 * p->kv_heads) * head;
#pragma omp parallel for num_threads(cpu_threads(d, p->rows *(int64_t)row_y))
    for (int64_t row = 0; row < p->rows; row++)
        pack_row(p, (char *)y + (size_t)row * row_y, (const char *)q + (size_t)row * row_q,
                 (const char *)kv + (size_t)row * row_kv);
}

/* Add up heads [begin, end) of dy, counted from its beginning, into head `to` of dkv. */
SIMD_INLINE void add_heads(enum dtype dt, void *dkv, int64_t to, const void *dy, int64_t begin,
                           int64_t end, int64_t head_dim)
{
    for (int64_t i = 0; i < head_dim; i += CPU_LANES) {
        vf sum = {0};
        for (int64_t from = begin; from < end; from++)
            sum += vf_get_some(dt, dy, from * head_dim + i, head_dim - i);
        vf_put_some(dt, dkv, to * head_dim + i, head_dim - i, sum);
    }
}

static void unpack_row(const struct pack_heads *p, void *dkv, int64_t row, const void *dy)
{
    for (int64_t half = 0; half < 2; half++) {
        int64_t base = row * (p->heads + 2 * p->packed) + p->heads + half * p->packed;
        for (int64_t k = 0; k < p->kv_heads; k++)
            WITH_DTYPE(add_heads, p->dt, dkv, (2 * row + half) * p->kv_heads + k, dy,
                       base + pack_heads_before(p, k), base + pack_heads_before(p, k + 1),
                       p->head_dim);
    }
}

void CPU(pack_heads_backward)(struct device *d, const struct pack_heads *p, void *dq, void *dkv,
                              const void *dy)
{
    size_t head = (size_t)p->head_dim * dtype_bytes(p->dt), queries = (size_t)p->heads * head;
    size_t row_y = queries + (size_t)(2 * p->packed) * head;
#pragma omp parallel for num_threads(cpu_threads(d, p->rows *(int64_t)row_y))
    for (int64_t row = 0; row < p->rows; row++) {
        memcpy((char *)dq + (size_t)row * queries, (const char *)dy + (size_t)row * row_y, queries);
        unpack_row(p, dkv, row, dy);
    }
}

void CPU(order_chunks)(struct device *d, const struct order_chunks *o, void *y, const void *x)
{
    int64_t chunks = 2 * o->ranks * o->batch;
#pragma omp parallel for num_threads(cpu_threads(d, chunks *(int64_t)o->chunk_bytes))
    for (int64_t i = 0; i < chunks; i++) {
        int64_t gathered = order_chunks_source(o, i);
        size_t from = (size_t)(o->inverse ? i : gathered) * o->chunk_bytes;
        size_t to = (size_t)(o->inverse ? gathered : i) * o->chunk_bytes;
        memcpy((char *)y + to, (const char *)x + from, o->chunk_bytes);
    }
}
