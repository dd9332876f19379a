/* gemm_tune.c - measure the algorithms of a product and keep the fastest; contracts in product.h.
 *
 *   ask        the library for up to PRODUCT_TRIED suggestions, under the conditions of gemm.c
 *   leave out  those whose sums may come in any order, or be split wrongly, should it suggest any
 *   fill       both operands with random numbers: with zeros a GPU takes less power and is faster
 *              than in training; in fp8 they are rounded once, which is not in the time
 *   measure    each: run once to load the kernel, then RUNS times between events; its time is the
 *              shortest
 *   keep       the fastest; of equally fast ones that which the library suggests first
 *
 * All runs have the same operands, which small products find in the L2 cache here and not in
 * training. An algorithm is written as the library stores it in memory, which is valid within one
 * version of the library; its settings are written beside it for people, and compared when it is
 * read again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "device/cuda/gemm.h"

/* A prime number, so that no two rows of an operand are the same (unless there are more of them),
 * and a sum has no term several times: what one term is of it would be less. */
enum { RUNS = 5, PATTERN_ELEMS = (1 << 17) - 1 };

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == PRODUCT_WORDS * sizeof(uint64_t), "word");

const char *cuda_products_library(const struct device *d, char text[192])
{
    char library[64], cut[48] = "";
    int sms = cuda_state(d)->gemms->sms;
    if (sms)
        snprintf(cut, sizeof cut, ", %d multiprocessors", sms);
    snprintf(text, 192, "%s, %s%s", d->name, cuda_gemm_library(library), cut);
    return text;
}

void cuda_products_note(struct device *d, int on)
{
    struct cuda_gemms *s = cuda_state(d)->gemms;
    if (on)
        s->noted_count = 0;
    s->noting = on;
}

int cuda_products_noted(const struct device *d)
{
    return cuda_state(d)->gemms->noted_count;
}

void cuda_product_shape(const struct device *d, int i, int64_t *shape)
{
    struct gemm_key key = gemm_key_of(&cuda_state(d)->gemms->noted[i].g);
    memcpy(shape, &key, sizeof key);
}

/* In the order of product_setting_names. */
static const struct {
    cublasLtMatmulAlgoConfigAttributes_t which;
    size_t bytes;
} settings[PRODUCT_SETTINGS] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};

/* Return setting i of an algorithm, or -1 where this algorithm has no such setting. */
static int64_t setting_of(const cublasLtMatmulAlgo_t *algo, int i)
{
    uint32_t four = 0;
    uint16_t two = 0;
    void *to = settings[i].bytes == 4 ? (void *)&four : &two;
    size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(algo, settings[i].which, to, settings[i].bytes,
                                             &written) != CUBLAS_STATUS_SUCCESS)
        return -1;
    return settings[i].bytes == 4 ? four : two;
}

int gemm_has_right_sums(const struct gemm_key *key, const cublasLtMatmulAlgo_t *algo)
{
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    size_t written;
    return cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                &scheme, sizeof scheme,
                                                &written) == CUBLAS_STATUS_SUCCESS &&
           (scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
            (scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE && gemm_may_split(key)));
}

static size_t extent_bytes(int64_t rows, int64_t cols, int64_t ld, enum dtype dt)
{
    return (size_t)((rows - 1) * ld + cols) * dtype_bytes(dt);
}

int gemm_fill(struct device *d, void *to, size_t bytes, const void *pattern, size_t have,
              struct error *err)
{
    have = have < bytes ? have : bytes;
    int rc = device_upload(d, to, pattern, have, err);
    for (; have < bytes && !rc; have *= 2) {
        size_t more = have < bytes - have ? have : bytes - have;
        rc = device_copy_async(d, DEVICE_COMPUTE, (char *)to + have, to, more, err);
    }
    return rc;
}

/* Fill device memory with random numbers from -1 to 1, of each operand others, the same
 * PATTERN_ELEMS over and over. */
static int fill(struct device *d, const char *operand, void *to, size_t bytes, enum dtype dt,
                struct error *err)
{
    const int64_t all = (int64_t)(bytes / dtype_bytes(dt)),
                  elems = all < PATTERN_ELEMS ? all : PATTERN_ELEMS;
    float *values = array_make((size_t)elems, sizeof *values);
    void *pattern = array_make((size_t)elems, dtype_bytes(dt));
    philox_fill_uniform(values, philox_key(1, operand), 0, elems, 1);
    dtype_narrow(pattern, dt, values, elems);
    int rc = gemm_fill(d, to, bytes, pattern, (size_t)elems * dtype_bytes(dt), err);
    free(values);
    free(pattern);
    return rc;
}

int gemm_fill_operands(struct device *d, const struct gemm *g, struct error *err)
{
    int64_t rows_a = g->trans_a ? g->k : g->m, cols_a = g->trans_a ? g->m : g->k;
    int64_t rows_b = g->trans_b ? g->n : g->k, cols_b = g->trans_b ? g->k : g->n;
    return fill(d, "a", (void *)g->a, extent_bytes(rows_a, cols_a, g->lda, g->dt), g->dt, err) ||
                   fill(d, "b", (void *)g->b, extent_bytes(rows_b, cols_b, g->ldb, g->dt), g->dt,
                        err)
               ? -1
               : 0;
}

int gemm_fill_result(struct device *d, const struct gemm *g, struct error *err)
{
    const size_t bytes = extent_bytes(g->m, g->n, g->ldc, g->dt_c);
    if (fill(d, "c", g->c, bytes, g->dt_c, err))
        return -1;
    return g->addend && g->addend != g->c
               ? fill(d, "addend", (void *)g->addend, bytes, g->dt_c, err)
               : 0;
}

/* Measure the product by p's algorithm: *ns is the shortest of RUNS times, in nanoseconds. */
static int measure(struct device *d, const struct gemm_product *p, const struct gemm *g,
                   const struct gemm_operands *of, struct device_event *const event[RUNS + 1],
                   int64_t *ns, struct error *err)
{
    for (int i = 0; i <= RUNS; i++)
        if (gemm_multiply(d, p, g, of, err) ||
            device_event_record(d, event[i], DEVICE_COMPUTE, err))
            return -1;
    if (device_sync(d, err))
        return -1;
    *ns = device_event_ns(d, event[0], event[1]);
    for (int i = 1; i < RUNS; i++) {
        int64_t one = device_event_ns(d, event[i], event[i + 1]);
        *ns = one < *ns ? one : *ns;
    }
    return 0;
}

static void keep(struct product_choice *choice, const cublasLtMatmulHeuristicResult_t *found,
                 int64_t ns)
{
    memcpy(choice->word, &found->algo, sizeof choice->word);
    choice->workspace_bytes = (int64_t)found->workspaceSize;
    choice->ns = ns;
    for (int i = 0; i < PRODUCT_SETTINGS; i++)
        choice->setting[i] = setting_of(&found->algo, i);
}

/* Measure all suggestions and keep the fastest in choice.  Returns 0, 1 where none can be used, or
 * -1 with err set. */
static int try_all(struct device *d, struct gemm_product *p, const struct gemm_noted *n,
                   const cublasLtMatmulHeuristicResult_t *found, int count,
                   struct device_event *const event[RUNS + 1], struct product_choice *choice,
                   struct error *err)
{
    const struct gemm_operands of = gemm_make_operands(d, &n->g, n->scratch);
    for (int i = 0; i < count; i++) {
        struct error refused;
        int64_t ns;
        if (found[i].state != CUBLAS_STATUS_SUCCESS ||
            !gemm_has_right_sums(&p->key, &found[i].algo))
            continue;
        p->algo = found[i].algo;
        p->workspace_bytes = found[i].workspaceSize;
        /* the library may refuse its own suggestion */
        if (gemm_multiply(d, p, &n->g, &of, &refused))
            continue;
        if (measure(d, p, &n->g, &of, event, &ns, err))
            return -1;
        if (!choice->tried++)
            choice->first_ns = ns;
        if (choice->tried == 1 || ns < choice->ns)
            keep(choice, &found[i], ns);
    }
    return choice->tried ? 0 : 1;
}

/* Choose p's algorithm by measuring.  Returns 0, 1 where the library has none that can be used, or
 * -1 with err set. */
static int tune(struct device *d, struct gemm_product *p, const struct gemm_noted *n,
                struct product_choice *choice, struct error *err)
{
    cublasLtMatmulHeuristicResult_t found[PRODUCT_TRIED] = {0};
    struct device_event *event[RUNS + 1] = {NULL};
    int count,
        rc = gemm_suggest(p, cuda_state(d)->gemms->handle, PRODUCT_TRIED, found, &count, err);
    if (rc || p->plain)
        return rc ? -1 : 1;
    for (int i = 0; i <= RUNS && !rc; i++)
        rc = (event[i] = device_event_create(d, DEVICE_EVENT_TIMED, err)) ? 0 : -1;
    if (!rc && !(rc = gemm_fill_operands(d, &n->g, err)))
        rc = try_all(d, p, n, found, count, event, choice, err);
    for (int i = 0; i <= RUNS; i++)
        device_event_destroy(d, event[i]);
    return rc;
}

int cuda_product_tune(struct device *d, int i, struct product_choice *choice, struct error *err)
{
    const struct gemm_noted *n = &cuda_state(d)->gemms->noted[i];
    enum cudaStreamCaptureStatus capture;
    struct gemm_key key = gemm_key_of(&n->g);
    if (CUDA_CHECK(cudaStreamIsCapturing(cuda_compute(d), &capture), err))
        return -1;
    if (capture != cudaStreamCaptureStatusNone)
        return gemm_failed(CUBLAS_STATUS_NOT_SUPPORTED, "timing while ops are recorded", &key, err);
    struct gemm_product *p = gemm_product_describe(cuda_state(d)->gemms, &key, err);
    if (!p)
        return -1;
    memset(choice, 0, sizeof *choice);
    memcpy(choice->shape, &key, sizeof key);
    int rc = tune(d, p, n, choice, err);
    if (rc == 1 && p->plain)
        gemm_put(cuda_state(d)->gemms, p); /* so that nobody asks, and is warned, again */
    else
        gemm_product_free(p);
    return rc;
}

/* Check that p->algo, read from a file, has the settings in choice and can compute p; set the bytes
 * of its workspace.  Returns 0, or -1 with err set. */
static int check(const struct device *d, struct gemm_product *p,
                 const struct product_choice *choice, struct error *err)
{
    const struct gemm_key *key = &p->key;
    cublasLtMatmulHeuristicResult_t found = {0};
    for (int i = 0; i < PRODUCT_SETTINGS; i++)
        if (setting_of(&p->algo, i) != choice->setting[i])
            return gemm_failed(CUBLAS_STATUS_INVALID_VALUE, product_setting_names[i], key, err);
    if (GEMM_CHECK(cublasLtMatmulAlgoCheck(cuda_state(d)->gemms->handle, p->op, p->b, p->a, p->c,
                                           p->c, &p->algo, &found),
                   key, err))
        return -1;
    p->workspace_bytes = found.workspaceSize;
    if (p->workspace_bytes > cuda_workspace_bytes(key->m, key->n) ||
        !gemm_has_right_sums(key, &p->algo))
        return gemm_failed(CUBLAS_STATUS_NOT_SUPPORTED, "workspace or partial sums", key, err);
    return 0;
}

/* Return 1 where a key that was read from a file can be that of a product of trireme's. */
static int is_key(const struct gemm_key *key)
{
    const int64_t sizes[] = {key->m, key->n, key->k, key->lda, key->ldb, key->ldc};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] < 1)
            return 0;
    return key->dt >= 0 && key->dt < DTYPE_COUNT && dtype_is_narrow_float((enum dtype)key->dt) &&
           (key->dt_c == DTYPE_F32 || key->dt_c == key->dt) && key->trans_a >> 1 == 0 &&
           key->trans_b >> 1 == 0 && key->addend >= GEMM_ADDEND_NONE &&
           key->addend <= GEMM_ADDEND_OTHER && key->fp8 >= GEMM_FP8_NONE &&
           key->fp8 <= GEMM_FP8_SQUARES_OF_B && (!key->fp8 || key->dt == DTYPE_BF16);
}

int cuda_product_take(struct device *d, const struct product_choice *choice, struct error *err)
{
    struct gemm_key key;
    memcpy(&key, choice->shape, sizeof key);
    if (!is_key(&key))
        return error_set(err, "an algorithm of what is no product");
    struct gemm_product *p = gemm_product_describe(cuda_state(d)->gemms, &key, err);
    if (!p)
        return -1;
    memcpy(&p->algo, choice->word, sizeof p->algo);
    if (check(d, p, choice, err)) {
        gemm_product_free(p);
        return -1;
    }
    gemm_put(cuda_state(d)->gemms, p);
    return 0;
}
