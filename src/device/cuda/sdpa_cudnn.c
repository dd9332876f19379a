/* sdpa_cudnn.c - attention by cuDNN, where it has a kernel for the shape: a reproducible one, but
 * for a backward with any_order.
 *
 * A plan is made once for a shape and direction and kept; what fails on the way leaves the shape to
 * the own kernels, for good, and the reason is kept for device_attention().  Making one compiles
 * for a second, so that cuda_sdpa_prepare() has a thread do it: a plan is made for the GPU's
 * properties, without a handle of cuDNN, and left as text; the first call of the shape waits for
 * the thread and reads the text, which takes milliseconds.  Where no thread was asked, the first
 * call itself does both, so that the plan is the same.  The packed projections are described by
 * strides, nothing is copied.  It runs in the slices of sdpa_sizes.c, or in the tiles of
 * sdpa_tiles.c.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "base/text.h"
#include "device/cuda/sdpa.h"
#include "device/cuda/sdpa_graph.h"
#include "device/cuda/sdpa_tiles.h"
#include "device/cuda/state.h"

enum {
    LEAST_VERSION = 91002, /* correct on Hopper, and masks with -inf */
    TAIL_VERSION = 91500,  /* the last whose backward needs whole tiles of keys */
    TILE = 128,
};

struct entry {
    struct attention a;
    enum device_pass pass;
    int usable;
    struct sdpa_slice slice;
    struct sdpa_plan plan[2]; /* by enum sdpa_mask; tiles below the diagonal have the second */
    size_t workspace_bytes;   /* of the one that wants more */
    struct error why;         /* it is not usable */
    int met;                  /* it was asked for */
    struct device *d;         /* on which it runs */
    int is_ready;             /* it was prepared, for its first call */
    int is_being_made; /* by this thread; until it is joined, plan, text and why are its own */
    pthread_t maker;
    struct sdpa_text text[2]; /* of plans that were made and dropped, as plan[]; or nothing */
    int was_read;             /* the plans are those of the texts */
    struct entry *next;
};

struct cuda_sdpas {
    cudnnHandle_t handle; /* NULL: not to be used */
    struct sdpa_text gpu; /* its properties; nothing before the first plan is asked for */
    struct entry *entries;
    int64_t tile_tokens; /* of a reproducible backward, 0: as planned */
    struct error why;    /* it could not be opened */
};

const char *cuda_sdpa_refusal(const struct attention *a, enum device_pass pass, size_t version)
{
    if (a->dt == DTYPE_F32)
        return "cuDNN has none in fp32";
    if (a->forms & ATTENTION_DOCUMENTS)
        return "it is not asked for packed documents (data.packing)";
    if (a->forms & ATTENTION_WINDOW)
        return "it is not asked for sliding windows";
    if (a->forms & ATTENTION_DROPOUT)
        return "it does not drop the weights that trireme drops (model.attention_dropout)";
    if (a->forms)
        return "it is not asked for parts of sequences";
    if (!sdpa_is_small(a))
        return "more than 2^31 elements of queries, keys and values in a sequence were never tried";
    if (!sdpa_suits(a))
        return "its heads are nothing for cuDNN";
    if (version < LEAST_VERSION)
        return "cuDNN 9.10.2 or newer is needed";
    if (pass == DEVICE_BACKWARD && version <= TAIL_VERSION && sdpa_slice_of(a, pass).tokens % TILE)
        return "cuDNN up to 9.15.0 adds up too much where the sequence is no multiple of 128";
    if (!cuda_sdpa_scratch(a, pass))
        return "cuDNN would take too much memory";
    return NULL;
}

/* ---- plans ---- */

static int same(const struct attention *a, const struct attention *b)
{
    return a->dt == b->dt && a->batch == b->batch && a->seq == b->seq && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->forms == b->forms &&
           a->any_order == b->any_order && a->scratch_bytes == b->scratch_bytes;
}

static int is_tiled(const struct entry *e)
{
    return e->slice.tokens < e->a.seq;
}

static const char *pass_name(const struct entry *e)
{
    return e->pass == DEVICE_BACKWARD ? "backward" : "forward";
}

/* What of backward's scratch comes before cuDNN's. */
static size_t own_bytes(const struct entry *e)
{
    return e->pass == DEVICE_FORWARD ? 0 : sdpa_places_of(&e->a, e->slice).workspace;
}

/* From its text, or anew. */
static int make_plan(struct entry *e, enum sdpa_mask mask, const struct sdpa_target *target)
{
    const struct sdpa_text *text = &e->text[mask];
    if (text->text && !sdpa_plan_read(&e->plan[mask], text, target))
        return 0;
    e->was_read = 0;
    return sdpa_plan_make(&e->plan[mask], &e->a, e->slice, e->pass, mask, target, &e->why);
}

static int make_plans(struct entry *e, const struct sdpa_target *target)
{
    e->was_read = 1;
    for (enum sdpa_mask mask = SDPA_CAUSAL; mask <= (is_tiled(e) ? SDPA_ALL : SDPA_CAUSAL); mask++)
        if (make_plan(e, mask, target))
            return -1;
    return 0;
}

static void drop_plans(struct entry *e)
{
    sdpa_plan_drop(&e->plan[SDPA_CAUSAL]);
    sdpa_plan_drop(&e->plan[SDPA_ALL]);
}

static void free_texts(struct entry *e)
{
    sdpa_text_free(&e->text[SDPA_CAUSAL]);
    sdpa_text_free(&e->text[SDPA_ALL]);
}

/* Whether it is usable, and its plans. */
static void prepare_entry(struct entry *e)
{
    const struct cuda_sdpas *s = cuda_state(e->d)->sdpas;
    const struct sdpa_target target = {.handle = s->handle};
    const char *refusal = cuda_sdpa_refusal(&e->a, e->pass, cudnnGetVersion());
    size_t most = cuda_sdpa_scratch(&e->a, e->pass);
    if (s->tile_tokens && e->pass == DEVICE_BACKWARD)
        most = sdpa_slice_bytes(&e->a, e->slice) + SDPA_ALIGN;
    if (refusal)
        error_set(&e->why, "%s", refusal);
    else if (!s->handle)
        e->why = s->why;
    else if (!make_plans(e, &target)) {
        for (int mask = SDPA_CAUSAL; mask <= SDPA_ALL; mask++)
            if (e->plan[mask].workspace_bytes > e->workspace_bytes)
                e->workspace_bytes = e->plan[mask].workspace_bytes;
        e->usable = e->workspace_bytes + own_bytes(e) + SDPA_ALIGN <= most;
        if (!e->usable)
            error_set(
                &e->why,
                "cuDNN wants %zu bytes, %zu were planned; another version of it may want less",
                e->workspace_bytes, most);
        if (!e->was_read)
            log_warn(
                NULL,
                "attention, %s, %lld tokens, heads of %lld: cuDNN's plan could not be read from "
                "text, so it was compiled where it was needed; the first step takes longer",
                pass_name(e), (long long)e->a.seq, (long long)e->a.head_dim);
    }
}

static struct sdpa_slice slice_for(const struct cuda_sdpas *s, const struct attention *a,
                                   enum device_pass pass)
{
    if (s->tile_tokens && pass == DEVICE_BACKWARD && !a->any_order)
        return (struct sdpa_slice){1, 1, s->tile_tokens};
    return sdpa_slice_of(a, pass);
}

static struct entry *entry_of(const struct cuda_sdpas *s, const struct attention *a,
                              enum device_pass pass)
{
    struct entry *e = s->entries;
    while (e && !(e->pass == pass && same(&e->a, a)))
        e = e->next;
    return e;
}

/* Without plans. */
static struct entry *add_entry(struct device *d, const struct attention *a, enum device_pass pass)
{
    struct cuda_sdpas *s = cuda_state(d)->sdpas;
    struct entry *e = array_make(1, sizeof *e);
    e->a = *a;
    e->pass = pass;
    e->slice = slice_for(s, a, pass);
    e->d = d;
    e->next = s->entries;
    s->entries = e;
    return e;
}

/* May cuDNN be asked?  If so, the GPU's properties are there. */
static int may_ask(struct device *d, const struct attention *a, enum device_pass pass)
{
    struct cuda_sdpas *s = cuda_state(d)->sdpas;
    return s->handle && !cuda_sdpa_refusal(a, pass, cudnnGetVersion()) &&
           (s->gpu.text || !sdpa_gpu_write(&s->gpu, d->index));
}

/* A thread, or the first call's; the current GPU is one of each thread. */
static void *make_texts(void *entry)
{
    struct entry *e = entry;
    struct sdpa_target target = {0};
    if (cudaSetDevice(e->d->index) != cudaSuccess ||
        sdpa_gpu_read(&target.properties, &cuda_state(e->d)->sdpas->gpu))
        return NULL;
    if (!make_plans(e, &target))
        for (int mask = SDPA_CAUSAL; mask <= SDPA_ALL; mask++)
            if (e->plan[mask].plan)
                sdpa_plan_write(&e->text[mask], &e->plan[mask]);
    drop_plans(e);
    cudnnBackendDestroyDescriptor(target.properties);
    return NULL;
}

static void wait_for_maker(struct entry *e)
{
    if (e->is_being_made)
        pthread_join(e->maker, NULL);
    e->is_being_made = 0;
}

/* The plan of a shape, made if need be; NULL where cuDNN is not to be used. */
static struct entry *find(struct device *d, const struct attention *a, enum device_pass pass)
{
    struct entry *e = entry_of(cuda_state(d)->sdpas, a, pass);
    e = e ? e : add_entry(d, a, pass);
    if (!e->is_ready) {
        if (e->is_being_made)
            wait_for_maker(e);
        else if (may_ask(d, a, pass))
            make_texts(e);
        prepare_entry(e);
        free_texts(e);
        e->is_ready = 1;
    }
    e->met = 1;
    return e->usable ? e : NULL;
}

/* Where no thread can be started, the first call makes the plans. */
void cuda_sdpa_prepare(struct device *d, const struct attention *a, enum device_pass pass)
{
    struct cuda_sdpas *s = cuda_state(d)->sdpas;
    if (entry_of(s, a, pass) || !may_ask(d, a, pass))
        return;
    struct entry *e = add_entry(d, a, pass);
    e->is_being_made = !pthread_create(&e->maker, NULL, make_texts, e);
    if (e->is_being_made)
        return;
    s->entries = e->next;
    free(e);
}

void cuda_sdpa_refuse(struct device *d, const struct attention *a, enum device_pass pass,
                      const char *why)
{
    struct entry *e = entry_of(cuda_state(d)->sdpas, a, pass);
    e = e ? e : add_entry(d, a, pass);
    wait_for_maker(e);
    free_texts(e);
    drop_plans(e);
    e->usable = 0;
    e->is_ready = 1;
    error_set(&e->why, "%s", why);
}

/* ---- running them ---- */

static cudnnStatus_t run_plan(struct cuda_sdpas *s, const struct sdpa_plan *plan,
                              void *const tensor[SDPA_TENSORS], void *workspace)
{
    cudnnBackendDescriptor_t pack = NULL;
    int64_t uid[SDPA_TENSORS], count = 0;
    void *pointer[SDPA_TENSORS];
    for (int64_t i = SDPA_NONE + 1; i < SDPA_TENSORS; i++)
        if (plan->tensors >> i & 1) {
            uid[count] = i;
            pointer[count++] = tensor[i];
        }
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, count, uid);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, count, pointer);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(s->handle, plan->plan, pack);
    if (pack)
        cudnnBackendDestroyDescriptor(pack);
    return status;
}

/* Pointers of the slice that begins at this sequence, key/value head, query and key. */
static void point(void *tensor[SDPA_TENSORS], const struct attention *a,
                  const struct sdpa_tensors *t, const struct sdpa_tile *at)
{
    int64_t dim = a->head_dim, head = at->kv_head * (a->heads / a->kv_heads);
    int64_t row = (a->heads + 2 * a->kv_heads) * dim, start = at->batch * a->seq;
    int64_t q = (start + at->query) * row + head * dim;
    int64_t k = (start + at->key) * row + (a->heads + at->kv_head) * dim, v = k + a->kv_heads * dim;
    int64_t o = ((start + at->query) * a->heads + head) * dim;
    tensor[SDPA_Q] = (void *)(t->qkv + q);
    tensor[SDPA_K] = (void *)(t->qkv + k);
    tensor[SDPA_V] = (void *)(t->qkv + v);
    tensor[SDPA_O] = (void *)(t->o + o);
    tensor[SDPA_LSE] = (void *)(t->lse + (at->batch * a->heads + head) * a->seq);
    if (!t->dqkv)
        return;
    tensor[SDPA_DO] = (void *)(t->dout + o);
    tensor[SDPA_DQ] = t->dqkv + q;
    tensor[SDPA_DK] = t->dqkv + k;
    tensor[SDPA_DV] = t->dqkv + v;
}

/* One run of an attention on its way. */
struct running {
    struct device *d;
    struct entry *e;
    const struct sdpa_tensors *t;
    void *tensor[SDPA_TENSORS], *workspace;
    size_t dq_sum_bytes;
};

/* Run a plan where tensors are; 1, or 0 when cuDNN failed and will not be asked again. */
static int run_slice(struct running *r, enum sdpa_mask mask)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (r->tensor[SDPA_DQ_SUM] && cudaMemsetAsync(r->tensor[SDPA_DQ_SUM], 0, r->dq_sum_bytes,
                                                  cuda_compute(r->d)) != cudaSuccess)
        status = CUDNN_STATUS_EXECUTION_FAILED;
    if (status == CUDNN_STATUS_SUCCESS)
        status = run_plan(cuda_state(r->d)->sdpas, &r->e->plan[mask], r->tensor, r->workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        return 1;
    r->e->usable = 0;
    error_set(&r->e->why, "cuDNN: run: %s", cudnnGetErrorString(status));
    log_warn(NULL,
             "attention, %s, %lld tokens, heads of %lld: by trireme's own kernels from now on: %s",
             pass_name(r->e), (long long)r->e->a.seq, (long long)r->e->a.head_dim, r->e->why.text);
    return 0;
}

static int run_tile(void *context, const struct sdpa_tile *tile)
{
    struct running *r = context;
    point(r->tensor, &r->e->a, r->t, tile);
    r->tensor[SDPA_DQ] = tile->dq;
    r->tensor[SDPA_DK] = tile->dk;
    r->tensor[SDPA_DV] = tile->dv;
    r->tensor[SDPA_LSE] = (void *)tile->lse;
    return run_slice(r, tile->query == tile->key ? SDPA_CAUSAL : SDPA_ALL);
}

/* All slices, one after another. */
static int run_slices(struct running *r)
{
    const struct attention *a = &r->e->a;
    struct sdpa_tile at = {0};
    for (; at.batch < a->batch; at.batch += r->e->slice.batch)
        for (at.kv_head = 0; at.kv_head < a->kv_heads; at.kv_head += r->e->slice.kv_heads) {
            point(r->tensor, a, r->t, &at);
            if (!run_slice(r, SDPA_CAUSAL))
                return 0;
        }
    return 1;
}

static int run(struct device *d, struct entry *e, const struct attention *a,
               const struct sdpa_tensors *t, void *scratch, size_t scratch_bytes)
{
    float scale = a->scale, masked = -INFINITY, one = 1;
    const struct sdpa_places at = sdpa_places_of(a, e->slice);
    char *start = (char *)sdpa_align((size_t)(uintptr_t)scratch);
    struct running r = {.d = d,
                        .e = e,
                        .t = t,
                        .tensor = {[SDPA_SCALE] = &scale, [SDPA_MASKED] = &masked},
                        .workspace = start + own_bytes(e),
                        .dq_sum_bytes = at.dq_sum_bytes};
    if ((char *)r.workspace + e->workspace_bytes > (char *)scratch + scratch_bytes)
        return 0;
    if (e->pass == DEVICE_BACKWARD) {
        r.tensor[SDPA_ROWS] = start + at.rows;
        r.tensor[SDPA_DQ_SUM] = a->any_order ? start + at.dq_sum : NULL;
        r.tensor[SDPA_ONE] = &one;
    }
    return is_tiled(e) ? sdpa_tiles_run(d, a, e->slice, t, start, run_tile, &r) : run_slices(&r);
}

int cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                      const void *qkv, void *scratch, size_t scratch_bytes)
{
    const struct sdpa_tensors t = {.qkv = qkv, .o = o, .lse = lse};
    struct entry *e = find(d, a, DEVICE_FORWARD);
    return e && run(d, e, a, &t, scratch, scratch_bytes);
}

int cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv, const void *dout,
                       const void *o, const float *lse, const void *qkv, void *scratch,
                       size_t scratch_bytes)
{
    const struct sdpa_tensors t = {.qkv = qkv, .o = o, .dout = dout, .dqkv = dqkv, .lse = lse};
    struct entry *e = find(d, a, DEVICE_BACKWARD);
    return e && run(d, e, a, &t, scratch, scratch_bytes);
}

/* ---- the library ---- */

const char *cuda_sdpa_library(char text[64])
{
    size_t version = cudnnGetVersion();
    snprintf(text, 64, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return text;
}

/* A cuDNN that cannot be used is no failure. */
int cuda_sdpa_open(struct device *d, struct error *err)
{
    struct cuda_sdpas *s = array_make(1, sizeof *s);
    cuda_state(d)->sdpas = s;
    if (cudnnGetVersion() < LEAST_VERSION)
        return 0; /* every shape is refused */
    cudnnStatus_t status = cudnnCreate(&s->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetStream(s->handle, cuda_compute(d));
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    error_set(&s->why, "cuDNN: open: %s", cudnnGetErrorString(status));
    if (s->handle)
        cudnnDestroy(s->handle);
    s->handle = NULL;
    return 0;
}

static void forget_plans(struct cuda_sdpas *s)
{
    for (struct entry *e = s->entries, *next; e; e = next) {
        next = e->next;
        wait_for_maker(e);
        free_texts(e);
        drop_plans(e);
        free(e);
    }
    s->entries = NULL;
}

void cuda_sdpa_set_tile_tokens(struct device *d, int64_t tokens)
{
    struct cuda_sdpas *s = cuda_state(d)->sdpas;
    forget_plans(s);
    s->tile_tokens = tokens;
}

void cuda_sdpa_close(struct device *d)
{
    struct cuda_sdpas *s = cuda_state(d)->sdpas;
    if (!s)
        return;
    forget_plans(s);
    if (s->handle)
        cudnnDestroy(s->handle);
    sdpa_text_free(&s->gpu);
    free(s);
    cuda_state(d)->sdpas = NULL;
}

void cuda_sdpa_report(const struct device *d, struct device_attention *a)
{
    *a = (struct device_attention){.has_library = 1};
    for (const struct entry *e = cuda_state(d)->sdpas->entries; e; e = e->next) {
        if (!e->met)
            continue;
        a->by_library += e->usable;
        a->from_text += e->usable && e->was_read;
        a->by_own += !e->usable;
        if (!e->usable && e->a.dt != DTYPE_F32)
            text_join(a->why, sizeof a->why, "; ", "%s of %lld heads of %lld over %lld tokens: %s",
                      pass_name(e), (long long)e->a.heads, (long long)e->a.head_dim,
                      (long long)e->a.seq, e->why.text);
    }
}
