/* self_check_products.c - matrix products: by cuBLASLt, a family for each format and both
 * transpositions, and one for those in fp8; and by the own kernel that stands in for it, in fp8
 * with those that round. */
#include "device/self_check_private.h"

#include <stdio.h>

enum addend { ADDEND_NONE, ADDEND_SELF, ADDEND_OTHER };

struct product {
    struct gemm g;
    enum addend addend;
};

static void multiply(struct trial_side *side, void *const *at, const void *args)
{
    const struct product *p = args;
    struct gemm g = gemm_dense(p->g);
    void *scratch = trial_scratch(side, side->d->ops->gemm_scratch(side->d, &g));
    g.c = at[0];
    g.a = at[1];
    g.b = at[2];
    g.addend = p->addend == ADDEND_NONE ? NULL : p->addend == ADDEND_SELF ? at[0] : at[3];
    if (!side->failed)
        side->failed = side->d->ops->gemm(side->d, &g, scratch, &side->err) != 0;
}

/* Tensor cores of compute capability 9.0 add products of fp8 up in about 14 bits, and only the sums
 * of blocks in fp32 (DeepSeek-V3, arXiv 2412.19437, 3.3.2). */
static const double fp8_bound = 4e-3;

static void product_case(struct trial *t, const struct product *p)
{
    const struct gemm *g = &p->g;
    struct trial_tensor *c;
    trial_begin(t, g->fp8 ? "gemm in fp8" : "gemm", g->dt);
    if (p->addend == ADDEND_SELF)
        c = trial_changed(t, g->dt_c, g->m * g->n, 1);
    else
        c = trial_near(t, g->dt_c, g->m * g->n);
    if (g->fp8 && g->dt_c == DTYPE_F32)
        c->bound = fp8_bound;
    trial_read(t, g->dt, g->m * g->k, 1);
    trial_read(t, g->dt, g->k * g->n, 1);
    if (p->addend == ADDEND_OTHER)
        trial_read(t, g->dt_c, g->m * g->n, 1);
    trial_run(t, multiply, p);
}

/* Multiply odd sizes, and sizes for which libraries have their usual kernels: into the same format
 * and into fp32; without an addend, with c as addend, and with another one. */
static void product_cases(struct trial *t, enum dtype dt, int trans_a, int trans_b)
{
    struct product p = {{.dt = dt, .dt_c = dt, .trans_a = trans_a, .trans_b = trans_b}};
    p.g.m = 33, p.g.n = 17, p.g.k = 29;
    product_case(t, &p);
    p.g.m = 64, p.g.n = 96, p.g.k = 128, p.addend = ADDEND_OTHER;
    product_case(t, &p);
    p.g.dt_c = DTYPE_F32, p.addend = ADDEND_SELF;
    product_case(t, &p);
    p.g.m = 128, p.g.n = 64, p.g.k = 200, p.addend = ADDEND_NONE;
    product_case(t, &p);
}

void self_check_products(struct trial *t, const struct self_check_family *family)
{
    product_cases(t, family->dt, family->trans_a, family->trans_b);
}

/* Multiply as a training step does: into activations, into their gradient, and into a weight's, the
 * gradients in both formats. */
static void fp8_cases(struct trial *t)
{
    struct product p = {{.dt = DTYPE_BF16, .dt_c = DTYPE_BF16, .trans_b = 1}};
    p.g.m = 144, p.g.n = 176, p.g.k = 272, p.g.fp8 = GEMM_FP8_SQUARES_OF_B;
    product_case(t, &p);
    p.g.trans_b = 0, p.g.n = 48, p.addend = ADDEND_OTHER;
    product_case(t, &p);
    p.g.dt_c = DTYPE_F32, p.g.n = 272, p.addend = ADDEND_NONE;
    product_case(t, &p);
    p.g.trans_a = 1, p.g.n = 48, p.g.fp8 = GEMM_FP8_VECTORS;
    product_case(t, &p);
    p.g.dt_c = DTYPE_BF16, p.g.m = 272;
    product_case(t, &p);
    p.g.dt_c = DTYPE_F32, p.g.m = 128, p.g.n = 256, p.g.k = 128, p.addend = ADDEND_SELF;
    product_case(t, &p);
}

void self_check_fp8(struct trial *t, const struct self_check_family *family)
{
    struct error lacking = {0};
    if (!device_check_fp8(t->gpu.d, &lacking)) {
        fp8_cases(t);
        return;
    }
    t->row->verdict = SELF_CHECK_UNUSED;
    snprintf(t->row->why, sizeof t->row->why, "needs %.150s", lacking.text);
}

void self_check_own_products(struct trial *t, const struct self_check_family *family)
{
    const unsigned before = t->gpu.d->replaced;
    t->gpu.d->replaced = (1u << DEVICE_PRODUCT_FAMILIES) - 1;
    for (int format = 0; format < TRIAL_FORMATS; format++)
        for (int trans = 0; trans < 4; trans++) {
            struct product p = {.addend = trans % 3};
            p.g = (struct gemm){.dt = trial_formats[format],
                                .dt_c = trans % 2 ? DTYPE_F32 : trial_formats[format],
                                .trans_a = trans / 2,
                                .trans_b = trans % 2,
                                .m = 33,
                                .n = 17,
                                .k = 70};
            product_case(t, &p);
        }
    fp8_cases(t);
    t->gpu.d->replaced = before;
}
