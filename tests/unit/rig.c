/* rig.c - see rig.h. */
#include "tests/unit/rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/round.h"
#include "device/ops.h"
#include "program/compile.h"
#include "simulate/machine_file.h"
#include "train/lr_schedule.h"
#include "train/weights.h"

static void must(int rc, const struct error *err)
{
    if (!rc)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

struct config rig_config(const char *settings)
{
    enum { MOST = 64 };
    struct config config;
    struct error err = {0};
    const char *override[MOST];
    char *text = strdup(settings), *rest = text;
    int count = 0;
    for (char *word; count < MOST && (word = strtok_r(rest, " ", &rest));)
        override[count++] = word;
    must(config_load(&config, NULL, override, count, &err), &err);
    free(text);
    return config;
}

static struct program *make_program(struct session *s, enum program_kind kind)
{
    return program_create(s->state, kind);
}

static void upload_table(struct session *s)
{
    struct error err = {0};
    const struct program_buffer *constants = &s->state->buffer[s->state->constants];
    float *table = malloc(constants->bytes + 1);
    must(units_constants(s->units, table, &err), &err);
    must(device_upload(s->device, executor_buffer(s->executor, constants), table, constants->bytes,
                       &err),
         &err);
    free(table);
}

struct units_request rig_units(const struct layout *layout, const struct config *config,
                               const struct model *model)
{
    struct units_request request = layout_units(layout, config);
    request.seq[1] = model->sequences > 1 ? request.seq[0] + 5 : 0;
    return request;
}

struct session *rig_open(struct mem *mem, const struct config *config, const char *level,
                         int generates)
{
    struct error err = {0};
    struct model *model;
    must(layout_model(&model, config, &err), &err);
    return rig_open_model(mem, config, model, NULL, level, generates);
}

struct session *rig_open_model(struct mem *mem, const struct config *config, struct model *model,
                               struct world *world, const char *level, int generates)
{
    struct error err = {0};
    int ranks = world ? world_size(world) : 1, rank = world ? world_rank(world) : 0;
    struct session *s = array_make(1, sizeof *s);
    struct device_request device = {.threads = (int)max_i64(config->run.threads, 1),
                                    .level = level};
    device.kind = config->device == CONFIG_DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    s->config = *config;
    s->mem = mem;
    s->world = world;
    s->model = model;
    must(device_open(&s->device, &device, &err), &err);
    must(layout_resolve(&s->layout, config, ranks, ranks, device.kind, &err), &err);
    struct units_request units = rig_units(&s->layout, config, model);
    layout_set_variant(&units, rank % layout_variants(&s->layout));
    s->config.generate.batch = generates;
    if (generates)
        units.generate = layout_generate(&s->config, generates);
    must(units_create(&s->units, s->model, &units, s->device, &err), &err);
    s->state = state_create(s->units, &s->layout, 1, rank);
    s->data_rank = layout_data_rank(&s->layout, s->state->coord);
    s->train = make_program(s, PROGRAM_TRAIN);
    s->update = s->layout.overlap_update ? make_program(s, PROGRAM_UPDATE) : NULL;
    s->prompt = generates ? make_program(s, PROGRAM_PROMPT) : NULL;
    s->token = generates ? make_program(s, PROGRAM_TOKEN) : NULL;
    s->evaluate = config->data.valid[0] ? make_program(s, PROGRAM_EVALUATE) : NULL;
    const struct program *programs[SESSION_PROGRAMS] = {s->train};
    int count = 1;
    for (int i = 0; i < 2 && generates; i++)
        programs[count++] = i ? s->token : s->prompt;
    if (s->evaluate)
        programs[count++] = s->evaluate;
    if (s->update)
        programs[count++] = s->update;
    char folder[CONFIG_TEXT + 16];
    layout_swap_folder(config, folder);
    if (world)
        must(mesh_create(&s->mesh, world, s->layout.shape, &err), &err);
    const struct optimizer_rule rule = lr_schedule_rule(&config->train, 1);
    must(executor_create(&s->executor, s->device, s->mesh, mem, programs, count, &rule, folder,
                         &err),
         &err);
    must(executor_register(s->executor, &err), &err);
    upload_table(s);
    return s;
}

/* A prompt's chunk, from the first position on: tokens, then any. */
struct prompt {
    const int32_t *tokens;
    int64_t count, row, chunk, first;
};

static int load_prompt(void *user, const struct step_batch *batch, struct error *err)
{
    const struct prompt *p = user;
    for (int64_t i = 0; i < p->chunk; i++)
        batch->tokens[0][i] = p->first + i < p->count ? p->tokens[p->first + i] : 0;
    batch->targets[0] = (int32_t)(p->row - p->first);
    return 0;
}

static int load_prompt_places(void *user, const struct step_batch *batch, struct error *err)
{
    const struct prompt *p = user;
    for (int64_t i = 0; i < p->chunk; i++)
        batch->positions[0][i] = (int32_t)(p->first + i < p->count ? p->first + i : p->count - 1);
    return 0;
}

const float *rig_logits(const struct session *s, const int32_t *tokens, int64_t count, int64_t row)
{
    struct error err = {0};
    struct prompt p = {tokens, count, row, s->units->request.generate.prompt, 0};
    const struct step_input input = {
        .load = load_prompt, .load_positions = load_prompt_places, .user = &p};
    for (p.first = 0; p.first <= row; p.first += p.chunk)
        must(executor_run_step(s->executor, s->prompt, &input, NULL, NULL, &err), &err);
    return executor_buffer(s->executor, &s->prompt->buffer[s->prompt->logits]);
}

void rig_init(struct session *s)
{
    struct error err = {0};
    must(weights_init(s, &err), &err);
}

struct step_input rig_input(const struct session *s, int64_t step)
{
    const struct config_train *c = &s->config.train;
    return (struct step_input){
        .rule = lr_schedule_rule(c, step),
        .seed = (uint64_t)s->config.seed,
        .step = step,
        .decay_all = c->decay == DECAY_ALL,
        .clip = c->clip,
        .nominal_targets = (double)layout_step_tokens(&s->layout, &s->config),
    };
}

int rig_load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct rig_data *data = user;
    int64_t elems = data->batch * data->seq, first = batch->micro * elems;
    memcpy(batch->tokens[0], data->tokens + first, (size_t)elems * sizeof(int32_t));
    memcpy(batch->targets, data->targets + first, (size_t)elems * sizeof(int32_t));
    return 0;
}

int rig_load_step(void *user, const struct step_batch *batch, struct error *err)
{
    const struct rig_step *data = user;
    const struct session *s = data->session;
    int64_t vocab = s->config.model.vocab, rows = s->layout.micro_batch * s->config.data.seq_len;
    for (int64_t i = 0; i < rows; i++) {
        uint64_t random = philox_u64(7 + (uint64_t)data->step, (uint64_t)(batch->micro * rows + i));
        int32_t token = (int32_t)(random % (uint64_t)vocab);
        batch->tokens[0][i] = token;
        batch->targets[i] = i % 7 ? (int32_t)((token * 3 + 1) % vocab) : -1;
    }
    return 0;
}

const struct flat_tensor *rig_tensor(const struct session *s, const char *name, int *flat)
{
    for (*flat = 0; *flat < s->units->flats; ++*flat)
        for (int t = 0; t < s->units->flat[*flat].tensors; t++)
            if (!strcmp(s->units->flat[*flat].tensor[t].name, name))
                return &s->units->flat[*flat].tensor[t];
    return NULL;
}

float *rig_state(const struct session *s, int flat, enum rig_state which)
{
    const struct state_flat *state = &s->train->state->flat[flat];
    const int buffer[] = {state->master, state->grad, state->slot[0], state->slot[1]};
    return executor_buffer(s->executor, &s->train->buffer[buffer[which]]);
}

void rig_refresh(const struct session *s)
{
    for (int f = 0; f < s->units->flats; f++) {
        const struct state_flat *state = &s->train->state->flat[f];
        if (state->master >= 0 && state->param >= 0 && state->param != state->master)
            s->device->ops->cast(s->device, s->layout.dtype,
                                 executor_buffer(s->executor, &s->train->buffer[state->param]),
                                 DTYPE_F32, rig_state(s, f, RIG_MASTER),
                                 s->units->flat[f].shard_elems);
    }
}

void *rig_download(const struct session *s, int buffer)
{
    struct error err = {0};
    size_t bytes = s->train->buffer[buffer].bytes;
    void *host = malloc(bytes + 1);
    must(executor_read(s->executor, &s->train->buffer[buffer], 0, host, bytes, &err), &err);
    return host;
}

static uint64_t hash_buffer(const struct session *s, int buffer, uint64_t hash)
{
    void *host = rig_download(s, buffer);
    hash = hash_bytes_seeded(host, s->train->buffer[buffer].bytes, hash);
    free(host);
    return hash;
}

/* Add to a hash the parameters of a flat that runs compute with: a buffer of the state, or, where
 * each gather makes them of the masters, what it makes.  Returns the new hash. */
static uint64_t hash_param(const struct session *s, int flat, uint64_t hash)
{
    const struct state_flat *state = &s->train->state->flat[flat];
    if (state->param >= 0)
        return hash_buffer(s, state->param, hash);
    if (state->master < 0)
        return hash; /* another stage's */
    float *master = rig_download(s, state->master);
    int64_t elems = s->units->flat[flat].shard_elems;
    uint16_t *param = malloc((size_t)elems * sizeof *param + 1);
    for (int64_t i = 0; i < elems; i++)
        param[i] = s->layout.dtype == DTYPE_BF16 ? f32_to_bf16(master[i]) : f32_to_f16(master[i]);
    hash = hash_bytes_seeded(param, (size_t)elems * sizeof *param, hash);
    free(param);
    free(master);
    return hash;
}

uint64_t rig_hash(const struct session *s)
{
    uint64_t hash = 0;
    for (int f = 0; f < s->units->flats; f++) {
        const struct state_flat *state = &s->train->state->flat[f];
        const int buffer[] = {state->master, state->slot[0], state->slot[1]};
        hash = hash_param(s, f, hash);
        for (int k = 0; k < 3; k++)
            hash = buffer[k] < 0 ? hash : hash_buffer(s, buffer[k], hash);
    }
    return hash;
}

void fleet_open(struct fleet *fleet, const struct config *config, int ranks, enum program_kind kind)
{
    struct error err = {0};
    struct model *model;
    must(layout_model(&model, config, &err), &err);
    fleet_open_model(fleet, config, model, ranks, kind);
}

/* The programs of ranks [first, first + ranks).  tensors: 0, or the ranks of the tensor axis, of
 * which this is one. */
static void open_ranks(struct fleet *fleet, const struct config *config, struct model *model,
                       int tensors, int first, int ranks, enum program_kind kind)
{
    struct error err = {0};
    struct device_request device = {.kind = DEVICE_CPU, .threads = 1};
    *fleet = (struct fleet){.ranks = ranks, .model = model};
    must(layout_resolve(&fleet->layout, config, ranks, ranks, device.kind, &err), &err);
    if (tensors)
        fleet->layout.shape.degree[MESH_TENSOR] = tensors;
    must(device_open(&fleet->device, &device, &err), &err);
    struct units_request units = rig_units(&fleet->layout, config, model);
    int variants = layout_variants(&fleet->layout);
    fleet->variant = array_make((size_t)variants, sizeof(struct units *));
    fleet->state = array_make((size_t)ranks, sizeof *fleet->state);
    fleet->program = array_make((size_t)ranks, sizeof *fleet->program);
    for (int r = 0; r < ranks; r++) {
        struct units **variant = &fleet->variant[(first + r) % variants];
        layout_set_variant(&units, (first + r) % variants);
        if (!*variant)
            must(units_create(variant, fleet->model, &units, fleet->device, &err), &err);
        fleet->state[r] = state_create(*variant, &fleet->layout, 1, first + r);
        fleet->program[r] = program_create(fleet->state[r], kind);
    }
    fleet->units = fleet->variant[first % variants];
}

void fleet_open_model(struct fleet *fleet, const struct config *config, struct model *model,
                      int ranks, enum program_kind kind)
{
    open_ranks(fleet, config, model, 0, 0, ranks, kind);
}

void fleet_open_tensor_rank(struct fleet *fleet, const struct config *config, struct model *model,
                            int tensors, int tensor_rank)
{
    open_ranks(fleet, config, model, tensors, tensor_rank, 1, PROGRAM_TRAIN);
}

void fleet_close(struct fleet *fleet)
{
    for (int r = 0; r < fleet->ranks; r++) {
        program_destroy(fleet->program[r]);
        state_destroy(fleet->state[r]);
    }
    free(fleet->program);
    free(fleet->state);
    for (int v = 0; v < layout_variants(&fleet->layout); v++)
        units_destroy(fleet->variant[v]);
    free(fleet->variant);
    model_destroy(fleet->model);
    device_close(fleet->device);
    layout_release(&fleet->layout);
}

int rig_is_short(void)
{
    const char *text = getenv("CHECK_SHORT");
    return text && atoi(text);
}

double rig_flops(const struct segment *segment)
{
    double flops = 0;
    for (int i = 0; i < segment->pieces; i++)
        flops += segment->piece[i].flops;
    return flops;
}

size_t rig_machine_bytes(const char *name)
{
    struct machine machine;
    struct error err = {0};
    must(machine_find(&machine, name, &err), &err);
    size_t bytes = machine.memory_bytes;
    machine_free(&machine);
    return bytes;
}
