/* test_pieces.c - a model divided among the ranks of an axis computes what it computes whole on one
 * rank: losses and gradients are the same but for the rounding of sums in another order.  On the
 * CPU and on the emulated GPU, where exchanges run beside the ops of other pieces. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "comm/gpu/gpu.h"
#include "tests/mpi/check.h"
#include "tests/unit/divided.h"
#include "verify/verify.h"
#include "execute/execute.h"
#include "train/lr_schedule.h"

#define MODEL                                                                                 \
    "model.layers=3 model.hidden=20 model.heads=2 model.kv_heads=2 model.ffn=12 "             \
    "model.vocab=53 data.seq_len=12 train.global_batch=4 train.micro_batch=2 train.clip=0.1 " \
    "train.lr=1e-2 train.steps=9 precision=fp32 " PIECES_DEVICE " "

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
    struct mesh *mesh; /* NULL: alone */
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

static const struct state *state_of(const struct training *t)
{
    return t->d.state[t->rank];
}

static void must(int rc, const struct error *err)
{
    if (!rc)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* A copy of a buffer for free(), from wherever it lies. */
static void *download(const struct training *t, int buffer)
{
    const struct program_buffer *b = &t->d.program[t->rank]->buffer[buffer];
    struct error err = {0};
    void *copy = array_make(b->bytes, 1);
    must(executor_read(t->x, b, 0, copy, b->bytes, &err), &err);
    return copy;
}

static void upload(const struct training *t, int buffer, const void *data)
{
    const struct program_buffer *b = &t->d.program[t->rank]->buffer[buffer];
    struct error err = {0};
    must(executor_write(t->x, b, 0, data, b->bytes, &err), &err);
}

/* Numbers by their places in the whole tensor. */
static void init_part(const struct flat_part *part, float *master, bf16 *param)
{
    const struct box *box = &part->tensor->box, whole = box_whole(box->dims, box->whole);
    uint64_t key = philox_key(7, part->tensor->name);
    for (int64_t i = 0; i < part->count; i++) {
        int64_t place;
        box_run(box, &whole, part->start + i, &place);
        float x = 0.3f * ((float)(philox_u64(key, (uint64_t)place) >> 40) * 0x1p-23f - 1);
        x += box->dims > 1 ? 0 : 1;
        if (master)
            master[part->at + i] = x;
        if (param)
            param[part->at + i] = f32_to_bf16(x);
    }
}

static void init_flat(const struct training *t, int f)
{
    const struct state *state = state_of(t);
    const struct state_flat *own = &state->flat[f];
    const struct flat *flat = &t->units->flat[f];
    int64_t start = flat_shard_start(flat, state->coord.at[MESH_SHARD]);
    int has_param = own->param >= 0 && own->param != own->master;
    float *master = own->master >= 0 ? download(t, own->master) : NULL;
    bf16 *param = has_param ? download(t, own->param) : NULL;
    struct flat_part part;
    for (int k = -1; (k = flat_next_part(flat, start, start + flat->shard_elems, k, &part)) >= 0;)
        init_part(&part, master, param);
    if (master)
        upload(t, own->master, master);
    if (param)
        upload(t, own->param, param);
    free(master);
    free(param);
}

/* All is 0 but the table, weights, and gradients, which are NaN: what nobody writes shows. */
static void init(const struct training *t)
{
    const struct state *state = state_of(t);
    for (int b = 0; b < state->buffers; b++) {
        void *bytes = array_make(state->buffer[b].bytes, 1);
        for (int f = 0; f < t->units->flats; f++)
            if (state->flat[f].grad == b)
                memset(bytes, 0xff, state->buffer[b].bytes);
        if (b == state->constants)
            divided_table(&t->d, t->rank, bytes);
        upload(t, b, bytes);
        free(bytes);
    }
    for (int f = 0; f < t->units->flats; f++)
        init_flat(t, f);
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
        if (executor_run_step(t->x, t->d.program[t->rank], &input, &output, NULL, err))
            return -1;
        t->loss[step - 1] = output.loss;
        t->norm[step - 1] = output.grad_norm;
    }
    return 0;
}

/* The ranks are the data ranks of a setting times this; 0: they are not. */
static int tensor_ranks(const struct config *config, const struct world *world)
{
    const struct config_parallel *parallel = &config->parallel;
    int shards = parallel->shard > 1 ? (int)parallel->shard : 1;
    int replicas = parallel->replicate > 1 ? (int)parallel->replicate : 1;
    int ranks = world_size(world), data = replicas * shards;
    return ranks % data ? 0 : ranks / data;
}

/* Open a training on all ranks of world, or alone where that is NULL. */
static int begin(struct training *t, const char *text, struct world *world, struct error *err)
{
    struct config config = rig_config(text);
    struct mesh_options options = layout_comm(&config);
    int rank = world ? world_rank(world) : 0;
    *t = (struct training){.rank = rank, .train = config.train};
    divided_open(&t->d, text, world ? tensor_ranks(&config, world) : 1);
    t->units = t->d.units[rank];
    const struct program *program = t->d.program[rank];
    if (verify_program(program, err) || verify_program(t->d.evaluate[rank], err) ||
        verify_ranks((const struct program *const *)t->d.program, t->d.ranks, err) ||
        (world && mesh_create(&t->mesh, world, t->d.layout.shape, err)) ||
        (world && mesh_attach(t->mesh, world, t->d.device, &t->mem, &options, err)) ||
        executor_create(&t->x, t->d.device, t->mesh, &t->mem, &program, 1, NULL, "", err))
        return -1;
    init(t);
    return 0;
}

static void end(struct checks *c, struct training *t)
{
    executor_destroy(t->x);
    mesh_destroy(t->mesh);
    divided_close(&t->d);
    CHECK(c, !t->mem.blocks);
}

/* A tensor of the whole model, and the gradient of the flat that it is in, for free(). */
static const struct flat_tensor *whole_of(const struct training *whole, const char *name,
                                          float **gradients)
{
    for (int f = 0; f < whole->units->flats; f++) {
        const struct flat *flat = &whole->units->flat[f];
        int tensor = flat_find(flat, name);
        if (tensor < 0)
            continue;
        *gradients = download(whole, state_of(whole)->flat[f].grad);
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
    float *gradients = NULL;
    const struct flat_tensor *tensor = whole_of(whole, part->tensor->name, &gradients);
    const float *gradient = gradients + tensor->offset;
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
    free(gradients);
    return largest > 0 ? difference / largest : 1;
}

static double gradient_distance(const struct training *part, const struct training *whole)
{
    double worst = 0;
    for (int f = 0; f < part->units->flats; f++) {
        const struct flat *flat = &part->units->flat[f];
        const struct state *state = state_of(part);
        int64_t start = flat_shard_start(flat, state->coord.at[MESH_SHARD]);
        struct flat_part own;
        if (!flat->trained)
            continue;
        float *gradients = download(part, state->flat[f].grad);
        for (int t = -1;
             (t = flat_next_part(flat, start, start + flat->shard_elems, t, &own)) >= 0;)
            worst = fmax(worst, part_distance(&own, gradients, whole));
        free(gradients);
    }
    return worst;
}

/* Gradients of the first step: later ones have gone through an optimizer that divides by them. */
static void compare(struct checks *c, const char *text)
{
    struct training whole, part;
    struct error err = {0};
    char alone[1024];
    int ranks = world_size(c->world);
    double losses = 0, norms = 0, gradients = INFINITY;
    snprintf(alone, sizeof alone, "%s parallel.shard=1 parallel.replicate=1", text);
    if (!begin(&whole, alone, NULL, &err) & !begin(&part, text, c->world, &err) &&
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
    if (!world_rank(c->world))
        printf("%d ranks: losses differ by %.1e, gradients by %.1e, norms (first: %.3g) by %.1e\n",
               ranks, losses, gradients, whole.norm[0], norms);
    end(c, &whole);
    end(c, &part);
}

int main(void)
{
    struct checks c = {0};
    struct error err = {0};
    if (checks_start(&c))
        return 1;
    const struct config first = rig_config(settings[0]);
    int gpu = 0;
    if (first.device == CONFIG_DEVICE_CUDA)
        must(gpu_choose(c.world, first.comm.share_gpu ? GPU_SHARED : GPU_OWN, &gpu, &err), &err);
    CHECK(&c, !gpu); /* which divided_open() opens */
    int all = first.device != CONFIG_DEVICE_CUDA || !rig_is_short();
    for (size_t i = all ? 0 : 1; i < sizeof settings / sizeof settings[0]; i += all ? 1 : 4) {
        struct config config = rig_config(settings[i]);
        if (tensor_ranks(&config, c.world))
            compare(&c, settings[i]);
    }
    return checks_finish(&c);
}
