/* test_muon.c - Muon: thirty steps are those of torch.optim.Muon in double precision
 * (tests/golden/muon.py), and a run updates every matrix of its blocks by that rule, parts of
 * stacked matrices apart, and the rest by AdamW's.
 *
 * An orthogonalization multiplies what is small by up to 3.4445^5 = 485, roundings of 2^-24 too:
 * a step is off by some 1e-5 of its length, and parameters by the learning rate times that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "segment/orthogonalize.h"
#include "tests/unit/h5_data.h"
#include "tests/unit/rig.h"
#include "train/lr_schedule.h"

static struct error err;

/* ---- the rule alone ---- */

static float *orthogonal(struct device *d, const float *from, int64_t rows, int64_t cols)
{
    const struct orthogonalize o = {.rows = rows, .cols = cols, .steps = 5};
    void *work = aligned_alloc(64, (orthogonalize_bytes(d, &o) + 63) / 64 * 64);
    float *x = malloc((size_t)(rows * cols) * sizeof *x);
    memcpy(x, from, (size_t)(rows * cols) * sizeof *x);
    assert_int_equal(orthogonalize(d, &o, x, work, &err), 0);
    free(work);
    return x;
}

/* One of four ways to adjust and look ahead. */
static struct optimizer_rule rule_of(struct h5 *file, int way)
{
    double lr, decay, momentum;
    struct optimizer_rule rule = {.adjust_lr = way / 2, .momentum.nesterov = way % 2};
    assert_int_equal(h5_get_value(file, "/", "lr", DTYPE_F64, &lr, &err), 0);
    assert_int_equal(h5_get_value(file, "/", "weight_decay", DTYPE_F64, &decay, &err), 0);
    assert_int_equal(h5_get_value(file, "/", "momentum", DTYPE_F64, &momentum, &err), 0);
    rule.muon.lr = (float)lr;
    rule.muon.weight_decay = (float)decay;
    rule.momentum.one_minus_momentum = (float)(1 - momentum);
    return rule;
}

/* One matrix: p, mean and gradient. */
struct matrix {
    int64_t rows, cols, elems;
    float *p, *mean, *grad;
};

static void take_matrix_step(struct device *d, const struct optimizer_rule *rule, struct matrix *m,
                             double factor)
{
    d->ops->momentum(d, &rule->momentum, &factor, m->mean, m->grad, m->elems);
    float *step = orthogonal(d, m->grad, m->rows, m->cols);
    struct optimizer_range range = {.master = m->p,
                                    .grad = step,
                                    .rows = m->rows,
                                    .cols = m->cols,
                                    .elems = m->elems,
                                    .decays = 1};
    optimizer_row(OPTIMIZER_MUON)->update(d, rule, &factor, &range);
    free(step);
}

/* Gradients are given as multiples of what they are, and the factor undoes that. */
static double golden_shape(struct device *d, struct h5 *file, int64_t rows, int64_t cols, int way)
{
    enum { STEPS = 30, FIRST_END = 5 };
    char name[32];
    float *data;
    void *read;
    struct optimizer_rule rule = rule_of(file, way);
    struct matrix m = {.rows = rows, .cols = cols, .elems = rows * cols};
    size_t bytes = (size_t)m.elems * sizeof(float);
    double off = 0, size = 0;
    snprintf(name, sizeof name, "%dx%d", (int)rows, (int)cols);
    assert_int_equal(h5_read(file, name, DTYPE_F32, &read, NULL, &err), 0);
    data = read;
    m.p = data;
    m.mean = calloc(1, bytes);
    m.grad = malloc(bytes);
    for (int t = 0; t < STEPS; t++) {
        for (int64_t i = 0; i < m.elems; i++)
            m.grad[i] = 4 * (m.p[i] - data[m.elems + i] + data[(2 + t % 3) * m.elems + i]);
        take_matrix_step(d, &rule, &m, 0.25);
    }
    for (int64_t i = 0; i < m.elems; i++) {
        double want = data[(FIRST_END + way) * m.elems + i];
        off = fmax(off, fabs(m.p[i] - want));
        size = fmax(size, fabs(want));
        assert_true(isfinite(m.p[i]));
    }
    free(m.mean);
    free(m.grad);
    free(data);
    return off / size;
}

static void thirty_steps_are_those_of_torch(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {1, 7},   {7, 1},   {3, 3},   {3, 7},
                                        {7, 3}, {11, 23}, {23, 11}, {17, 17}, {2, 61}};
    struct h5 *file;
    assert_int_equal(h5_open(&file, GOLDEN_DIR "/muon.h5", &err), 0);
    for (int level = 0; device_cpu_level(level); level++) {
        struct device *d;
        double worst = 0;
        struct device_request request = {.threads = 2, .level = device_cpu_level(level)};
        assert_int_equal(device_open(&d, &request, &err), 0);
        for (int i = 0; i < 10; i++)
            for (int way = 0; way < 4; way++)
                worst = fmax(worst, golden_shape(d, file, shapes[i][0], shapes[i][1], way));
        print_message("%-8s off by %.2g\n", device_cpu_level(level), worst);
        assert_true(worst <= 1e-5);
        device_close(d);
    }
    h5_close(file, NULL);
}

/* ---- in a run ---- */

#define MODEL                                                                                  \
    "model.layers=2 model.hidden=12 model.heads=3 model.kv_heads=1 model.ffn=7 "               \
    "model.vocab=101 data.seq_len=17 train.global_batch=3 train.lr=0.01 train.warmup_steps=2 " \
    "train.steps=30 seed=3 device=cpu "

static int load(void *user, const struct step_batch *batch, struct error *e)
{
    const struct session *s = user;
    int32_t *tokens = batch->tokens[0], *targets = batch->targets;
    int64_t rows = s->layout.micro_batch * s->config.data.seq_len;
    for (int64_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)(philox_u64(5, (uint64_t)(batch->micro * rows + i)) % 101);
        targets[i] = (tokens[i] * 3 + 1) % 101;
    }
    return 0;
}

static void take_step(struct session *s, int64_t step)
{
    struct step_input input = rig_input(s, step);
    input.load = load;
    input.user = s;
    if (executor_run_step(s->executor, s->train, &input, NULL, NULL, &err))
        fail_msg("%s", err.text);
}

/* C = A B, A [n, k], B [k, m], row by row of doubles; transposed 1: B is [m, k]. */
static void multiply(double *c, const double *a, const double *b, int64_t n, int64_t m, int64_t k,
                     int transposed)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * (transposed ? b[j * k + l] : b[l * m + j]);
            c[i * m + j] = sum;
        }
}

/* The iteration in double precision, of the transpose of a tall matrix. */
static void orthogonal_reference(double *x, int64_t rows, int64_t cols)
{
    int64_t n = rows < cols ? rows : cols, m = rows < cols ? cols : rows;
    double *y = malloc((size_t)(n * m) * sizeof *y), *next = malloc((size_t)(n * m) * sizeof *y);
    double *a = malloc((size_t)(n * n) * sizeof *a), *aa = malloc((size_t)(n * n) * sizeof *a);
    double squares = 0;
    for (int64_t i = 0; i < n * m; i++)
        squares += x[i] * x[i];
    for (int64_t i = 0; i < n * m; i++)
        y[rows > cols ? i % cols * rows + i / cols : i] = x[i] / fmax(sqrt(squares), 1e-7);
    for (int step = 0; step < 5; step++) {
        multiply(a, y, y, n, n, m, 1);
        multiply(aa, a, a, n, n, n, 0);
        for (int64_t i = 0; i < n * n; i++)
            aa[i] = -4.7750 * a[i] + 2.0315 * aa[i];
        multiply(next, aa, y, n, m, n, 0);
        for (int64_t i = 0; i < n * m; i++)
            y[i] = 3.4445 * y[i] + next[i];
    }
    for (int64_t i = 0; i < n * m; i++)
        x[i] = y[rows > cols ? i % cols * rows + i / cols : i];
    free(y);
    free(next);
    free(a);
    free(aa);
}

/* What is known of a tensor in double precision: parameters, and the state of either rule. */
struct known {
    double *p, *first, *second;
};

static void muon_reference(const struct config_train *c, const struct flat_tensor *tensor,
                           struct known *k, const float *grad, double lr)
{
    double rows = (double)tensor->box.whole[0], cols = (double)tensor->box.whole[1];
    double *step = malloc((size_t)tensor->elems * sizeof *step);
    double adjusted = c->muon.adjust_lr == ADJUST_LR_ORIGINAL ? sqrt(fmax(1, rows / cols))
                                                              : 0.2 * sqrt(fmax(rows, cols));
    for (int64_t i = 0; i < tensor->elems; i++) {
        k->first[i] = c->muon.momentum * k->first[i] + (1 - c->muon.momentum) * grad[i];
        step[i] = c->muon.nesterov
                      ? c->muon.momentum * k->first[i] + (1 - c->muon.momentum) * grad[i]
                      : k->first[i];
    }
    orthogonal_reference(step, tensor->box.whole[0], tensor->box.whole[1]);
    for (int64_t i = 0; i < tensor->elems; i++)
        k->p[i] = k->p[i] * (1 - lr * c->weight_decay) - lr * adjusted * step[i];
    free(step);
}

static void adamw_reference(const struct config_train *c, const struct flat_tensor *tensor,
                            struct known *k, const float *grad, double lr, double step)
{
    double decay = tensor->box.dims > 1 ? c->weight_decay : 0;
    for (int64_t i = 0; i < tensor->elems; i++) {
        double g = grad[i];
        k->first[i] = c->beta1 * k->first[i] + (1 - c->beta1) * g;
        k->second[i] = c->beta2 * k->second[i] + (1 - c->beta2) * g * g;
        double mean = k->first[i] / (1 - pow(c->beta1, step));
        double root = sqrt(k->second[i] / (1 - pow(c->beta2, step)));
        k->p[i] = k->p[i] * (1 - lr * decay) - lr * mean / (root + c->eps);
    }
}

/* Is it one of the matrices of a block? */
static int is_muons(const struct flat_tensor *tensor)
{
    return tensor->box.dims == 2 &&
           (strstr(tensor->name, ".attn.") || strstr(tensor->name, ".mlp."));
}

/* The gradients of a session's parameters, by another's that descends and has the same tensors. */
static void copy_parameters(const struct session *to, const struct session *from)
{
    for (int f = 0; f < from->units->flats; f++)
        for (int t = 0; t < from->units->flat[f].tensors; t++) {
            int other;
            const struct flat_tensor *tensor = &from->units->flat[f].tensor[t];
            const struct flat_tensor *same = rig_tensor(to, tensor->name, &other);
            assert_non_null(same);
            memcpy(rig_state(to, other, RIG_MASTER) + same->offset,
                   rig_state(from, f, RIG_MASTER) + tensor->offset,
                   (size_t)tensor->elems * sizeof(float));
        }
    rig_refresh(to);
}

static void check_step(const struct session *s, const struct session *descent, struct known *known,
                       int64_t step)
{
    double lr = lr_schedule_at(&s->config.train, step);
    for (int f = 0, n = 0; f < s->units->flats; f++)
        for (int t = 0; t < s->units->flat[f].tensors; t++, n++) {
            int other;
            const struct flat_tensor *tensor = &s->units->flat[f].tensor[t];
            const float *p = rig_state(s, f, RIG_MASTER) + tensor->offset;
            const struct flat_tensor *same = rig_tensor(descent, tensor->name, &other);
            if (!s->units->flat[f].trained) {
                for (int64_t i = 0; i < tensor->elems; i++)
                    assert_true(p[i] == (float)known[n].p[i]);
                continue;
            }
            const float *grad = rig_state(descent, other, RIG_GRAD) + same->offset;
            if (is_muons(tensor))
                muon_reference(&s->config.train, tensor, &known[n], grad, lr);
            else
                adamw_reference(&s->config.train, tensor, &known[n], grad, lr, (double)step);
            /* AdamW divides by roots: of gradients near 0 a rounding is all there is */
            double bound = is_muons(tensor) ? 1e-5 : 1e-3 * lr + 1e-6;
            for (int64_t i = 0; i < tensor->elems; i++) {
                if (!(fabs(p[i] - known[n].p[i]) <= bound))
                    fail_msg("step %d: %s[%d] is %.9g, not %.9g", (int)step, tensor->name, (int)i,
                             p[i], known[n].p[i]);
                known[n].p[i] = p[i]; /* the next step is judged by itself */
            }
        }
}

static struct known *known_of(const struct session *s)
{
    struct known *known = calloc(256, sizeof *known);
    for (int f = 0, n = 0; f < s->units->flats; f++)
        for (int t = 0; t < s->units->flat[f].tensors; t++, n++) {
            const struct flat_tensor *tensor = &s->units->flat[f].tensor[t];
            size_t elems = (size_t)tensor->elems;
            assert_true(n < 256);
            known[n] = (struct known){calloc(elems, sizeof(double)), calloc(elems, sizeof(double)),
                                      calloc(elems, sizeof(double))};
            for (size_t i = 0; i < elems; i++)
                known[n].p[i] = rig_state(s, f, RIG_MASTER)[tensor->offset + (int64_t)i];
        }
    return known;
}

static void check_run(const char *settings)
{
    char text[768];
    struct mem mem = {0}, other = {0};
    snprintf(text, sizeof text, MODEL "train.clip=0 train.optimizer=muon %s", settings);
    struct config config = rig_config(text);
    struct session *s = rig_open(&mem, &config, NULL, 0);
    config.train.optimizer = OPTIMIZER_SGD;
    struct session *descent = rig_open(&other, &config, NULL, 0);
    rig_init(s);
    rig_init(descent);
    struct known *known = known_of(s);
    for (int64_t step = 1; step <= 6; step++) {
        copy_parameters(descent, s);
        take_step(descent, step);
        take_step(s, step);
        check_step(s, descent, known, step);
    }
    for (int n = 0; n < 256; n++) {
        free(known[n].p);
        free(known[n].first);
        free(known[n].second);
    }
    free(known);
    session_close(s);
    session_close(descent);
}

static void every_matrix_of_the_blocks_takes_its_rule(void **state)
{
    check_run("");
    check_run("train.muon_nesterov=false train.muon_momentum=0.8 train.weight_decay=0.5");
    check_run("train.muon_adjust_lr=match_rms_adamw train.micro_batch=1");
    check_run("model.tie_embeddings=true parallel.wrap=none");
    check_run("model.family=gpt2 model.kv_heads=3");
    check_run("train.freeze=layers.0.*,embed train.muon_momentum=0");
    check_run("train.freeze=layers.*.mlp.*");
}

/* Matrices are in flats of their own, parts of stacked ones apart; embedding, head and vectors are
 * not among them.  A mean of gradients takes four bytes an element, AdamW's moments eight. */
static void state_is_one_mean_for_matrices(void **state)
{
    static const char *const families[] = {"model.family=llama",
                                           "model.family=gpt2 model.kv_heads=3"};
    for (int i = 0; i < 2; i++) {
        char text[512];
        struct fleet fleet;
        size_t want = 0, bytes = 0;
        int matrices = 0;
        snprintf(text, sizeof text, MODEL "train.optimizer=muon %s", families[i]);
        struct config config = rig_config(text);
        fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
        for (int f = 0; f < fleet.units->flats; f++) {
            const struct flat *flat = &fleet.units->flat[f];
            const struct state_flat *own = &fleet.state[0]->flat[f];
            int muons = flat->optimizer == OPTIMIZER_MUON;
            for (int t = 0; t < flat->tensors; t++) {
                assert_int_equal(is_muons(&flat->tensor[t]), muons);
                matrices += muons;
            }
            want += (size_t)flat->shard_elems * (muons ? 4 : 8);
            assert_int_equal(own->slot[1] >= 0, !muons);
            const char *name = fleet.state[0]->buffer[own->slot[0]].name;
            assert_non_null(strstr(name, muons ? "momentum_buffer" : "exp_avg"));
        }
        for (int b = 0; b < fleet.state[0]->buffers; b++)
            bytes += fleet.state[0]->buffer[b].pool == POOL_OPTIMIZER
                         ? fleet.state[0]->buffer[b].bytes
                         : 0;
        assert_int_equal(matrices, i ? 12 : 14);
        assert_int_equal(bytes, want);
        fleet_close(&fleet);
    }
}

/* A step that is skipped changes neither parameters nor state. */
static void a_skipped_step_writes_nothing(void **state)
{
    struct mem mem = {0};
    struct config config = rig_config(MODEL "train.optimizer=muon precision=fp16");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    struct step_output output;
    rig_init(s);
    struct step_input input = rig_input(s, 1);
    input.load = load;
    input.user = s;
    input.loss_scale = 1e30;
    uint64_t hash = rig_hash(s);
    assert_int_equal(executor_run_step(s->executor, s->train, &input, &output, NULL, &err), 0);
    assert_true(output.skipped);
    assert_true(rig_hash(s) == hash);
    input.loss_scale = 1;
    assert_int_equal(executor_run_step(s->executor, s->train, &input, &output, NULL, &err), 0);
    assert_false(output.skipped);
    assert_false(rig_hash(s) == hash);
    session_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thirty_steps_are_those_of_torch),
        cmocka_unit_test(every_matrix_of_the_blocks_takes_its_rule),
        cmocka_unit_test(state_is_one_mean_for_matrices),
        cmocka_unit_test(a_skipped_step_writes_nothing),
    };
    h5_setup();
    return cmocka_run_group_tests_name("muon", tests, NULL, NULL);
}
