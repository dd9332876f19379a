/* sdpa_tiles.c - add up the gradients of tiles in fp32 and round the sums into dqkv; sdpa_tiles.h
 * describes the order. */
#include "device/cuda/sdpa_tiles.h"

#include "device/cuda/state.h"

/* What a run of tiles works on. */
struct tiles {
    struct device *d;
    const struct attention *a;
    struct sdpa_slice slice;
    const struct sdpa_tensors *t;
    char *scratch;
    struct sdpa_places at;
    int64_t heads;               /* query heads of the slice */
    int64_t dq_elems, dkv_elems; /* of a tile */
};

/* sum = part of it, or sum += it, in fp32 */
static void add(const struct tiles *s, size_t sum, int64_t from, size_t addend, int64_t elems,
                int is_first)
{
    cuda_sum_parts(s->d, DEVICE_COMPUTE, (float *)(s->scratch + sum) + from, s->a->dt,
                   s->scratch + addend, 1, elems, elems, !is_first);
}

/* `tokens` rows of `width` elements of a sum in fp32, rounded by way of narrow, into rows of dqkv
 * that begin at `to`. */
static int put(const struct tiles *s, size_t sum, int64_t from, size_t narrow, int64_t width,
               int64_t to)
{
    const struct attention *a = s->a;
    const size_t bytes = (size_t)width * sizeof(uint16_t);
    int64_t row = (a->heads + 2 * a->kv_heads) * a->head_dim;
    cuda_cast_on(s->d, DEVICE_COMPUTE, a->dt, s->scratch + narrow, DTYPE_F32,
                 (float *)(s->scratch + sum) + from, s->slice.tokens * width);
    return cudaMemcpy2DAsync(s->t->dqkv + to, (size_t)row * sizeof(uint16_t), s->scratch + narrow,
                             bytes, bytes, (size_t)s->slice.tokens, cudaMemcpyDeviceToDevice,
                             cuda_compute(s->d)) == cudaSuccess;
}

/* lse of a tile's queries, which lies apart for each head. */
static int get_lse(const struct tiles *s, int64_t batch, int64_t head, int64_t query)
{
    const struct attention *a = s->a;
    const size_t bytes = (size_t)s->slice.tokens * sizeof(float);
    const float *from = s->t->lse + (batch * a->heads + head) * a->seq + query;
    return cudaMemcpy2DAsync(s->scratch + s->at.lse, bytes, from, (size_t)a->seq * sizeof(float),
                             bytes, (size_t)s->heads, cudaMemcpyDeviceToDevice,
                             cuda_compute(s->d)) == cudaSuccess;
}

/* The tiles of one row, and its dq. */
static int run_row(const struct tiles *s, int64_t batch, int64_t kv_head, int64_t query,
                   sdpa_tile_run *run, void *context)
{
    const struct attention *a = s->a;
    int64_t head = kv_head * (a->heads / a->kv_heads), width = s->heads * a->head_dim;
    int64_t row = (a->heads + 2 * a->kv_heads) * a->head_dim;
    struct sdpa_tile tile = {.batch = batch,
                             .kv_head = kv_head,
                             .query = query,
                             .dq = (uint16_t *)(s->scratch + s->at.dq),
                             .dk = (uint16_t *)(s->scratch + s->at.dk),
                             .dv = (uint16_t *)(s->scratch + s->at.dv),
                             .lse = (float *)(s->scratch + s->at.lse)};
    if (!get_lse(s, batch, head, query))
        return 0;
    for (tile.key = 0; tile.key <= query; tile.key += s->slice.tokens) {
        int64_t column = tile.key / s->slice.tokens * s->dkv_elems;
        int is_first = tile.key == query; /* of its column */
        if (!run(context, &tile))
            return 0;
        add(s, s->at.dq_sum, 0, s->at.dq, s->dq_elems, tile.key == 0);
        add(s, s->at.dk_sum, column, s->at.dk, s->dkv_elems, is_first);
        add(s, s->at.dv_sum, column, s->at.dv, s->dkv_elems, is_first);
    }
    return put(s, s->at.dq_sum, 0, s->at.dq, width,
               (batch * a->seq + query) * row + head * a->head_dim);
}

/* dk and dv of all columns. */
static int put_columns(const struct tiles *s, int64_t batch, int64_t kv_head)
{
    const struct attention *a = s->a;
    int64_t row = (a->heads + 2 * a->kv_heads) * a->head_dim,
            width = s->slice.kv_heads * a->head_dim;
    for (int64_t key = 0; key < a->seq; key += s->slice.tokens) {
        int64_t column = key / s->slice.tokens * s->dkv_elems;
        int64_t k = (batch * a->seq + key) * row + (a->heads + kv_head) * a->head_dim;
        int64_t v = k + a->kv_heads * a->head_dim;
        if (!put(s, s->at.dk_sum, column, s->at.dk, width, k) ||
            !put(s, s->at.dv_sum, column, s->at.dv, width, v))
            return 0;
    }
    return 1;
}

int sdpa_tiles_run(struct device *d, const struct attention *a, struct sdpa_slice slice,
                   const struct sdpa_tensors *t, char *scratch, sdpa_tile_run *run, void *context)
{
    struct tiles s = {.d = d,
                      .a = a,
                      .slice = slice,
                      .t = t,
                      .scratch = scratch,
                      .at = sdpa_places_of(a, slice),
                      .heads = slice.kv_heads * (a->heads / a->kv_heads)};
    s.dq_elems = slice.tokens * s.heads * a->head_dim;
    s.dkv_elems = slice.tokens * slice.kv_heads * a->head_dim;
    for (int64_t batch = 0; batch < a->batch; batch++)
        for (int64_t kv_head = 0; kv_head < a->kv_heads; kv_head += slice.kv_heads) {
            for (int64_t query = 0; query < a->seq; query += slice.tokens)
                if (!run_row(&s, batch, kv_head, query, run, context))
                    return 0;
            if (!put_columns(&s, batch, kv_head))
                return 0;
        }
    return 1;
}
