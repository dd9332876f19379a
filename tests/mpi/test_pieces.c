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

#define MODEL                                                                               \
    "model.layers=3 model.hidden=20 model.heads=2 model.kv_heads=2 model.ffn=12 "           \
    "model.vocab=53 data.seq_len=12 train.global_batch=4 train.micro_batch=2 train.clip=0 " \
    "train.lr=1e-2 train.steps=9 precision=fp32 "

enum { STEPS = 4, VOCAB = 53 };

static const char *const settings[] = {
    MODEL "recompute=none",
    MODEL "recompute=full",
    MODEL "recompute=selective",
    MODEL "recompute=none parallel.wrap=layers parallel.layers_per_unit=2",
    MODEL "recompute=full train.freeze=layers.1.in.*",
    MODEL "parallel.schedule=gpipe train.micro_batch=1",
    MODEL "precision=bf16",
    MODEL "data.seq_len=42",
    MODEL "precision=bf16 recompute=full parallel.schedule=zb_h1",
    MODEL "parallel.schedule=zb_h1 recompute=selective train.micro_batch=1"};

static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct divided *d = user;
    int64_t rows = d->units[0]->request.batch * d->units[0]->request.seq[0];
    for (int64_t i = 0; i < rows; i++) {
        int32_t token = (int32_t)(philox_u64(5, (uint64_t)(batch->micro * rows + i)) % VOCAB);
        batch->tokens[0][i] = token;
        batch->targets[i] = i % 7 ? (token * 3 + 1) % VOCAB : -1;
    }
    return 0;
}

/* A rank's training. */
struct training {
    struct divided d;
    struct config_train train;
    struct executor *x;
    struct mem mem;
    int rank;
    double loss[STEPS];
};

static float *at(const struct training *t, int buffer)
{
    return executor_buffer(t->x, &t->d.state[t->rank]->buffer[buffer]);
}

/* Element i of what a flat is computed with, and of its masters. */
static void put(struct training *t, int f, int64_t i, float x)
{
    const struct state_flat *own = &t->d.state[t->rank]->flat[f];
    at(t, own->master)[i] = x;
    if (own->param != own->master)
        ((bf16 *)(void *)at(t, own->param))[i] = f32_to_bf16(x);
}

/* The same numbers on all ranks; the optimizer has none yet. */
static void init(struct training *t)
{
    for (int b = 0; b < t->d.state[t->rank]->buffers; b++)
        memset(at(t, b), 0, t->d.state[t->rank]->buffer[b].bytes);
    divided_table(&t->d, t->rank, at(t, t->d.state[t->rank]->constants));
    const struct units *units = t->d.units[t->rank];
    for (int f = 0; f < units->flats; f++) {
        const struct flat *flat = &units->flat[f];
        if (flat->trained) /* NaN: what nobody writes shows */
            memset(at(t, t->d.state[t->rank]->flat[f].grad), 0xff,
                   (size_t)flat->padded * sizeof(float));
        for (int k = 0; k < flat->tensors; k++) {
            const struct flat_tensor *tensor = &flat->tensor[k];
            uint64_t key = philox_key(7, tensor->name);
            for (int64_t i = 0; i < tensor->elems; i++) {
                uint64_t place = (uint64_t)divided_place(&t->d, tensor, t->rank, i);
                float x = (float)(philox_u64(key, place) >> 40) * 0x1p-23f - 1;
                put(t, f, tensor->offset + i, tensor->dims > 1 ? 0.3f * x : 1 + 0.3f * x);
            }
        }
    }
}

static int steps(struct training *t, int from, int to, struct error *err)
{
    for (int step = from; step <= to; step++) {
        struct step_output output = {0};
        struct step_input input = {.load = load,
                                   .user = &t->d,
                                   .rule = lr_schedule_rule(&t->train, step),
                                   .step = step,
                                   .nominal_targets = 96};
        if (execute(t->x, t->d.program[t->rank], &input, &output, NULL, err))
            return -1;
        t->loss[step - 1] = output.loss;
    }
    return 0;
}

/* Open a training on ranks, of which this is number rank. */
static int begin(struct training *t, const char *text, int ranks, int rank, struct mesh *mesh,
                 struct error *err)
{
    *t = (struct training){.rank = rank, .train = rig_config(text).train};
    divided_open(&t->d, text, ranks);
    const struct program *program = t->d.program[rank];
    if (verify_program(program, err) || verify_program(t->d.evaluate[rank], err) ||
        verify_ranks((const struct program *const *)t->d.program, ranks, err) ||
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

/* Where the whole model has an element of a rank's tensor. */
static int64_t index_of(const struct training *whole, const struct flat_tensor *tensor,
                        int64_t place)
{
    return tensor->dims > 1 ? place / 4096 * tensor->dim[1] + place % 4096 : place / 4096;
}

/* The largest difference of gradients, relative to the largest one of the tensor.
 */
static double gradient_distance(const struct training *part, const struct training *whole)
{
    double worst = 0;
    const struct units *units = part->d.units[part->rank];
    for (int f = 0; f < units->flats; f++) {
        const struct flat *flat = &units->flat[f], *all = &whole->d.units[0]->flat[f];
        for (int k = 0; k < flat->tensors && flat->trained; k++) {
            const float *one = at(part, part->d.state[part->rank]->flat[f].grad);
            const float *other = at(whole, whole->d.state[0]->flat[f].grad);
            double largest = 0, difference = 0;
            for (int64_t i = 0; i < all->tensor[k].elems; i++)
                largest = fmax(largest, fabs(other[all->tensor[k].offset + i]));
            for (int64_t i = 0; i < flat->tensor[k].elems; i++) {
                int64_t place = divided_place(&part->d, &flat->tensor[k], part->rank, i);
                int64_t index = index_of(whole, &all->tensor[k], place);
                double a = one[flat->tensor[k].offset + i];
                double b = index < all->tensor[k].elems ? other[all->tensor[k].offset + index] : 0;
                difference = fabs(a - b) <= difference ? difference : fabs(a - b); /* NaN too */
            }
            worst = fmax(worst, largest > 0 ? difference / largest : 1);
        }
    }
    return worst;
}

/* Gradients of the first step: later ones have gone through an optimizer that divides by them. */
static void compare(struct checks *c, const char *text, struct mesh *mesh)
{
    struct training whole, part;
    struct error err = {0};
    int ranks = world_size(c->world), rank = world_rank(c->world);
    double losses = 0, gradients = INFINITY;
    if (!begin(&whole, text, 1, 0, NULL, &err) & !begin(&part, text, ranks, rank, mesh, &err) &&
        !steps(&whole, 1, 1, &err) && !steps(&part, 1, 1, &err)) {
        gradients = gradient_distance(&part, &whole);
        CHECK(c, !steps(&whole, 2, STEPS, &err) && !steps(&part, 2, STEPS, &err));
    }
    for (int s = 0; s < STEPS; s++)
        losses = fmax(losses, fabs(part.loss[s] / whole.loss[s] - 1));
    int rounds = part.d.layout.dtype == DTYPE_BF16; /* each term, and each sum */
    CHECK(c, whole.loss[0] > whole.loss[STEPS - 1]);
    CHECK(c, losses <= (ranks == 1 ? 0 : rounds ? 2e-3 : 1e-6));
    CHECK(c, gradients <= (ranks == 1 ? 0 : rounds ? 5e-2 : 1e-5));
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    if (!rank)
        printf("%d ranks: losses differ by %.1e, gradients by %.1e\n", ranks, losses, gradients);
    end(c, &whole);
    end(c, &part);
}

int main(void)
{
    struct checks c = {0};
    struct error err = {0};
    struct mesh *mesh = NULL;
    if (checks_start(&c))
        return 1;
    struct mesh_shape shape = {{1, 1, 1, world_size(c.world)}};
    CHECK(&c, !mesh_create(&mesh, c.world, shape, &err));
    for (size_t i = 0; mesh && i < sizeof settings / sizeof settings[0]; i++)
        compare(&c, settings[i], mesh);
    mesh_destroy(mesh);
    return checks_finish(&c);
}
