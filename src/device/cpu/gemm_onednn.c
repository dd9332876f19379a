/* gemm_onednn.c - matrix products by oneDNN.
 *
 * A matmul primitive is compiled for each distinct product (shape, strides, types, addend)
 * and kept with its memory objects; a call then only sets pointers.  An addend that is c
 * itself is oneDNN's sum post-op, another one its binary post-op.  What oneDNN refuses, or
 * would do by its reference loops (bf16 on chips without AVX-512), goes through fp32, and so does
 * all of fp16.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/round.h"
#include "device/cpu/gemm.h"
#include "device/cpu/onednn.h"
#include "device/cpu/run_queue.h"

enum addend { ADDEND_NONE, ADDEND_SELF, ADDEND_OTHER, ADDEND_KINDS };

/* What makes two products the same; without padding, so that bytes compare. */
struct key {
    int64_t dt, dt_c, trans_a, trans_b, addend;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t threads; /* threads for which oneDNN divides the product */
};

enum operand { OPERAND_A, OPERAND_B, OPERAND_C, OPERAND_ADDEND, OPERAND_SCRATCH, OPERANDS };

enum same_bits { NOT_KNOWN, SAME_BITS, OTHER_BITS };

struct product {
    struct key key;
    dnnl_primitive_t primitive;     /* NULL: by blocks through fp32 */
    dnnl_memory_t memory[OPERANDS]; /* NULL: not an operand of this product */
    size_t scratch_bytes;
    enum same_bits same;  /* as the product for all threads of the device? */
    struct product *next; /* in its bucket */
};

enum { BUCKETS = 256 };

struct state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct product *buckets[BUCKETS];
};

/* 0 where a call of oneDNN succeeded; else -1 with err set to what it was asked to do. */
static int checked(dnnl_status_t status, const char *call, struct error *err)
{
    return status == dnnl_success ? 0 : error_set(err, "oneDNN: %s: status %d", call, (int)status);
}

#define ONEDNN_CHECK(call, err) checked((call), #call, err)

static struct key key_of(const struct gemm *g, enum addend addend, int threads)
{
    return (struct key){.dt = g->dt,
                        .dt_c = g->dt_c,
                        .trans_a = g->trans_a,
                        .trans_b = g->trans_b,
                        .addend = addend,
                        .m = g->m,
                        .n = g->n,
                        .k = g->k,
                        .lda = g->lda,
                        .ldb = g->ldb,
                        .ldc = g->ldc,
                        .threads = threads};
}

static dnnl_data_type_t type_of(int64_t dt)
{
    return dt == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Descriptor of a [rows, cols] operand whose transpose is stored where trans is 1.  Where only one
 * row is stored the distance between rows means nothing: it is that of a dense operand, as oneDNN's
 * cache of primitives takes such operands as equal, and two that differ in it would get one
 * primitive, which may want more scratch than was asked for the other.  Where each row has one
 * element, oneDNN 3.7 would take rows that are not dense as dense, and read and write beside them:
 * the distance between elements, which means nothing, is then such that its fast kernels refuse
 * them. */
static dnnl_status_t describe(dnnl_memory_desc_t *md, int64_t dt, int64_t rows, int64_t cols,
                              int64_t ld, int64_t trans)
{
    int64_t stored = trans ? cols : rows, length = trans ? rows : cols;
    if (stored == 1)
        ld = length;
    int64_t step = length == 1 && ld > 1 ? stored * ld : 1;
    const dnnl_dims_t dims = {rows, cols}, strides = {trans ? step : ld, trans ? ld : step};
    return onednn_md_create(md, type_of(dt), dims, strides);
}

static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attr, int64_t addend, onednn_md c)
{
    dnnl_post_ops_t ops;
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status != dnnl_success)
        return status;
    dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    status = dnnl_post_ops_create(&ops);
    if (status != dnnl_success)
        return status;
    if (addend == ADDEND_SELF)
        status = onednn_append_sum(ops);
    if (addend == ADDEND_OTHER)
        status = dnnl_post_ops_append_binary(ops, dnnl_binary_add, c);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return status;
}

/* Is it a fast implementation? oneDNN's reference loops are slower than fp32 by blocks. */
static int is_fast(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) != 0;
}

/* The primitive descriptor of key, with descriptors of its matrices in md[3], to be destroyed
 * with drop_descriptors() in either case.  *pd is NULL where oneDNN has nothing good. */
static void make_descriptors(dnnl_primitive_desc_t *pd, dnnl_memory_desc_t md[3],
                             const struct state *s, const struct key *key)
{
    dnnl_primitive_attr_t attr = NULL;
    *pd = NULL;
    if (key->dt == DTYPE_F16 ||
        describe(&md[OPERAND_A], key->dt, key->m, key->k, key->lda, key->trans_a) ||
        describe(&md[OPERAND_B], key->dt, key->k, key->n, key->ldb, key->trans_b) ||
        describe(&md[OPERAND_C], key->dt_c, key->m, key->n, key->ldc, 0))
        return;
    onednn_md c = onednn_md_of(&md[OPERAND_C]);
    if (make_attributes(&attr, key->addend, c) == dnnl_success &&
        onednn_matmul(pd, s->engine, onednn_md_of(&md[OPERAND_A]), onednn_md_of(&md[OPERAND_B]), c,
                      attr) != dnnl_success)
        *pd = NULL;
    dnnl_primitive_attr_destroy(attr);
    if (*pd && key->dt == DTYPE_BF16 && !is_fast(*pd)) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
}

static void drop_descriptors(dnnl_primitive_desc_t pd, dnnl_memory_desc_t md[3])
{
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    for (int i = 0; i < 3; i++)
        onednn_md_destroy(&md[i]);
}

static void product_destroy(struct product *p)
{
    if (!p)
        return;
    for (int i = 0; i < OPERANDS; i++)
        if (p->memory[i])
            dnnl_memory_destroy(p->memory[i]);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    free(p);
}

static onednn_md scratch_md(const_dnnl_primitive_desc_t pd)
{
    return dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
}

static int make_memory(struct product *p, const struct state *s, const_dnnl_primitive_desc_t pd,
                       const dnnl_memory_desc_t md[3], struct error *err)
{
    const onednn_md of[OPERANDS] = {
        [OPERAND_A] = onednn_md_of(&md[OPERAND_A]),
        [OPERAND_B] = onednn_md_of(&md[OPERAND_B]),
        [OPERAND_C] = onednn_md_of(&md[OPERAND_C]),
        [OPERAND_ADDEND] = p->key.addend == ADDEND_OTHER ? onednn_md_of(&md[OPERAND_C]) : NULL,
        [OPERAND_SCRATCH] = scratch_md(pd),
    };
    int rc = 0;
    p->scratch_bytes = dnnl_memory_desc_get_size(of[OPERAND_SCRATCH]);
    for (int i = 0; i < OPERANDS && !rc; i++)
        if (of[i] && (i != OPERAND_SCRATCH || p->scratch_bytes > 0))
            rc = ONEDNN_CHECK(dnnl_memory_create(&p->memory[i], of[i], s->engine, DNNL_MEMORY_NONE),
                              err);
    return rc;
}

static struct product *product_create(const struct state *s, const struct key *key,
                                      struct error *err)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_memory_desc_t md[3];
    memset(md, 0, sizeof md);
    struct product *p = array_make(1, sizeof *p);
    p->key = *key;
    make_descriptors(&pd, md, s, key);
    if (pd) {
        if (ONEDNN_CHECK(dnnl_primitive_create(&p->primitive, pd), err) ||
            make_memory(p, s, pd, md, err))
            goto fail;
    } else if (key->dt == DTYPE_F32) {
        error_set(err, "oneDNN has no product [%lld,%lld] x [%lld,%lld] in %s", (long long)key->m,
                  (long long)key->k, (long long)key->k, (long long)key->n,
                  dtype_name((enum dtype)key->dt));
        goto fail;
    }
    drop_descriptors(pd, md);
    return p;
fail:
    drop_descriptors(pd, md);
    product_destroy(p);
    return NULL;
}

static struct product *find_or_create(struct state *s, const struct key *key, struct error *err)
{
    struct product **bucket = &s->buckets[hash_bytes(key, sizeof *key) % BUCKETS];
    for (struct product *p = *bucket; p; p = p->next)
        if (!memcmp(&p->key, key, sizeof *key))
            return p;
    struct product *p = product_create(s, key, err);
    if (!p)
        return NULL;
    p->next = *bucket;
    *bucket = p;
    return p;
}

static int execute(const struct state *s, const struct product *p, void *const data[OPERANDS],
                   struct error *err)
{
    static const int names[OPERANDS] = {
        [OPERAND_A] = DNNL_ARG_SRC,
        [OPERAND_B] = DNNL_ARG_WEIGHTS,
        [OPERAND_C] = DNNL_ARG_DST,
        [OPERAND_ADDEND] = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
        [OPERAND_SCRATCH] = DNNL_ARG_SCRATCHPAD,
    };
    dnnl_exec_arg_t args[OPERANDS];
    int count = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (!p->memory[i])
            continue;
        if (ONEDNN_CHECK(dnnl_memory_set_data_handle(p->memory[i], data[i]), err))
            return -1;
        args[count++] = (dnnl_exec_arg_t){names[i], p->memory[i]};
    }
    return ONEDNN_CHECK(dnnl_primitive_execute(p->primitive, s->stream, count, args), err) ||
                   ONEDNN_CHECK(dnnl_stream_wait(s->stream), err)
               ? -1
               : 0;
}

/* Bytes that are not 0: sums of zeros have the same bits in any order. */
static size_t count_nonzero_bytes(const unsigned char *c, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += c[i] != 0;
    return count;
}

/* Do these two products give the same bits? oneDNN may split the summed dimension of small products
 * with many summands, and then the bits depend on the number of threads.  Both are computed, once,
 * into memory of their own.  Large products, whose threads seldom wait, count as different. */
static int compare(const struct state *s, struct product *few, const struct product *all,
                   void *const data[OPERANDS], struct error *err)
{
    const size_t most_bytes = 8 << 20, telling_bytes = 64;
    const struct key *k = &all->key;
    size_t bytes = (size_t)((k->m - 1) * k->ldc + k->n) * dtype_bytes((enum dtype)k->dt_c);
    void *copy[2] = {NULL, NULL};
    int rc = 0;
    few->same = OTHER_BITS;
    if (!few->primitive || bytes > most_bytes || few->scratch_bytes > all->scratch_bytes)
        return 0;
    for (int i = 0; i < 2; i++)
        copy[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
    for (int i = 0; i < 2 && !rc && copy[0] && copy[1]; i++) {
        const struct product *p = i ? few : all;
        void *const to[OPERANDS] = {data[OPERAND_A], data[OPERAND_B], copy[i], data[OPERAND_ADDEND],
                                    data[OPERAND_SCRATCH]};
        memcpy(copy[i], data[OPERAND_C], bytes);
        omp_set_num_threads((int)p->key.threads);
        rc = execute(s, p, to, err);
    }
    if (!rc && copy[0] && copy[1] && !memcmp(copy[0], copy[1], bytes))
        few->same = count_nonzero_bytes(copy[0], bytes) < telling_bytes ? NOT_KNOWN : SAME_BITS;
    free(copy[0]);
    free(copy[1]);
    return rc;
}

/* The product `all` by fewer threads, if that gives the same bits. */
static int run_with_fewer(struct device *d, const struct product *all, int threads,
                          void *const data[OPERANDS], struct error *err)
{
    struct key key = all->key;
    key.threads = threads;
    omp_set_num_threads(threads);
    struct product *few = find_or_create(d->state, &key, err);
    if (!few || (few->same == NOT_KNOWN && compare(d->state, few, all, data, err)))
        return -1;
    const struct product *p = few->same == SAME_BITS ? few : all;
    omp_set_num_threads((int)p->key.threads);
    return execute(d->state, p, data, err);
}

static int run(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    struct state *s = d->state;
    enum addend addend = !g->addend ? ADDEND_NONE : g->addend == g->c ? ADDEND_SELF : ADDEND_OTHER;
    const struct key key = key_of(g, addend, d->threads);
    void *const data[OPERANDS] = {(void *)g->a, (void *)g->b, g->c, (void *)g->addend, scratch};
    struct product *p = find_or_create(s, &key, err);
    if (!p)
        return -1;
    if (!p->primitive)
        return gemm_by_blocks(d, g, scratch, err);
    int threads = run_queue_threads(d); /* asked once, as it may be another number the next time */
    if (threads < d->threads)
        return run_with_fewer(d, p, threads, data, err);
    return execute(s, p, data, err);
}

/* oneDNN cuts a product for the threads OpenMP would give this thread. */
int gemm_library(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    int saved = omp_get_max_threads();
    if (g->m == 0 || g->n == 0)
        return 0;
    omp_set_num_threads(d->threads);
    int status = run(d, g, scratch, err);
    omp_set_num_threads(saved);
    return status;
}

static size_t scratch_of(struct device *d, const struct gemm *g, enum addend addend)
{
    const struct key key = key_of(g, addend, d->threads);
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t md[3];
    memset(md, 0, sizeof md);
    make_descriptors(&pd, md, d->state, &key);
    size_t bytes = pd ? dnnl_memory_desc_get_size(scratch_md(pd)) : gemm_by_blocks_scratch(d, g);
    drop_descriptors(pd, md);
    return bytes;
}

/* The scratch has to be enough for every kind of addend, because the call's is not known yet. */
size_t gemm_library_scratch(struct device *d, const struct gemm *g)
{
    int saved = omp_get_max_threads();
    size_t most = 0;
    omp_set_num_threads(d->threads);
    for (enum addend addend = 0; addend < ADDEND_KINDS && g->m > 0 && g->n > 0; addend++) {
        size_t bytes = scratch_of(d, g, addend);
        most = max_bytes(most, bytes);
    }
    omp_set_num_threads(saved);
    return most;
}

int gemm_open(struct device *d, struct error *err)
{
    struct state *s = array_make(1, sizeof *s);
    d->state = s;
    if (!ONEDNN_CHECK(dnnl_engine_create(&s->engine, dnnl_cpu, 0), err) &&
        !ONEDNN_CHECK(dnnl_stream_create(&s->stream, s->engine, dnnl_stream_default_flags), err))
        return 0;
    gemm_close(d);
    return -1;
}

void gemm_close(struct device *d)
{
    struct state *s = d->state;
    if (!s)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (struct product *p = s->buckets[i], *next; p; p = next) {
            next = p->next;
            product_destroy(p);
        }
    if (s->stream)
        dnnl_stream_destroy(s->stream);
    if (s->engine)
        dnnl_engine_destroy(s->engine);
    free(s);
    d->state = NULL;
}

const char *device_gemm_library(void)
{
#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(
        DNNL_VERSION_PATCH);
}
