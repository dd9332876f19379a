/* gemm.c - matrix products by cuBLASLt.
 *
 * The library's matrices are column-major.  Memory that holds x row-major holds x^T column-major,
 * so c = a' b' is given to the library as c^T = b'^T a'^T: the operands change places and nothing
 * is copied.  (a' and b' are a and b, or their transposes, as struct gemm says.)
 *
 * The algorithm of a product is the library's first suggestion, or the fastest one, which
 * gemm_tune.c measured and the run keeps.  The suggestion depends on the shape, the alignment of
 * the pointers, the scratch and the chip alone, so that two runs take the same.  An algorithm may
 * split sums over thread blocks only where it keeps the partial sums in fp32 and adds them in order
 * in a second kernel, and where the library splits rightly (gemm_may_split()).  Descriptors and
 * algorithm are kept for every distinct product (struct gemm_key).  Asking the library for a
 * suggestion runs nothing on the GPU, so a product may be new while a CUDA graph is recorded.
 *
 * In fp8 (struct gemm's `fp8`) kernels first round both operands into the scratch, with k
 * contiguous in both, and the library gets their scales too.
 *
 * gemm_plain.cu multiplies where k is 0, where the library has no algorithm, and where the
 * self-check found the library's results wrong (struct device's `replaced`).  In the two latter
 * cases, and on a GPU without fp8, gemm_fp8.c computes a product in fp8 in bf16 instead.
 */
#include "device/cuda/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/log.h"

int gemm_failed(cublasStatus_t status, const char *call, const struct gemm_key *key,
                struct error *err)
{
    const char *type = key->fp8 ? "fp8" : dtype_name((enum dtype)key->dt);
    return error_set(err, "cuBLASLt: %.*s: %s, in %s[%lld,%lld] x %s[%lld,%lld] to %s",
                     (int)strcspn(call, "("), call, cublasLtGetStatusString(status), type,
                     (long long)key->m, (long long)key->k, type, (long long)key->k,
                     (long long)key->n, dtype_name((enum dtype)key->dt_c));
}

static cudaDataType_t type_of(int64_t dt)
{
    return dt == DTYPE_BF16 ? CUDA_R_16BF : dt == DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

enum { MOST_ALIGNED = 16 }; /* more helps no kernel */

/* Return the largest power of two, up to MOST_ALIGNED, that divides the address. */
static int64_t alignment(const void *address)
{
    uintptr_t bits = (uintptr_t)address | MOST_ALIGNED;
    return (int64_t)(bits & (~bits + 1));
}

struct gemm_key gemm_key_of(const struct gemm *g)
{
    struct gemm_key key = {
        .dt = g->dt,
        .dt_c = g->dt_c,
        .trans_a = g->trans_a != 0,
        .trans_b = g->trans_b != 0,
        .addend = !g->addend          ? GEMM_ADDEND_NONE
                  : g->addend == g->c ? GEMM_ADDEND_SELF
                                      : GEMM_ADDEND_OTHER,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .lda = g->lda,
        .ldb = g->ldb,
        .ldc = g->ldc,
        .align_a = alignment(g->a),
        .align_b = alignment(g->b),
        .align_c = alignment(g->c),
        .align_addend = alignment(g->addend ? g->addend : g->c),
        .fp8 = g->fp8,
    };
    if (g->fp8) { /* the rounded operands have one layout, whatever that of a and b */
        key.trans_a = 0;
        key.trans_b = 1;
        key.k = key.lda = key.ldb = round_up(g->k, FP8_BLOCK);
        key.align_a = key.align_b = MOST_ALIGNED;
    }
    return key;
}

int gemm_may_split(const struct gemm_key *key)
{
    enum { LARGEST_BLOCK = 128 };
    return key->k % LARGEST_BLOCK == 0;
}

void gemm_product_free(struct gemm_product *p)
{
    if (!p)
        return;
    if (p->op)
        cublasLtMatmulDescDestroy(p->op);
    if (p->a)
        cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        cublasLtMatrixLayoutDestroy(p->b);
    if (p->c)
        cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}

/* Make the library's layout of a [rows, cols] matrix of ours, whose transpose is in memory where
 * trans is 1.  The library reads memory column-major, so that its rows are our columns. */
static cublasStatus_t describe(cublasLtMatrixLayout_t *layout, cudaDataType_t type, int64_t rows,
                               int64_t cols, int64_t ld, int64_t trans)
{
    return cublasLtMatrixLayoutCreate(layout, type, (uint64_t)(trans ? rows : cols),
                                      (uint64_t)(trans ? cols : rows), ld);
}

static int set(const struct gemm_product *p, cublasLtMatmulDescAttributes_t name, const void *value,
               size_t bytes, struct error *err)
{
    return GEMM_CHECK(cublasLtMatmulDescSetAttribute(p->op, name, value, bytes), &p->key, err);
}

/* The library's A is our b. */
static int set_scales(const struct gemm_product *p, const float *a, const float *b,
                      struct error *err)
{
    return set(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b, sizeof b, err) ||
                   set(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a, sizeof a, err)
               ? -1
               : 0;
}

/* Constants of cublasLt.h since version 12.9; a build may have an older header. */
enum {
    SCALES_OF_FP8 = 120900,
    A_SCALE_MODE = 31,
    B_SCALE_MODE = 32,
    OF_VECTORS = 4,
    OF_SQUARES = 5
};

/* Set in the descriptor that operands have scales, and whether of vectors or of squares.  The
 * address given here stands for those that gemm_multiply() sets for each call. */
static int describe_scales(const struct gemm_product *p, struct error *err)
{
    static const _Alignas(CUDA_WORKSPACE_ALIGN) float some;
    const struct gemm_key *key = &p->key;
    const int32_t of_a = OF_VECTORS;
    const int32_t of_b = key->fp8 == GEMM_FP8_SQUARES_OF_B ? OF_SQUARES : OF_VECTORS;
    if (set(p, (cublasLtMatmulDescAttributes_t)A_SCALE_MODE, &of_b, sizeof of_b, err) ||
        set(p, (cublasLtMatmulDescAttributes_t)B_SCALE_MODE, &of_a, sizeof of_a, err))
        return -1;
    return set_scales(p, &some, &some, err);
}

int cuda_gemm_check_fp8(const char *name, const char *level, struct error *err)
{
    const char *number = level + strlen("sm_"); /* "90" is 9.0 */
    const int major_digits = (int)strlen(number) - 1;
    char library[64];
    if (strcmp(level, "sm_90") != 0)
        return error_set(err,
                         "an H100 or H200 (compute capability 9.0), for which trireme has its "
                         "products, and this is %s (%.*s.%s)",
                         name, major_digits, number, number + major_digits);
    if (cublasLtGetVersion() < SCALES_OF_FP8)
        return error_set(err, "cuBLASLt %d.%d or newer, and this is %s", SCALES_OF_FP8 / 10000,
                         SCALES_OF_FP8 / 100 % 100, cuda_gemm_library(library));
    return 0;
}

static int make_descriptors(struct gemm_product *p, struct error *err)
{
    const struct gemm_key *key = &p->key;
    const int32_t trans_b = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t trans_a = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t type = key->fp8 ? CUDA_R_8F_E4M3 : type_of(key->dt);
    if (GEMM_CHECK(cublasLtMatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F), key, err) ||
        set(p, CUBLASLT_MATMUL_DESC_TRANSA, &trans_b, sizeof trans_b, err) ||
        set(p, CUBLASLT_MATMUL_DESC_TRANSB, &trans_a, sizeof trans_a, err) ||
        GEMM_CHECK(describe(&p->a, type, key->m, key->k, key->lda, key->trans_a), key, err) ||
        GEMM_CHECK(describe(&p->b, type, key->k, key->n, key->ldb, key->trans_b), key, err) ||
        GEMM_CHECK(describe(&p->c, type_of(key->dt_c), key->m, key->n, key->ldc, 0), key, err))
        return -1;
    return key->fp8 ? describe_scales(p, err) : 0;
}

static int set_preference(cublasLtMatmulPreference_t preference, const struct gemm_key *key,
                          struct error *err)
{
    const uint64_t bytes = cuda_workspace_bytes(key->m, key->n);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t value;
    } small[] = {
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, gemm_may_split(key)
                                                         ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                         : CUBLASLT_REDUCTION_SCHEME_NONE},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->align_addend},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->align_c},
    };
    int rc =
        GEMM_CHECK(cublasLtMatmulPreferenceSetAttribute(
                       preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
                   key, err);
    for (size_t i = 0; i < sizeof small / sizeof small[0] && !rc; i++)
        rc = GEMM_CHECK(cublasLtMatmulPreferenceSetAttribute(
                            preference, small[i].name, &small[i].value, sizeof small[i].value),
                        key, err);
    return rc;
}

/* Return 1 where every row of every operand begins at a multiple of 16 bytes. */
static int is_aligned(const struct gemm_key *key)
{
    int64_t in = (int64_t)dtype_bytes((enum dtype)key->dt);
    int64_t out = (int64_t)dtype_bytes((enum dtype)key->dt_c);
    int64_t bits = key->align_a | key->align_b | key->align_c | key->align_addend;
    bits |= key->lda * in | key->ldb * in | key->ldc * out;
    return bits % 16 == 0;
}

/* Return 1 where the library has no algorithm for a product.  INVALID_VALUE can mean that it does
 * not take an alignment, or, in fp8, that one of its conditions fails, which are not all
 * documented. Otherwise that status is an error of trireme's own, which multiplying otherwise would
 * hide. */
static int has_none(const struct gemm_key *key, cublasStatus_t status, int count)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ||
           (status == CUBLAS_STATUS_INVALID_VALUE && (key->fp8 || !is_aligned(key))) ||
           (status == CUBLAS_STATUS_SUCCESS && count == 0);
}

/* Warn where a product is large and the library has no algorithm for it: trireme's own kernel is
 * many times slower, and bf16 instead of fp8 takes about twice as long. */
static void warn_plain(const struct gemm_key *key, cublasStatus_t status)
{
    struct error why;
    if ((double)key->m * (double)key->n * (double)key->k < 1e9)
        return;
    gemm_failed(status, "no algorithm", key, &why);
    log_warn(NULL, "%s: %s", why.text,
             key->fp8
                 ? "products of this shape are made in bf16 of the numbers rounded to fp8, which "
                   "is right, but slower"
                 : "multiplied by a slow kernel");
}

int gemm_suggest(struct gemm_product *p, cublasLtHandle_t handle, int most,
                 cublasLtMatmulHeuristicResult_t *found, int *count, struct error *err)
{
    const struct gemm_key *key = &p->key;
    cublasLtMatmulPreference_t preference = NULL;
    int result = -1;
    *count = 0;
    if (GEMM_CHECK(cublasLtMatmulPreferenceCreate(&preference), key, err) ||
        set_preference(preference, key, err))
        goto fail;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, p->op, p->b, p->a, p->c, p->c,
                                                           preference, most, found, count);
    p->plain = has_none(key, status, *count);
    if (p->plain)
        warn_plain(key, status);
    else if (status != CUBLAS_STATUS_SUCCESS || found[0].state != CUBLAS_STATUS_SUCCESS) {
        gemm_failed(status ? status : found[0].state, "cublasLtMatmulAlgoGetHeuristic", key, err);
        goto fail;
    }
    result = 0;
fail:
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return result;
}

static int set_sms(struct gemm_product *p, int32_t sms, struct error *err)
{
    return sms ? set(p, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof sms, err) : 0;
}

struct gemm_product *gemm_product_describe(const struct cuda_gemms *s, const struct gemm_key *key,
                                           struct error *err)
{
    struct gemm_product *p = array_make(1, sizeof *p);
    p->key = *key;
    if (!make_descriptors(p, err) && !set_sms(p, s->sms, err))
        return p;
    gemm_product_free(p);
    return NULL;
}

static struct gemm_product **place_of(struct cuda_gemms *s, const struct gemm_key *key)
{
    struct gemm_product **p = &s->buckets[hash_bytes(key, sizeof *key) % GEMM_BUCKETS];
    while (*p && memcmp(&(*p)->key, key, sizeof *key) != 0)
        p = &(*p)->next;
    return p;
}

const struct gemm_product *gemm_find(const struct cuda_gemms *s, const struct gemm_key *key)
{
    return *place_of((struct cuda_gemms *)s, key);
}

void gemm_put(struct cuda_gemms *s, struct gemm_product *p)
{
    struct gemm_product **place = place_of(s, &p->key), *before = *place;
    p->next = before ? before->next : NULL;
    *place = p;
    gemm_product_free(before);
}

/* Return the product of this key, made with the library's first suggestion where there is none yet,
 * or NULL with err set.  It stays the table's. */
static struct gemm_product *find_or_create(struct cuda_gemms *s, const struct gemm_key *key,
                                           struct error *err)
{
    cublasLtMatmulHeuristicResult_t found = {0};
    struct gemm_product *p = *place_of(s, key);
    int count;
    if (p || !(p = gemm_product_describe(s, key, err)))
        return p;
    if (gemm_suggest(p, s->handle, 1, &found, &count, err)) {
        gemm_product_free(p);
        return NULL;
    }
    p->algo = found.algo;
    p->workspace_bytes = found.workspaceSize;
    gemm_put(s, p);
    return p;
}

int gemm_multiply(struct device *d, const struct gemm_product *p, const struct gemm *g,
                  const struct gemm_operands *of, struct error *err)
{
    const float one = 1, beta = g->addend ? 1 : 0;
    const void *addend = g->addend ? g->addend : g->c;
    if (g->fp8 && set_scales(p, of->fp8_a.scale, of->fp8_b.scale, err))
        return -1;
    return GEMM_CHECK(cublasLtMatmul(cuda_state(d)->gemms->handle, p->op, &one, of->b, p->b, of->a,
                                     p->a, &beta, addend, p->c, g->c, p->c, &p->algo, of->workspace,
                                     p->workspace_bytes, cuda_compute(d)),
                      &p->key, err);
}

/* Multiply without the library's product of this type. */
static int multiply_otherwise(struct device *d, const struct gemm *g, void *scratch,
                              struct error *err)
{
    if (g->fp8 && g->k)
        return gemm_multiply_widened(d, g, scratch, 0, g->m, cuda_gemm, err);
    cuda_gemm_plain(d, g);
    return 0;
}

/* Add the product to those that gemm_tune.c will measure, unless it is there. */
static void note(struct cuda_gemms *s, const struct gemm_key *key, const struct gemm *g,
                 void *scratch)
{
    for (int i = 0; i < s->noted_count; i++) {
        struct gemm_key other = gemm_key_of(&s->noted[i].g);
        if (!memcmp(&other, key, sizeof other))
            return;
    }
    s->noted = array_grow(s->noted, s->noted_count, &s->noted_capacity, sizeof *s->noted);
    s->noted[s->noted_count++] = (struct gemm_noted){*g, scratch};
}

int cuda_gemm(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    const struct gemm_key key = gemm_key_of(g);
    const unsigned family =
        g->fp8 ? DEVICE_FP8_FAMILY : device_product_family(g->dt, g->trans_a, g->trans_b);
    if (g->m == 0 || g->n == 0)
        return 0;
    if (g->fp8 && (g->m | g->n | g->k) % GEMM_FP8_SIZES)
        return error_set(err,
                         "a product in fp8 of [%lld,%lld] x [%lld,%lld]: a GPU multiplies "
                         "in fp8 where sizes are multiples of %d",
                         (long long)g->m, (long long)g->k, (long long)g->k, (long long)g->n,
                         GEMM_FP8_SIZES);
    if (g->k == 0 || d->replaced & family || (g->fp8 && device_check_fp8(d, NULL)))
        return multiply_otherwise(d, g, scratch, err);
    struct cuda_gemms *s = cuda_state(d)->gemms;
    struct gemm_product *p = NULL;
    if (!s->noting || g->fp8) { /* of fp8, what multiplies otherwise is noted instead */
        p = find_or_create(s, &key, err);
        if (!p)
            return -1;
        if (p->plain)
            return multiply_otherwise(d, g, scratch, err);
    }
    if (s->noting) {
        note(s, &key, g, scratch);
        return 0;
    }
    const struct gemm_operands of = gemm_make_operands(d, g, scratch);
    return gemm_multiply(d, p, g, &of, err);
}

int cuda_gemm_open(struct device *d, struct error *err)
{
    struct cuda_gemms *s = array_make(1, sizeof *s);
    cublasStatus_t status = cublasLtCreate(&s->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free(s);
        return error_set(err, "cuBLASLt: cublasLtCreate: %s", cublasLtGetStatusString(status));
    }
    s->sms = cuda_state(d)->product_sms;
    cuda_state(d)->gemms = s;
    return 0;
}

void cuda_gemm_close(struct device *d)
{
    struct cuda_gemms *s = cuda_state(d)->gemms;
    if (!s)
        return;
    for (int i = 0; i < GEMM_BUCKETS; i++)
        for (struct gemm_product *p = s->buckets[i], *next; p; p = next) {
            next = p->next;
            gemm_product_free(p);
        }
    cublasLtDestroy(s->handle);
    free(s->noted);
    free(s);
    cuda_state(d)->gemms = NULL;
}

const char *cuda_gemm_library(char text[64])
{
    size_t version = cublasLtGetVersion();
    if (!version)
        return "no cuBLASLt";
    snprintf(text, 64, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return text;
}
