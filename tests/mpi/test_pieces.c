/* test_pieces.c - a model divided among the ranks of an axis computes what it computes whole on one
 * rank: losses and gradients are the same but for the rounding of sums in another order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/mpi/check.h"
#include "tests/unit/divided.h"
#include "verify/verify.h"
#include "execute/execute.h"
#include "train/lr_schedule.h"

#define MODEL                                                                                 \
    "model.layers=3 model.hidden=20 model.heads=2 model.kv_heads=2 model.ffn=12 "             \
    "model.vocab=53 data.seq_len=12 train.global_batch=4 train.micro_batch=2 train.clip=0.1 " \
    "train.lr=1e-2 train.steps=9 precision=fp32 "

enum { STEPS = 4, VOCAB = 53 };

static const char *const settings[] = {
    MODEL "recompute=none",
    MODEL "recompute=full",
    MODEL "recompute=selective",
    MODEL "recompute=none parallel.wrap=layers parallel.layers_per_unit=2",
    MODEL "recompute=full train.freeze=layers.1.in.*",
    MODEL "recompute=full parallel.shard=2",
    MODEL "train.optimizer_dtype=bf16",
    MODEL "parallel.shard=2 parallel.strategy=SHARD_GRAD_OP parallel.persist_below=50",
    MODEL "parallel.replicate=2 parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=9000",
    MODEL "parallel.schedule=gpipe train.micro_batch=1",
    MODEL "precision=bf16",
    MODEL "data.seq_len=42",
    MODEL "precision=bf16 recompute=full parallel.schedule=zb_h1",
    MODEL "parallel.schedule=zb_h1 recompute=selective train.micro_batch=1"};

/* A rank's training. */
struct training {
    struct divided d;
    struct units *units; /* of the rank */
    struct config_train train;
    struct executor *x;
    struct mem mem;
    int rank;
    double loss[STEPS], norm[STEPS];
};

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct training *t = user;
    int64_t rows = t->units->request.batch * t->units->request.seq[0];
    int64_t first = rows * (batch->micro * t->d.layout.data_ranks + t->rank / t->d.tensors);
    for (int64_t i = 0; i < rows; i++) {
        int32_t token = (int32_t)(philox_u64(5, (uint64_t)(first + i)) % VOCAB);
        batch->tokens[0][i] = token;
        batch->targets[i] = i % 7 ? (token * 3 + 1) % VOCAB : -1;
    }
    return 0;
}

static float *at(const struct training *t, int buffer)
{
    return executor_buffer(t->x, &t->d.state[t->rank]->buffer[buffer]);
}

/* Numbers by their places in the whole tensor. */
static void init_part(struct training *t, int f, const struct flat_part *part)
{
    const struct state_flat *own = &t->d.state[t->rank]->flat[f];
    const struct box *box = &part->tensor->box, whole = box_whole(box->dims, box->whole);
    uint64_t key = philox_key(7, part->tensor->name);
    for (int64_t i = 0; i < part->count; i++) {
        int64_t place;
        box_run(box, &whole, part->start + i, &place);
        float x = 0.3f * ((float)(philox_u64(key, (uint64_t)place) >> 40) * 0x1p-23f - 1);
        x += box->dims > 1 ? 0 : 1;
        if (own->master >= 0)
            at(t, own->master)[part->at + i] = x;
        if (own->param >= 0 && own->param != own->master)
            ((bf16 *)(void *)at(t, own->param))[part->at + i] = f32_to_bf16(x);
    }
}

static void init(struct training *t)
{
    const struct state *state = t->d.state[t->rank];
    for (int b = 0; b < state->buffers; b++)
        memset(at(t, b), 0, state->buffer[b].bytes);
    divided_table(&t->d, t->rank, at(t, state->constants));
    for (int f = 0; f < t->units->flats; f++) {
        const struct flat *flat = &t->units->flat[f];
        int64_t start = flat_shard_start(flat, state->coord.at[MESH_SHARD]);
        int grad = state->flat[f].grad;
        struct flat_part part;
        if (grad >= 0) /* NaN: what nobody writes shows */
            memset(at(t, grad), 0xff, state->buffer[grad].bytes);
        for (int k = -1;
             (k = flat_next_part(flat, start, start + flat->shard_elems, k, &part)) >= 0;)
            init_part(t, f, &part);
    }
}

static int steps(struct training *t, int from, int to, struct error *err)
{
    for (int step = from; step <= to; step++) {
        struct step_output output = {0};
        struct step_input input = {.load = load,
                                   .user = t,
                                   .rule = lr_schedule_rule(&t->train, step),
                                   .step = step,
                                   .clip = t->train.clip,
                                   .nominal_targets = 96};
        if (execute(t->x, t->d.program[t->rank], &input, &output, NULL, err))
            return -1;
        t->loss[step - 1] = output.loss;
        t->norm[step - 1] = output.grad_norm;
    }
    return 0;
}

/* Open a training on so many tensor ranks, of which, with those of all shards, this is number rank.
 */
static int begin(struct training *t, const char *text, int tensors, int rank, struct mesh *mesh,
                 struct error *err)
{
    *t = (struct training){.rank = rank, .train = rig_config(text).train};
    divided_open(&t->d, text, tensors);
    t->units = t->d.units[rank];
    const struct program *program = t->d.program[rank];
    if (verify_program(program, err) || verify_program(t->d.evaluate[rank], err) ||
        verify_ranks((const struct program *const *)t->d.program, t->d.ranks, err) ||
        executor_create(&t->x, t->d.device, mesh, &t->mem, &program, 1, "", err))
        return -1;
    init(t);
    return 0;
}

static void end(struct checks *c, struct training *t)
{
    executor_destroy(t->x);
    divided_close(&t->d);
    CHECK(c, !t->mem.blocks);
}

/* Where the whole model has a tensor, from its first element on, and its gradient. */
static const struct flat_tensor *whole_of(const struct training *whole, const char *name,
                                          const float **gradient)
{
    for (int f = 0; f < whole->units->flats; f++) {
        const struct flat *flat = &whole->units->flat[f];
        int tensor = flat_find(flat, name);
        if (tensor < 0)
            continue;
        *gradient = at(whole, whole->d.state[0]->flat[f].grad) + flat->tensor[tensor].offset;
        return &flat->tensor[tensor];
    }
    return NULL;
}

/* The largest difference of the gradients of a tensor's part, relative to the largest one of the
 * tensor.  Rows past the whole one's are padding, without gradients. */
static double part_distance(const struct flat_part *part, const float *own,
                            const struct training *whole)
{
    const struct box *box = &part->tensor->box, all = box_whole(box->dims, box->whole);
    const float *gradient = NULL;
    const struct flat_tensor *tensor = whole_of(whole, part->tensor->name, &gradient);
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < tensor->elems; i++)
        largest = fmax(largest, fabs(gradient[i]));
    for (int64_t i = 0; i < part->count; i++) {
        int64_t place;
        box_run(box, &all, part->start + i, &place);
        double apart =
            fabs(own[part->at + i] - (place < tensor->elems ? (double)gradient[place] : 0));
        difference = apart <= difference ? difference : apart; /* NaN too */
    }
    return largest > 0 ? difference / largest : 1;
}

static double gradient_distance(const struct training *part, const struct training *whole)
{
    double worst = 0;
    for (int f = 0; f < part->units->flats; f++) {
        const struct flat *flat = &part->units->flat[f];
        const struct state *state = part->d.state[part->rank];
        int64_t start = flat_shard_start(flat, state->coord.at[MESH_SHARD]);
        int64_t end = start + (flat->trained ? flat->shard_elems : 0);
        struct flat_part own;
        for (int t = -1; (t = flat_next_part(flat, start, end, t, &own)) >= 0;)
            worst = fmax(worst, part_distance(&own, at(part, state->flat[f].grad), whole));
    }
    return worst;
}

/* Gradients of the first step: later ones have gone through an optimizer that divides by them. */
static void compare(struct checks *c, const char *text, const char *alone, struct mesh *mesh)
{
    struct training whole, part;
    struct error err = {0};
    int ranks = world_size(c->world), rank = world_rank(c->world);
    int tensors = mesh_shape(mesh).degree[MESH_TENSOR];
    double losses = 0, norms = 0, gradients = INFINITY;
    if (!begin(&whole, alone, 1, 0, NULL, &err) & !begin(&part, text, tensors, rank, mesh, &err) &&
        !steps(&whole, 1, 1, &err) && !steps(&part, 1, 1, &err)) {
        gradients = gradient_distance(&part, &whole);
        CHECK(c, !steps(&whole, 2, STEPS, &err) && !steps(&part, 2, STEPS, &err));
    }
    for (int s = 0; s < STEPS; s++) {
        losses = fmax(losses, fabs(part.loss[s] / whole.loss[s] - 1));
        norms = fmax(norms, fabs(part.norm[s] / whole.norm[s] - 1));
    }
    int rounds = part.d.layout.dtype == DTYPE_BF16; /* each term, and each sum */
    CHECK(c, whole.loss[0] > whole.loss[STEPS - 1]);
    CHECK(c, losses <= (ranks == 1 ? 0 : rounds ? 2e-3 : 1e-6));
    CHECK(c, gradients <= (ranks == 1 ? 0 : rounds ? 5e-2 : 1e-5));
    CHECK(c, whole.norm[0] > whole.train.clip && norms <= (ranks == 1 ? 0 : rounds ? 2e-2 : 1e-5));
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    if (!rank)
        printf("%d ranks: losses differ by %.1e, gradients by %.1e, norms (first: %.3g) by %.1e\n",
               ranks, losses, gradients, whole.norm[0], norms);
    end(c, &whole);
    end(c, &part);
}

/* The ranks are the data ranks of the settings times tensor ranks. */
static void compare_on(struct checks *c, const char *text)
{
    const struct config_parallel parallel = rig_config(text).parallel;
    int shards = parallel.shard > 1 ? (int)parallel.shard : 1, ranks = world_size(c->world);
    int replicas = parallel.replicate > 1 ? (int)parallel.replicate : 1, data = replicas * shards;
    struct mesh_shape shape = {{1, replicas, shards, ranks / data}};
    struct error err = {0};
    struct mesh *mesh = NULL;
    char alone[1024];
    if (ranks % data)
        return;
    snprintf(alone, sizeof alone, "%s parallel.shard=1 parallel.replicate=1", text);
    CHECK(c, !mesh_create(&mesh, c->world, shape, &err));
    if (mesh)
        compare(c, text, alone, mesh);
    mesh_destroy(mesh);
}

int main(void)
{
    struct checks c = {0};
    if (checks_start(&c))
        return 1;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        compare_on(&c, settings[i]);
    return checks_finish(&c);
}
