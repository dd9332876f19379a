/* test_parallel.c - context and tensor ranks and pipeline stages against one rank: alone, together,
 * and with the strategies of the data axes.  In every cell
 *   - the losses of PARALLEL_STEPS steps and the weights after them, tensor by tensor, are those of
 *     one rank,
 *   - so is the norm of the gradients,
 *   - memory is allocated and bytes are sent as planned.
 * Sizes are odd: rows, heads, the feed-forward width and the vocabulary do not divide evenly; keys
 * are divided, or whole on every rank (1 to 3 of them).  Micro-batches are fewer than stages, as
 * many, and more.  Some models drop numbers, the same on every layout.
 *
 * On PARALLEL_DEVICE, one of PARALLEL_SHARE cells of its number of ranks, with PARALLEL=all in the
 * environment all of them, with MODEL=N from model N on; the one rank is on the CPU.  What the
 * tolerances are made of: test_matrix.c. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "tests/mpi/training.h"

enum { STEPS = PARALLEL_STEPS, SHARE = PARALLEL_SHARE };

static const double most_of_loss = 1e-5, most_of_weight = 1e-5, most_of_norm = 1e-4;

#define SIZES                                                                     \
    "model.layers=3 model.hidden=42 model.vocab=101 model.ffn=61 "                \
    "train.split_batches=true train.lr=1e-3 train.eps=1e-6 train.warmup_steps=5 " \
    "train.steps=50 run.threads=1 seed=11 "

#define ADAPTERS "lora.r=3 lora.alpha=6 lora.target_modules=all-linear train.lr=4e-3 "

#define DROPOUT "model.embed_dropout=0.1 model.residual_dropout=0.1 model.attention_dropout=0.1 "

static const char *const models[] = {
    SIZES "data.seq_len=17 model.family=llama model.heads=4 model.kv_heads=4 model.head_dim=8",
    SIZES "data.seq_len=17 model.family=llama model.heads=6 model.kv_heads=3 model.head_dim=6 "
          "model.tie_embeddings=true",
    SIZES "data.seq_len=16 model.family=llama model.heads=8 model.kv_heads=2 model.head_dim=4",
    SIZES "data.seq_len=17 model.family=llama model.heads=5 model.kv_heads=1 model.head_dim=8 "
          "model.tie_embeddings=true model.attention_dropout=0.2",
    SIZES "data.seq_len=17 model.family=gpt2 model.heads=5 model.head_dim=8 "
          "model.tie_embeddings=true",
    SIZES "data.seq_len=19 model.family=gpt2 model.heads=4 model.kv_heads=4 model.head_dim=10 "
          "model.max_seq_len=23 model.tie_embeddings=false " DROPOUT,
    SIZES "data.seq_len=17 model.family=llama model.heads=6 model.kv_heads=2 model.head_dim=6 "
          "model.qkv_bias=true model.sliding_window=5 model.tie_embeddings=true",
    SIZES "data.seq_len=17 model.family=llama model.heads=5 model.kv_heads=1 model.head_dim=8 "
          "model.qk_norm=true model.rope_scaling=yarn model.rope_original_len=8",
    SIZES "data.seq_len=17 model.family=llama model.heads=4 model.kv_heads=2 model.head_dim=8 "
          "model.experts=5 model.router_aux_loss_coef=0.05",
    /* Of these the layouts with context, which need sequences of equal chunks; from here on: */
    SIZES "data.seq_len=12 model.family=llama model.heads=4 model.kv_heads=2 model.head_dim=8",
    SIZES "data.seq_len=156 model.family=llama model.heads=5 model.kv_heads=1 model.head_dim=8 "
          "model.tie_embeddings=true",
    SIZES "data.seq_len=24 model.family=gpt2 model.heads=5 model.head_dim=8 "
          "model.max_seq_len=29 model.tie_embeddings=true",
    SIZES "data.seq_len=156 model.family=gpt2 model.heads=4 model.head_dim=10 "
          "model.tie_embeddings=false " DROPOUT,
    SIZES "data.seq_len=156 model.family=llama model.heads=4 model.kv_heads=2 model.head_dim=6 "
          "model.qk_norm=true model.qkv_bias=true model.sliding_window=50",
    SIZES "data.seq_len=12 model.family=llama model.heads=4 model.kv_heads=1 model.head_dim=6 "
          "model.experts=4 model.experts_per_token=3 model.norm_topk_prob=false",
    /* Of these the layouts whose tensor ranks exchange rows in chunks, which must divide the rows;
       from here on: */
    SIZES "data.seq_len=24 model.family=llama model.heads=6 model.kv_heads=3 model.head_dim=6",
    SIZES "data.seq_len=24 model.family=gpt2 model.heads=5 model.head_dim=8 "
          "model.tie_embeddings=true " DROPOUT,
    SIZES "data.seq_len=24 model.family=llama model.heads=6 model.kv_heads=2 model.head_dim=6 "
          "model.qk_norm=true",
    SIZES "data.seq_len=24 model.family=llama model.heads=6 model.kv_heads=2 model.head_dim=6 "
          "model.experts=3 model.experts_per_token=1",
    /* Of these, with adapters, each kind of layout; from here on: */
    SIZES ADAPTERS "data.seq_len=24 model.family=llama model.heads=6 model.kv_heads=3 "
                   "model.head_dim=6 lora.modules_to_save=lm_head,norm",
    SIZES ADAPTERS "data.seq_len=24 model.family=gpt2 model.heads=5 model.head_dim=8 "
                   "lora.modules_to_save=lm_head,ln_f",
    SIZES ADAPTERS "data.seq_len=24 model.family=llama model.heads=6 model.kv_heads=2 "
                   "model.head_dim=6 model.qkv_bias=true model.qk_norm=true "
                   "lora.modules_to_save=lm_head,q_norm lora.dropout=0.1",
    SIZES ADAPTERS "lora.use_dora=true data.seq_len=24 model.family=llama model.heads=6 "
                   "model.kv_heads=2 model.head_dim=6 lora.modules_to_save=lm_head",
    SIZES ADAPTERS "lora.use_dora=true data.seq_len=24 model.family=gpt2 model.heads=5 "
                   "model.head_dim=8 lora.modules_to_save=lm_head",
    SIZES ADAPTERS "data.seq_len=24 model.family=llama model.heads=6 model.kv_heads=2 "
                   "model.head_dim=6 model.experts=3 lora.modules_to_save=lm_head "
                   "lora.target_modules=q_proj,k_proj,v_proj,o_proj",
};
enum {
    MODELS = sizeof models / sizeof models[0],
    CONTEXT_MODELS = 9,
    PARTS_MODELS = 15,
    ADAPTER_MODELS = 19
};

static const struct layout_cell {
    int ranks;
    const char *settings;
} layouts[] = {
    {2, "parallel.tensor=2"},
    {3, "parallel.tensor=3"},
    {4, "parallel.tensor=4"},
    {4, "parallel.tensor=2 parallel.strategy=FULL_SHARD"},
    {4, "parallel.tensor=2 parallel.strategy=SHARD_GRAD_OP"},
    {4, "parallel.tensor=2 parallel.strategy=SHARD_OPTIM"},
    {4, "parallel.tensor=2 parallel.strategy=NO_SHARD"},
    {4, "parallel.tensor=2 parallel.pipeline=2"},
    {4, "parallel.pipeline=2 parallel.strategy=FULL_SHARD"},
    {4, "parallel.pipeline=2 parallel.strategy=FULL_SHARD parallel.pipeline_reshard=true"},
    {4, "parallel.pipeline=2 parallel.strategy=SHARD_GRAD_OP parallel.accumulate=local"},
    {4, "parallel.pipeline=2 parallel.strategy=SHARD_OPTIM"},
    {4, "parallel.pipeline=2 parallel.strategy=NO_SHARD"},
    {8, "parallel.tensor=2 parallel.pipeline=2 parallel.strategy=FULL_SHARD"},
    {3, "parallel.tensor=3 recompute=gathered"},
    {4, "parallel.tensor=2 parallel.pipeline=2 parallel.schedule=zb_h1 recompute=gathered"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static const struct layout_cell contexts[] = {
    {2, "parallel.context=2 parallel.strategy=FULL_SHARD"},
    {2, "parallel.context=2 parallel.strategy=SHARD_GRAD_OP parallel.persist_below=500"},
    {2, "parallel.context=2 parallel.strategy=SHARD_OPTIM"},
    {2, "parallel.context=2 parallel.strategy=NO_SHARD"},
    {3, "parallel.context=3 parallel.strategy=FULL_SHARD"},
    {3, "parallel.context=3 parallel.strategy=NO_SHARD"},
    {4, "parallel.context=2 parallel.tensor=2"},
    {4, "parallel.context=2 parallel.strategy=FULL_SHARD"},
    {4, "parallel.context=2 parallel.strategy=SHARD_GRAD_OP parallel.accumulate=local"},
    {4, "parallel.context=2 parallel.strategy=NO_SHARD"},
    {4, "parallel.context=2 parallel.strategy=HYBRID_SHARD parallel.shard=1"},
    {4, "parallel.context=2 parallel.pipeline=2 parallel.strategy=FULL_SHARD"},
    {4, "parallel.context=2 parallel.pipeline=2 parallel.strategy=NO_SHARD"},
    {8, "parallel.context=2 parallel.tensor=2 parallel.pipeline=2"},
    {8, "parallel.context=2 parallel.tensor=2 parallel.strategy=FULL_SHARD"},
    {3, "parallel.context=3 parallel.strategy=FULL_SHARD recompute=gathered"},
};
enum { CONTEXTS = sizeof contexts / sizeof contexts[0] };

static const struct layout_cell parts[] = {
    {2, "parallel.tensor=2 parallel.tensor_overlap=2"},
    {2, "parallel.tensor=2 parallel.tensor_overlap=4"},
    {3, "parallel.tensor=3 parallel.tensor_overlap=2"},
    {4, "parallel.tensor=4 parallel.tensor_overlap=3"},
    {4, "parallel.tensor=2 parallel.tensor_overlap=2 parallel.strategy=FULL_SHARD"},
    {4, "parallel.tensor=2 parallel.tensor_overlap=3 parallel.pipeline=2"},
    {4, "parallel.tensor=2 parallel.tensor_overlap=2 parallel.context=2"},
    {8, "parallel.tensor=2 parallel.tensor_overlap=2 parallel.pipeline=2 "
        "parallel.strategy=FULL_SHARD"},
    {2, "parallel.tensor=2 parallel.tensor_overlap=3 recompute=gathered"},
    {4, "parallel.tensor=2 parallel.tensor_overlap=2 parallel.context=2 recompute=gathered"},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static const struct layout_cell adapters[] = {
    {2, "parallel.tensor=2"},
    {2, "parallel.tensor=2 parallel.tensor_overlap=2"},
    {2, "parallel.pipeline=2"},
    {2, "parallel.pipeline=2 parallel.schedule=zb_h1"},
    {2, "parallel.strategy=FULL_SHARD"},
    {2, "parallel.context=2"},
    {3, "parallel.tensor=3"},
    {3, "parallel.strategy=SHARD_GRAD_OP parallel.shard=3"},
    {4, "parallel.tensor=4"},
    {4, "parallel.tensor=2 parallel.strategy=FULL_SHARD"},
    {4, "parallel.tensor=2 parallel.pipeline=2"},
    {4, "parallel.context=2 parallel.tensor=2"},
    {4, "parallel.pipeline=2 parallel.strategy=FULL_SHARD parallel.schedule=zb_v"},
    {8, "parallel.tensor=2 parallel.pipeline=2 parallel.strategy=FULL_SHARD"},
};
enum { ADAPTER_LAYOUTS = sizeof adapters / sizeof adapters[0] };

/* Of every layout above. */
static const char *const ways[] = {
    "",
    "recompute=full train.micro_batch=2",
    "recompute=selective train.micro_batch=1",
    "offload.optimizer=host train.micro_batch=2 parallel.schedule=gpipe",
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* Of a pipeline of as many stages as ranks, with every number of micro-batches. */
static const char *const schedules[] = {"naive", "gpipe", "1f1b", "zb_h1"};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

/* With several stages on each rank, of a model with more layers. */
#define DEEP " model.layers=8"
static const char *const chunked[] = {"interleaved_1f1b", "zb_v",
                                      "interleaved_1f1b recompute=selective"};
enum { CHUNKED = sizeof chunked / sizeof chunked[0] };

static const struct micros {
    int global_batch, micro_batch;
} micros[] = {{5, 5}, {5, 3}, {5, 1}, {8, 1}}; /* 1, 2, 5, 8 of them */
enum { MICROS = sizeof micros / sizeof micros[0], BATCHES = 2 };

/* A tensor of the whole model after the last step. */
struct whole {
    char name[FLAT_NAME];
    struct box box;
    float *data;
};

struct reference {
    const char *settings; /* of the model and the batch */
    double loss[STEPS], norm[STEPS];
    int tensors;
    struct whole *tensor;
};

struct test {
    struct checks c;
    char tokens[96], dir[64];
    struct mem idle;
    double worst_loss, worst_weight, worst_norm;
    int cells, run;
};

/* All steps of an opened session; plan NULL: not compared. */
static void steps(struct test *t, struct session *s, const struct report_rank *plan, double *loss,
                  double *norm)
{
    struct error err = {0};
    struct batches batches;
    CHECK(&t->c, !batches_open(&batches, s, t->tokens, LOADER_SHUFFLED, &err));
    rig_init(s);
    for (int step = 1; step <= STEPS; step++) {
        struct step_input input = rig_input(s, step);
        struct step_output output = {0};
        input.load = batches_load;
        input.load_positions = batches_load_positions;
        input.user = &batches;
        batches.sample = (step - 1) * s->layout.global_batch;
        CHECK(&t->c, !executor_run_step(s->executor, s->train, &input, &output, NULL, &err));
        if (plan)
            training_check_volume(&t->c, s, plan);
        loss[step - 1] = output.loss;
        norm[step - 1] = output.grad_norm;
    }
    batches_close(&batches);
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
}

/* A flat's masters, as many as this rank has. */
static float *masters(struct test *t, struct session *s, int flat)
{
    struct error err = {0};
    if (!s->state->has[flat])
        return NULL;
    size_t bytes = (size_t)s->units->flat[flat].shard_elems * sizeof(float);
    float *data = malloc(bytes);
    const struct state *state = s->train->state;
    CHECK(&t->c, !executor_read(s->executor, &s->train->buffer[state->flat[flat].master], 0, data,
                                bytes, &err));
    return data;
}

/* ---- the reference, by rank 0 ---- */

static void keep(struct test *t, struct session *s, struct reference *r)
{
    for (int f = 0; f < s->units->flats; f++) {
        const struct flat *flat = &s->units->flat[f];
        float *data = masters(t, s, f);
        r->tensor = realloc(r->tensor, (size_t)(r->tensors + flat->tensors) * sizeof *r->tensor);
        for (int i = 0; i < flat->tensors; i++) {
            struct whole *w = &r->tensor[r->tensors++];
            size_t bytes = (size_t)flat->tensor[i].elems * sizeof(float);
            memcpy(w->name, flat->tensor[i].name, sizeof w->name);
            w->box = flat->tensor[i].box;
            w->data = malloc(bytes);
            memcpy(w->data, data + flat->tensor[i].offset, bytes);
        }
        free(data);
    }
}

static void share(struct test *t, struct reference *r)
{
    struct world *world = t->c.world;
    world_broadcast(world, r->loss, sizeof r->loss, 0);
    world_broadcast(world, r->norm, sizeof r->norm, 0);
    world_broadcast(world, &r->tensors, sizeof r->tensors, 0);
    if (world_rank(world))
        r->tensor = calloc((size_t)r->tensors, sizeof *r->tensor);
    for (int i = 0; i < r->tensors; i++) {
        struct whole *w = &r->tensor[i];
        world_broadcast(world, w->name, sizeof w->name, 0);
        world_broadcast(world, &w->box, sizeof w->box, 0);
        size_t bytes = (size_t)box_elems(&w->box) * sizeof(float);
        if (world_rank(world))
            w->data = malloc(bytes);
        world_broadcast(world, w->data, bytes, 0);
    }
}

/* Made when the first cell needs it. */
static void make_reference(struct test *t, struct reference *r)
{
    if (r->tensors)
        return;
    if (!world_rank(t->c.world)) {
        struct mem mem = {0};
        char alone[1200];
        snprintf(alone, sizeof alone, "%s device=cpu", r->settings);
        struct config config = rig_config(alone);
        struct session *s = rig_open(&mem, &config, NULL, 0);
        steps(t, s, NULL, r->loss, r->norm);
        keep(t, s, r);
        session_close(s);
        CHECK(&t->c, r->loss[0] > 4.5); /* the logarithm of 101 words is 4.6 */
        CHECK(&t->c, r->loss[STEPS - 1] < r->loss[0] - PARALLEL_DROP);
    }
    share(t, r);
}

static void free_reference(struct reference *r)
{
    for (int i = 0; i < r->tensors; i++)
        free(r->tensor[i].data);
    free(r->tensor);
}

/* ---- a cell ---- */

static const struct whole *find(const struct reference *r, const char *name)
{
    for (int i = 0; i < r->tensors; i++)
        if (!strcmp(r->tensor[i].name, name))
            return &r->tensor[i];
    return NULL;
}

/* Distance of one part of a tensor, which begins at own, from its place in the whole. */
static double part_off(const struct flat_part *part, const struct whole *w, const float *own)
{
    double most = 0;
    for (int64_t i = 0; i < part->count;) {
        int64_t at, run = box_run(&part->tensor->box, &w->box, part->start + i, &at);
        run = run < part->count - i ? run : part->count - i;
        for (int64_t k = 0; k < run; k++) {
            double off = fabs((double)own[i + k] - w->data[at + k]);
            most = off <= most ? most : off; /* NaN stays */
        }
        i += run;
    }
    return most;
}

/* Elements compared are counted: ranks together have each tensor at least once. */
static double weights_off(struct test *t, struct session *s, const struct reference *r,
                          double *elems)
{
    double most = 0;
    for (int f = 0; f < s->units->flats; f++) {
        const struct flat *flat = &s->units->flat[f];
        float *data = masters(t, s, f);
        int64_t first = state_shard_start(s->train->state, f);
        struct flat_part part;
        for (int i = -1;
             data && (i = flat_next_part(flat, first, first + flat->shard_elems, i, &part)) >= 0;) {
            const struct whole *w = find(r, part.tensor->name);
            CHECK(&t->c, w != NULL);
            double off = w ? part_off(&part, w, data + part.at) : 1;
            most = off <= most ? most : off;
            *elems += (double)part.count;
        }
        free(data);
    }
    return most;
}

static double whole_elems(const struct reference *r)
{
    double elems = 0;
    for (int i = 0; i < r->tensors; i++)
        elems += (double)box_elems(&r->tensor[i].box);
    return elems;
}

static double farthest(const double *a, const double *b)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++) {
        double off = fabs(a[i] / b[i] - 1);
        most = off <= most ? most : off;
    }
    return most;
}

static void check_planned(struct test *t, const struct report_rank *plan)
{
    for (int pool = 0; pool < POOL_COUNT; pool++)
        CHECK(&t->c,
              t->c.mem.now_bytes[pool] - t->idle.now_bytes[pool] == plan->need.pool_bytes[pool]);
}

static void compare(struct test *t, struct session *s, const double *loss, const double *norm,
                    const struct reference *r)
{
    double elems = 0, off[3] = {farthest(loss, r->loss), weights_off(t, s, r, &elems),
                                farthest(norm, r->norm)};
    CHECK(&t->c, off[0] <= most_of_loss);
    CHECK(&t->c, off[1] <= most_of_weight);
    CHECK(&t->c, off[2] <= most_of_norm);
    world_all_reduce(t->c.world, &elems, 1, WORLD_SUM);
    CHECK(&t->c, elems >= whole_elems(r));
    t->worst_loss = off[0] <= t->worst_loss ? t->worst_loss : off[0];
    t->worst_weight = off[1] <= t->worst_weight ? t->worst_weight : off[1];
    t->worst_norm = off[2] <= t->worst_norm ? t->worst_norm : off[2];
}

static void run_cell(struct test *t, const char *settings, const struct reference *r)
{
    struct error err = {0};
    struct report report;
    struct session *s = NULL;
    struct log log = {.level = LOG_ERROR, .rank = world_rank(t->c.world)};
    struct config config = rig_config(settings);
    double loss[STEPS], norm[STEPS];
    int failed = t->c.failed;
    struct report_request request = {
        .config = &config, .ranks = world_size(t->c.world), .nodes = 1, .threads = 1};
    CHECK(&t->c, !report_make(&report, &request, &err));
    CHECK(&t->c, report.verified);
    CHECK(&t->c,
          !session_open(&s, t->c.world, &log, &t->c.mem, &config, SESSION_TRAIN, NULL, &err));
    if (s) {
        const struct report_rank *plan = &report.rank[world_rank(t->c.world)];
        check_planned(t, plan);
        steps(t, s, plan, loss, norm);
        compare(t, s, loss, norm, r);
    }
    session_close(s);
    report_free(&report);
    if (t->c.failed > failed)
        fprintf(stderr, "rank %d: in %s: %s\n", world_rank(t->c.world), settings, err.text);
    t->run++;
}

/* A cell, or every so many-th: after the settings of the model and the batch. */
static void try_cell(struct test *t, int model, int batch, struct reference *r, int all,
                     const char *fmt, ...) __attribute__((format(printf, 6, 7)));
static void try_cell(struct test *t, int model, int batch, struct reference *r, int all,
                     const char *fmt, ...)
{
    char settings[1024];
    if (t->cells++ % SHARE && !all)
        return;
    size_t used =
        (size_t)snprintf(settings, sizeof settings, "%s train.global_batch=%d " PARALLEL_DEVICE " ",
                         models[model], batch);
    va_list args;
    va_start(args, fmt);
    vsnprintf(settings + used, sizeof settings - used, fmt, args);
    va_end(args);
    make_reference(t, r);
    run_cell(t, settings, r);
}

/* The layouts of a model. */
static const struct layout_cell *cells_of(int model, int *count)
{
    static const struct {
        int before; /* the models before this one */
        const struct layout_cell *cells;
        int count;
    } of_models[] = {{CONTEXT_MODELS, layouts, LAYOUTS},
                     {PARTS_MODELS, contexts, CONTEXTS},
                     {ADAPTER_MODELS, parts, PARTS},
                     {MODELS, adapters, ADAPTER_LAYOUTS}};
    int i = 0;
    while (model >= of_models[i].before)
        i++;
    *count = of_models[i].count;
    return of_models[i].cells;
}

static void run_model(struct test *t, int model, int all)
{
    static const int batches[BATCHES] = {5, 8};
    int ranks = world_size(t->c.world);
    for (int b = 0; b < (model < CONTEXT_MODELS ? BATCHES : 1); b++) {
        char alone[1024];
        struct reference r = {.settings = alone};
        snprintf(alone, sizeof alone, "%s train.global_batch=%d", models[model], batches[b]);
        int cells;
        const struct layout_cell *cell = cells_of(model, &cells);
        for (int i = 0; i < cells * WAYS && b == 0; i++)
            if (cell[i / WAYS].ranks == ranks)
                try_cell(t, model, batches[b], &r, all, "%s %s", cell[i / WAYS].settings,
                         ways[i % WAYS]);
        for (int i = 0; i < SCHEDULES * MICROS && ranks <= 4 && model < CONTEXT_MODELS; i++)
            if (micros[i % MICROS].global_batch == batches[b])
                try_cell(t, model, batches[b], &r, all,
                         "parallel.pipeline=%d parallel.schedule=%s train.micro_batch=%d", ranks,
                         schedules[i / MICROS], micros[i % MICROS].micro_batch);
        free_reference(&r);
    }
}

/* Several stages on each rank. */
static void run_deep(struct test *t, int model, int all)
{
    int ranks = world_size(t->c.world);
    for (int i = 0; i < MICROS; i++) {
        char alone[1024];
        struct reference r = {.settings = alone};
        int batch = micros[i].global_batch;
        snprintf(alone, sizeof alone, "%s" DEEP " train.global_batch=%d", models[model], batch);
        for (int k = 0; k < CHUNKED; k++)
            try_cell(t, model, batch, &r, all,
                     DEEP " parallel.pipeline=%d train.micro_batch=%d parallel.schedule=%s", ranks,
                     micros[i].micro_batch, chunked[k]);
        free_reference(&r);
    }
}

int main(void)
{
    struct test t = {0};
    const char *how = getenv("PARALLEL");
    int all = how && !strcmp(how, "all");
    if (checks_start(&t.c))
        return 1;
    training_data(&t.c, t.dir, 101);
    snprintf(t.tokens, sizeof t.tokens, "%s/tokens.h5", t.dir);
    t.idle = t.c.mem;
    int from = getenv("MODEL") ? atoi(getenv("MODEL")) : 0;
    for (int model = from; model < MODELS && world_size(t.c.world) > 1; model++)
        run_model(&t, model, all);
    for (int model = 0; model < MODELS && world_size(t.c.world) > 1 && world_size(t.c.world) <= 4;
         model++)
        run_deep(&t, model, all);
    world_barrier(t.c.world);
    if (!world_rank(t.c.world)) {
        printf("# %d ranks: %d of %d cells; losses within %.2g, weights within %.2g, norms within "
               "%.2g of one rank's\n",
               world_size(t.c.world), t.run, t.cells, t.worst_loss, t.worst_weight, t.worst_norm);
        CHECK(&t.c, !disk_remove(t.dir, NULL));
    }
    return checks_finish(&t.c);
}
