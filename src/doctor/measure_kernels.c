/* measure_kernels.c - measuring the kernels of instructions other than RUN: updates, the norm of
 * gradients, sums and casts of gradients, weights of 4 bits; and the softmax of the loss, which is
 * the part of its op that measure_products.c does not measure.
 *
 * A row's bytes are those read and written, as simulate/cost.c counts them.  An update has 30 bytes
 * for an element: it reads and writes a master and two moments in fp32 (24), reads a gradient (4),
 * and writes the bf16 copy that is computed with (2).  With moments of 8 bits it has 18: codes of
 * one byte, whose largest magnitudes lie after them here.
 */
#include <string.h>

#include "base/nf4.h"
#include "base/round.h"
#include "doctor/measure_work.h"
#include "graph/op.h"
#include "program/program.h"

enum { OPERANDS = 5, VOCAB = 8192, QUICK_VOCAB = 512, ALIGN = 256 };

struct call;

struct kernel {
    enum instr_kind instr;
    enum dtype dtype;         /* of its row; an update's is that of the master, or u8 */
    size_t operand[OPERANDS]; /* bytes of an element of each operand; 0: no more operands.  An
                                 element of DECODE is a block of NF4_BLOCK weights */
    size_t each;              /* bytes that are read and written for an element */
    void (*run)(struct measure *m, const struct call *call, void *const *operand);
};

struct call {
    const struct kernel *kernel;
    int64_t elems;
    double *factor; /* [2] on the device: the factor of an update, and the sum of a norm */
};

/* After the codes of an operand that has twice their bytes. */
static float *after(const struct call *call, void *codes)
{
    return (float *)((char *)codes + round_up_bytes((size_t)call->elems, sizeof(float)));
}

static void update(struct measure *m, const struct call *call, void *const *operand)
{
    static const struct rounding rounding = {.key = 1};
    enum dtype dtype = call->kernel->dtype;
    const struct adamw_state state = {.dt_p = dtype == DTYPE_U8 ? DTYPE_F32 : dtype,
                                      .dt_m = dtype,
                                      .p = operand[0],
                                      .m = operand[1],
                                      .v = operand[2],
                                      .dt_g = DTYPE_F32,
                                      .g = operand[3],
                                      .dt_copy = DTYPE_BF16,
                                      .copy = operand[4],
                                      .m_largest = after(call, operand[1]),
                                      .v_largest = after(call, operand[2])};
    m->device->ops->adamw(m->device, &measure_adamw, call->factor, &state, &rounding, call->elems);
}

static void momentum(struct measure *m, const struct call *call, void *const *operand)
{
    static const struct momentum rule = {.one_minus_momentum = 0.05f, .nesterov = 1};
    m->device->ops->momentum(m->device, &rule, call->factor, operand[0], operand[1], call->elems);
}

static void norm(struct measure *m, const struct call *call, void *const *operand)
{
    m->device->ops->sumsq(m->device, call->factor + 1, DTYPE_F32, operand[0], call->elems);
}

static void add(struct measure *m, const struct call *call, void *const *operand)
{
    m->device->ops->add(m->device, DTYPE_F32, operand[0], operand[0], operand[1], call->elems);
}

static void cast(struct measure *m, const struct call *call, void *const *operand)
{
    m->device->ops->cast(m->device, DTYPE_BF16, operand[1], DTYPE_F32, operand[0], call->elems);
}

static void decode(struct measure *m, const struct call *call, void *const *operand)
{
    m->device->ops->decode_nf4(m->device, call->kernel->dtype, operand[1], operand[0],
                               call->elems * NF4_BLOCK);
}

static void zero(struct measure *m, const struct call *call, void *const *operand)
{
    m->device->ops->fill_zero(m->device, operand[0], (size_t)call->elems * sizeof(float));
}

static const struct kernel kernels[] = {
    {.instr = INSTR_UPDATE,
     .dtype = DTYPE_F32,
     .operand = {4, 4, 4, 4, 2},
     .each = 8 + 8 + 8 + 4 + 2,
     .run = update},
    {.instr = INSTR_UPDATE,
     .dtype = DTYPE_BF16,
     .operand = {2, 2, 2, 4},
     .each = 4 + 4 + 4 + 4,
     .run = update},
    {.instr = INSTR_UPDATE,
     .dtype = DTYPE_U8,
     .operand = {4, 2, 2, 4, 2},
     .each = 8 + 2 + 2 + 4 + 2,
     .run = update},
    {.instr = INSTR_MOMENTUM,
     .dtype = DTYPE_F32,
     .operand = {4, 4},
     .each = 8 + 8,
     .run = momentum},
    {.instr = INSTR_NORM, .dtype = DTYPE_F32, .operand = {4}, .each = 4, .run = norm},
    {.instr = INSTR_ADD, .dtype = DTYPE_F32, .operand = {4, 4}, .each = 8 + 4, .run = add},
    {.instr = INSTR_CAST, .dtype = DTYPE_F32, .operand = {4, 2}, .each = 4 + 2, .run = cast},
    {.instr = INSTR_DECODE,
     .dtype = DTYPE_F32,
     .operand = {NF4_BYTES, NF4_BLOCK * 4},
     .each = NF4_BYTES + NF4_BLOCK * 4,
     .run = decode},
    {.instr = INSTR_DECODE,
     .dtype = DTYPE_BF16,
     .operand = {NF4_BYTES, NF4_BLOCK * 2},
     .each = NF4_BYTES + NF4_BLOCK * 2,
     .run = decode},
    {.instr = INSTR_ZERO, .dtype = DTYPE_F32, .operand = {4}, .each = 4, .run = zero},
};

static size_t operand_bytes(const struct call *call, int k)
{
    return round_up_bytes((size_t)call->elems * call->kernel->operand[k], ALIGN);
}

static int run_kernel(struct measure *m, void *data, struct error *err)
{
    const struct call *call = data;
    void *operand[OPERANDS] = {NULL};
    size_t all = 0;
    for (int k = 0; k < OPERANDS; k++)
        all += operand_bytes(call, k);
    char *at = measure_cold(m, all);
    for (int k = 0; k < OPERANDS; at += operand_bytes(call, k++))
        operand[k] = call->kernel->operand[k] ? at : NULL;
    call->kernel->run(m, call, operand);
    return device_check(m->device, err);
}

/* Measure a kernel at sizes from 64 KiB on, each 16 times the one before; add a row for each. */
static int measure_kernel(struct measure *m, const struct kernel *kernel, double *factor,
                          struct error *err)
{
    for (size_t size = 1 << 16; size <= m->limits->memory_bytes; size *= 16) {
        struct call call = {
            .kernel = kernel, .elems = (int64_t)(size / kernel->each), .factor = factor};
        double bytes = (double)call.elems * (double)kernel->each, seconds;
        if (measure_seconds(m, &(struct measure_work){.run = run_kernel, .data = &call}, &seconds,
                            err))
            return -1;
        measure_add_op(m, instr_name(kernel->instr), kernel->dtype, bytes, bytes, seconds);
    }
    return 0;
}

/* ---- the softmax of the loss ---- */

struct softmax {
    const struct op *op; /* the loss; in training it makes the gradient, too */
    enum dtype dtype;
    int64_t rows, vocab;
    float *logits, *row_loss;
    int32_t *targets;
};

static int run_softmax(struct measure *m, void *data, struct error *err)
{
    const struct softmax *s = data;
    int64_t packed = s->vocab * (int64_t)(sizeof(float) / dtype_bytes(s->dtype));
    m->device->ops->cross_entropy(
        m->device, s->dtype, s->row_loss, s->op == &op_head_loss_train ? s->logits : NULL, packed,
        DTYPE_F32, s->logits, s->vocab, s->targets, s->rows, s->vocab, 1e-3f, NULL);
    return device_check(m->device, err);
}

/* Measure the softmax of logits that are in the caches, where the product before it has just put
 * them.  For chunks of logits larger than the caches (graph/op_loss.c) the time is too short. */
static int measure_softmax(struct measure *m, const struct op *op, enum dtype dtype,
                           struct error *err)
{
    const int64_t vocab = m->options->quick ? QUICK_VOCAB : VOCAB;
    const int64_t chunk = max_i64((int64_t)m->device->logits_bytes / (vocab * 4), 64);
    const int64_t most = m->options->quick ? 64 : chunk;
    const size_t logits = (size_t)(most * vocab) * sizeof(float);
    const size_t row = round_up_bytes((size_t)most * sizeof(float), ALIGN);
    struct softmax s = {.op = op, .dtype = dtype, .vocab = vocab};
    size_t each = sizeof(float) + (op == &op_head_loss_train ? dtype_bytes(dtype) : 0);
    int rc = measure_block(m, logits + 2 * row, DTYPE_F32, err);
    s.logits = (float *)m->block;
    s.row_loss = (float *)(m->block + logits);
    s.targets = (int32_t *)(m->block + logits + row);
    if (!rc)
        m->device->ops->fill_zero(m->device, s.targets, row); /* of tokens 0 */
    for (s.rows = 16; s.rows <= most && !rc; s.rows *= 4) {
        double bytes = (double)(s.rows * vocab) * (double)each, seconds;
        rc = measure_seconds(m, &(struct measure_work){.run = run_softmax, .data = &s}, &seconds,
                             err);
        if (!rc)
            measure_add_op(m, op->name, dtype, bytes, bytes, seconds);
    }
    return rc;
}

int measure_kernels(struct measure *m, struct error *err)
{
    const double one[2] = {1, 0};
    double *factor = device_alloc(m->device, m->mem, POOL_WORKSPACE, sizeof one, err);
    measure_progress(m, "updates, norms, sums and casts");
    int rc = factor ? device_upload(m->device, factor, one, sizeof one, err) : -1;
    rc = world_agree(m->world, rc, err);
    if (!rc)
        rc = measure_block(m, 2 * m->limits->memory_bytes, DTYPE_F32, err);
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0] && !rc; i++)
        rc = measure_kernel(m, &kernels[i], factor, err);
    for (const enum dtype *f = measure_formats(m); *f != DTYPE_COUNT && !rc; f++)
        rc = measure_softmax(m, &op_head_loss, *f, err) ||
             measure_softmax(m, &op_head_loss_train, *f, err);
    device_free(m->device, m->mem, POOL_WORKSPACE, sizeof one, factor);
    return rc ? -1 : 0;
}
