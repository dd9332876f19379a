/* layout.c - the layout that a configuration means on so many ranks: strategy, mesh, batches,
 * formats; and what model, units, mesh and swap file are made with.
 *
 * layout_resolve() first takes what follows from the configuration alone, then finds the degrees of
 * the mesh, checks what depends on them (check_*(), each of which names what to set instead), finds
 * batches and micro-batches, and makes the schedule of these.
 */
#include "program/layout.h"

#include <stdio.h>
#include <unistd.h>

#include "base/fp8.h"
#include "base/round.h"
#include "io/safetensors.h"
#include "model/adapters.h"
#include "program/schedule.h"

/* Does FULL_SHARD keep gathered parameters for the step?  On several stages, where they would
 * otherwise be gathered again for each micro-batch, it does, unless parallel.pipeline_reshard asks
 * for that, or parameters are offloaded. */
static int keeps_params(const struct config *config)
{
    const struct config_parallel *p = &config->parallel;
    return p->pipeline > 1 && !p->pipeline_reshard && config->offload.params == OFFLOAD_NONE;
}

/* What a strategy of the configuration keeps whole, and when it sums gradients. */
static struct layout_strategy strategy_of(const struct config *config)
{
    const struct config_parallel *p = &config->parallel;
    static const struct {
        enum layout_whole_params params;
        enum layout_whole_grads grads;
    } stages[STAGE_MOST + 1] = {
        [0] = {.params = PARAMS_ALWAYS, .grads = GRADS_ALWAYS},
        [1] = {.params = PARAMS_STEP, .grads = GRADS_ALWAYS},
        [2] = {.params = PARAMS_STEP, .grads = GRADS_MICRO},
        [3] = {.params = PARAMS_USE, .grads = GRADS_MICRO},
    };
    int stage = config_sharding[p->strategy].stage;
    return (struct layout_strategy){
        .params = stage == 3 && keeps_params(config) ? PARAMS_STEP : stages[stage].params,
        .grads = stages[stage].grads,
        .accumulate_local = p->accumulate == ACCUMULATE_LOCAL,
        .bucket_bytes = (size_t)p->reduce_bucket_bytes,
    };
}

/* The shard degree of a hybrid strategy: parallel.shard (0: what is left) where it or
 * parallel.replicate is set.  Else each node has a copy of each stage's units, shared by the node's
 * ranks, or, where a node has several stages, by those of one; context and tensor ranks divide a
 * copy too.  -1 with err set: there is no such degree. */
static int hybrid_shard(const struct config_parallel *p, int ranks, int per_node, struct error *err)
{
    int each = (int)(p->tensor * p->context), stages = p->pipeline ? (int)p->pipeline : 1;
    int of_stage = ranks / stages, copy = per_node < of_stage ? per_node : of_stage;
    if (p->shard || p->replicate)
        return (int)p->shard;
    if (ranks % stages)
        return 1; /* the mesh refuses the stages */
    if (copy > 0 && of_stage % copy == 0 && per_node % copy == 0 && copy % each == 0)
        return copy / each;
    if (copy > 0 && of_stage % copy == 0 && per_node % copy == 0)
        return error_set(err,
                         "parallel: a copy of the model per node needs a %s that divides the %d "
                         "ranks of %s, not %d; set it, or name parallel.shard",
                         p->context == 1  ? "parallel.tensor"
                         : p->tensor == 1 ? "parallel.context"
                                          : "product of parallel.context and parallel.tensor",
                         copy, copy < per_node ? "a stage" : "a node", each);
    return error_set(err,
                     "parallel: a copy of the model per node needs as many ranks on every node%s; "
                     "name parallel.shard, a divisor of the %d ranks%s",
                     stages > 1 ? ", and stages of whole nodes or whole stages on a node" : "",
                     of_stage, stages > 1 ? " of a stage" : "");
}

/* Refuse more tensor ranks than heads, ffn columns, tokens of the vocabulary or positions. */
static int check_tensor(int tensors, const struct config_model *m, struct error *err)
{
    const struct {
        const char *name;
        int64_t size;
    } divided[] = {{.name = "heads", .size = m->heads},
                   {.name = "ffn", .size = m->ffn},
                   {.name = "vocab", .size = m->vocab},
                   {.name = "max_seq_len", .size = m->max_seq_len}};
    for (size_t i = 0; i < sizeof divided / sizeof divided[0]; i++)
        if (tensors > divided[i].size)
            return error_set(err,
                             "parallel.tensor %d does not fit model.%s %lld, of which each of "
                             "these ranks has its own",
                             tensors, divided[i].name, (long long)divided[i].size);
    return 0;
}

/* Ranks that share sequences have two chunks of each, all equal. */
static int check_context(int contexts, const struct config *config, struct error *err)
{
    int64_t seq = config->data.seq_len, parts = 2 * contexts, most = config->model.max_seq_len;
    int64_t below = seq / parts * parts, above = below + parts;
    int64_t nearest = above <= most && (!below || above - seq < seq - below) ? above : below;
    if (contexts == 1 || seq % parts == 0)
        return 0;
    if (!nearest)
        return error_set(err,
                         "parallel.context %d cuts a sequence into %lld equal parts, and "
                         "model.max_seq_len %lld has not as many tokens",
                         contexts, (long long)parts, (long long)most);
    return error_set(
        err,
        "parallel.context %d cuts a sequence into %lld equal parts, which data.seq_len "
        "%lld does not have; data.seq_len=%lld is the nearest that has",
        contexts, (long long)parts, (long long)seq, (long long)nearest);
}

/* The degrees that the configuration names; 0: what is left. */
static int fill_degrees(struct mesh_shape *shape, const struct config_parallel *p, int ranks,
                        int per_node, struct error *err)
{
    *shape = (struct mesh_shape){{1, 1, 1, 1, 1}};
    int hybrid = config_sharding[p->strategy].hybrid;
    shape->degree[MESH_PIPELINE] = p->pipeline ? (int)p->pipeline : 1;
    shape->degree[MESH_CONTEXT] = (int)p->context;
    shape->degree[MESH_TENSOR] = (int)p->tensor;
    shape->degree[MESH_SHARD] = hybrid ? hybrid_shard(p, ranks, per_node, err) : (int)p->shard;
    shape->degree[MESH_REPLICATE] = (int)p->replicate;
    return shape->degree[MESH_SHARD] < 0 ? -1 : 0;
}

/* The streams of messages between stages, and those by which two ranks exchange the gradient of
 * what both have (tied_flats.h). */
static unsigned points_of(const struct schedule *s)
{
    unsigned points = s->ranks > 1 ? 1u << mesh_point(s->ranks, 0, 1, WAY_UP) |
                                         1u << mesh_point(s->ranks, 1, 0, WAY_DOWN)
                                   : 0;
    for (int stage = 0; stage + 1 < s->stages; stage++) {
        int lower = s->rank_of[stage], upper = s->rank_of[stage + 1];
        if (lower != upper)
            points |= 1u << mesh_point(s->ranks, lower, upper, WAY_UP) |
                      1u << mesh_point(s->ranks, upper, lower, WAY_DOWN);
    }
    return points;
}

/* Rows of a micro-batch that the ranks of a tensor group compute together. */
static int64_t tensor_rows(const struct layout *layout, const struct config *config)
{
    return layout->micro_batch * config->data.seq_len / layout->shape.degree[MESH_CONTEXT];
}

/* In how many chunks rows are exchanged where that is left to us: a chunk must be large enough for
 * its product to run at full speed.  On H100s products in chunks of 128 rows were slower than one
 * product after one exchange, of 512 rows faster, and of 2048 in eight chunks slower again: so few
 * chunks, and large ones.  On a CPU the thread that exchanges takes its time from the products. */
static int best_chunks(int64_t rows, int on_gpu)
{
    static const struct {
        int64_t rows;
        int chunks;
    } table[] = {{16384, 4}, {4096, 2}};
    for (size_t i = 0; on_gpu && i < sizeof table / sizeof table[0]; i++)
        if (rows >= table[i].rows)
            return table[i].chunks;
    return 1;
}

static int row_chunks(const struct layout *layout, const struct config *config)
{
    int64_t rows = tensor_rows(layout, config), ranks = layout->shape.degree[MESH_TENSOR];
    int asked = config->parallel.tensor_overlap;
    int chunks = asked ? asked : best_chunks(rows, layout->host_apart);
    return ranks > 1 && rows % (ranks * chunks) == 0 ? chunks : 1;
}

/* A gradient in bf16 is that of one micro-batch: a sum of several would lose small terms. */
static int check_grad_dtype(const struct layout *layout, const struct config *config,
                            struct error *err)
{
    if (config->train.grad_dtype == DTYPE_F32 || layout->micros == 1)
        return 0;
    return error_set(err,
                     "train.grad_dtype bf16 is of one micro-batch a step, and each rank has %d, "
                     "whose sum needs fp32: set train.micro_batch=%lld, use more ranks, or leave "
                     "it at fp32",
                     layout->micros, (long long)ceil_div(layout->global_batch, layout->data_ranks));
}

/* Blocks of rows whose gradient of a weight is summed in fp8 are of one sequence, wherever it is:
 * of the two chunks of it that a rank has, where ranks divide sequences. */
static int check_fp8(const struct layout *layout, const struct config *config, struct error *err)
{
    int64_t ranks = layout->shape.degree[MESH_CONTEXT],
            of = FP8_BLOCK * (ranks > 1 ? 2 * ranks : 1);
    int64_t seq = config->data.seq_len, most = config->model.max_seq_len / of * of;
    int64_t other = min_i64(round_up(seq, of), most);
    char advice[64] = "";
    if (config->precision != PRECISION_FP8 || seq % of == 0)
        return 0;
    if (other > 0)
        snprintf(advice, sizeof advice, "set data.seq_len=%lld, or ", (long long)other);
    return error_set(err,
                     "precision fp8 rounds blocks of %d tokens, and %lld (data.seq_len%s) is not a "
                     "multiple of %lld; %suse precision bf16",
                     FP8_BLOCK, (long long)seq, ranks > 1 ? ", of which a rank has two chunks" : "",
                     (long long)of, advice);
}

enum dtype layout_dtype(const struct config *config)
{
    static const enum dtype dtypes[] = {
        [PRECISION_FP32] = DTYPE_F32,       [PRECISION_BF16] = DTYPE_BF16,
        [PRECISION_BF16_PURE] = DTYPE_BF16, [PRECISION_FP16] = DTYPE_F16,
        [PRECISION_FP8] = DTYPE_BF16,
    };
    return dtypes[config->precision];
}

enum dtype layout_product_dtype(const struct config *config, int on_gpu)
{
    return config->precision == PRECISION_FP8 && on_gpu ? DTYPE_F8 : layout_dtype(config);
}

/* Refuse keys of comm.gpu that are of transfers which this run does not have. */
static int check_transfers(const struct layout *layout, const struct config *config, int ranks,
                           struct error *err)
{
    const struct config_comm_gpu *g = &config->comm.gpu;
    const char *name = config_first_set(config, g, sizeof *g);
    if (!name)
        return 0;
    if (!layout->host_apart)
        return error_set(
            err, "%s is of transfers between GPUs, and this runs on CPUs; leave it out", name);
    struct config other = *config; /* without what one rank has a use for */
    if (layout->overlap_update && config->offload.optimizer == OFFLOAD_NONE)
        other.comm.gpu.spare_sms = 0;
    name = config_first_set(&other, &other.comm.gpu, sizeof other.comm.gpu);
    if (ranks == 1 && name)
        return error_set(
            err, "%s is of transfers between GPUs, and there is one rank; leave it out", name);
    if (g->copy_engines && mesh_members(&layout->shape, MESH_SHARDS) == 1)
        return error_set(err, "comm.copy_engines is of gathers of parameters, and here every rank "
                              "has all that it computes; leave it at false");
    return 0;
}

/* Libraries count the rows of a product, the tokens that a rank computes at once, in 32 bits. */
static int check_tokens(const struct layout *layout, const struct config *config, struct error *err)
{
    int64_t batch = max_i64(layout->micro_batch, layout->eval_batch);
    int64_t length = ceil_div(config->data.seq_len, layout->shape.degree[MESH_CONTEXT]);
    if (!length || batch <= INT32_MAX / length)
        return 0;
    return error_set(
        err,
        "%lld sequences of %lld tokens at once are more than the %d tokens that a rank "
        "can compute: set a smaller %s, or, if a number of tokens was meant, "
        "train.global_batch_tokens",
        (long long)batch, (long long)config->data.seq_len, INT32_MAX,
        layout->micro_batch == batch ? "train.micro_batch" : "train.eval_micro_batch");
}

/* Batches and micro-batches, once the shape is known. */
static int resolve_batches(struct layout *layout, const struct config *config, struct error *err)
{
    layout->data_ranks = layout->shape.degree[MESH_REPLICATE] * layout->shape.degree[MESH_SHARD];
    layout->global_batch =
        config->train.global_batch * (config->train.split_batches ? 1 : layout->data_ranks);
    int64_t each = ceil_div(layout->global_batch, layout->data_ranks);
    layout->micro_batch = config->train.micro_batch ? config->train.micro_batch : each;
    layout->eval_batch =
        config->train.eval_micro_batch ? config->train.eval_micro_batch : layout->micro_batch;
    int64_t micros = ceil_div(each, layout->micro_batch);
    if (micros > LAYOUT_MOST_MICROS)
        return error_set(
            err,
            "train.global_batch of %lld sequences is %lld micro-batches a step on each "
            "rank, and at most %d are possible: set a larger train.micro_batch, or, if a number of "
            "tokens was meant, train.global_batch_tokens",
            (long long)layout->global_batch, (long long)micros, LAYOUT_MOST_MICROS);
    layout->micros = (int)micros;
    return check_tokens(layout, config, err);
}

int layout_refers_to_folder(const struct config *config)
{
    const char *folder = config->model_path;
    if (!config->lora.r || config->checkpoint.frozen == FROZEN_FULL || !folder[0])
        return 0;
    return access(folder, F_OK) || safetensors_look(folder) != SAFETENSORS_NONE;
}

static enum layout_copy copy_of(const struct config *config)
{
    if (!config->checkpoint.async)
        return COPY_NONE;
    return layout_refers_to_folder(config) ? COPY_TRAINED : COPY_ALL;
}

int layout_resolve(struct layout *layout, const struct config *config, int ranks, int per_node,
                   enum device_kind device, struct error *err)
{
    const struct config_parallel *p = &config->parallel;
    enum dtype dtype = layout_dtype(config);
    int ahead = (int)p->prefetch_units;
    *layout = (struct layout){
        .strategy = strategy_of(config),
        .offload = config->offload,
        .host_apart = device != DEVICE_CPU,
        .dtype = dtype,
        .optimizer_dtype = config->train.optimizer_dtype,
        .reduce_dtype = config->comm.reduce_dtype,
        .tensor_fp32 = p->tensor_fp32 && dtype != DTYPE_F32,
        .no_masters = config->precision == PRECISION_BF16_PURE,
        .overlap_update = config->train.overlap_update,
        .copy = copy_of(config),
        .prefetch_forward = p->forward_prefetch ? ahead : 0,
        .prefetch_backward = p->backward_prefetch == PREFETCH_NONE ? 0 : ahead,
        .prefetch_late = p->backward_prefetch == PREFETCH_BACKWARD_POST,
    };
    if (config->train.optimizer == OPTIMIZER_MUON && layout->host_apart &&
        config->offload.optimizer != OFFLOAD_NONE)
        return error_set(err, "offload.optimizer updates on the host, and train.optimizer muon has "
                              "products that are the GPU's; leave it at none, or use adamw");
    if (fill_degrees(&layout->shape, p, ranks, per_node, err) ||
        mesh_resolve(&layout->shape, ranks, err) || check_transfers(layout, config, ranks, err) ||
        check_context(layout->shape.degree[MESH_CONTEXT], config, err) ||
        check_fp8(layout, config, err) ||
        check_tensor(layout->shape.degree[MESH_TENSOR], &config->model, err) ||
        resolve_batches(layout, config, err))
        return -1;
    layout->row_chunks = row_chunks(layout, config);
    if (check_grad_dtype(layout, config, err))
        return -1;
    struct schedule_request request = {.name = p->schedule,
                                       .ranks = layout->shape.degree[MESH_PIPELINE],
                                       .chunks = (int)p->virtual_stages,
                                       .micros = layout->micros};
    if (schedule_create(&layout->schedule, &request, err))
        return -1;
    layout->shape.points = points_of(layout->schedule);
    return 0;
}

int layout_lost_overlap(const struct layout *layout, const struct config *config)
{
    return config->parallel.tensor_overlap > layout->row_chunks ? config->parallel.tensor_overlap
                                                                : 0;
}

void layout_release(struct layout *layout)
{
    schedule_destroy(layout->schedule);
    layout->schedule = NULL;
}

/* All blocks of a model have the same size. */
static int64_t blocks_of_size(const struct model *model, int64_t params)
{
    int64_t blocks = 1;
    for (int u = 0; u < model->units; u++)
        if (u > 0 && model->unit[u].kind == model->unit[u - 1].kind)
            blocks = ceil_div(params, model_unit_params(model, u));
    return blocks;
}

static int64_t blocks_per_unit(const struct model *model, const struct config *config)
{
    const struct config_parallel *p = &config->parallel;
    switch (p->wrap) {
    case WRAP_LAYERS: return p->layers_per_unit;
    case WRAP_SIZE: return blocks_of_size(model, p->min_num_params);
    case WRAP_NONE: return config->model.layers;
    default: return 1;
    }
}

void layout_wrap(struct model *model, const struct config *config)
{
    int64_t blocks = blocks_per_unit(model, config);
    model_wrap(model, blocks < config->model.layers ? (int)blocks : (int)config->model.layers);
}

int layout_model(struct model **model, const struct config *config, struct error *err)
{
    if (model_create(model, &config->model, err))
        return -1;
    if (adapters_add(*model, &config->lora, err)) {
        model_destroy(*model);
        *model = NULL;
        return -1;
    }
    (*model)->packed = config->data.packing == PACKING_DOCUMENTS;
    (*model)->seed = (uint64_t)config->seed;
    (*model)->fp8 = config->precision == PRECISION_FP8;
    (*model)->logits = config->train.logits_dtype;
    (*model)->logits_rows = config->train.logits_chunk;
    layout_wrap(*model, config);
    return 0;
}

struct units_generate layout_generate(const struct config *config, int64_t texts)
{
    /* Rows of all texts in a pass over prompts: enough for products at full speed; and the least
     * and the most rows of one text.  A pass computes all of them, however short its prompts are;
     * so only a single text, of which the length is known, has more.  Estimates. */
    int64_t context = config->data.seq_len, longest = min_i64(config->generate.longest, context);
    int64_t batch = min_i64(config->generate.batch, texts);
    const int is_known = batch == 1 && longest > 0;
    const int64_t rows = is_known ? 1024 : 512, most = is_known ? 1024 : 128, least = 16;
    int64_t prompt = min_i64(max_i64(rows / batch / 2 * 2, least), most);
    prompt = min_i64(prompt, context + context % 2);
    if (longest > 0) /* passes of about the same length */
        prompt = min_i64(prompt, round_up(ceil_div(longest, ceil_div(longest, prompt)), least));
    return (struct units_generate){.batch = batch, .prompt = prompt, .cache = context + prompt};
}

struct units_request layout_units(const struct layout *layout, const struct config *config)
{
    int splits = layout->strategy.params != PARAMS_ALWAYS;
    int contexts = layout->shape.degree[MESH_CONTEXT];
    unsigned shard_axes = splits ? mesh_wide_axes(&layout->shape, MESH_SHARDS) : 0;
    return (struct units_request){
        .dtype = layout->dtype,
        .batch = layout->micro_batch,
        .eval_batch = layout->eval_batch,
        .seq = {config->data.seq_len / contexts},
        .shards = mesh_members(&layout->shape, shard_axes),
        .shard_axes = shard_axes,
        .data_axes = mesh_wide_axes(&layout->shape, MESH_DATA),
        .tensor = {.axes = 1u << MESH_TENSOR,
                   .size = layout->shape.degree[MESH_TENSOR],
                   .row_chunks = layout->row_chunks,
                   .fp32 = layout->tensor_fp32},
        .context = {.axes = 1u << MESH_CONTEXT, .size = contexts},
        .persist_below = config->parallel.persist_below,
        .optimizer = config->train.optimizer,
        .grad_dtype = config->train.grad_dtype,
        .ns_dtype = config->train.muon.dtype,
        .freeze = config->train.freeze,
        .frozen_whole = layout->strategy.params != PARAMS_USE,
        .quantize = config->lora.quantize_base,
        .recompute = config->recompute,
        .recompute_every = (int)config->recompute_every,
        .splits_loss = layout->schedule->splits_loss,
        .splits_backward = layout->schedule->splits_backward,
        .stages = layout->schedule->stages,
        .rank_of = layout->schedule->rank_of,
        .stage_units = config->parallel.stages,
        .loss_factor = 1.0f / (float)layout_step_tokens(layout, config),
    };
}

int layout_variants(const struct layout *layout)
{
    return mesh_members(&layout->shape, 1u << MESH_CONTEXT | 1u << MESH_TENSOR);
}

void layout_set_variant(struct units_request *request, int variant)
{
    request->context.rank = variant / request->tensor.size;
    request->tensor.rank = variant % request->tensor.size;
}

void layout_swap_folder(const struct config *config, char folder[CONFIG_TEXT + 16])
{
    if (config->offload.path[0])
        snprintf(folder, CONFIG_TEXT + 16, "%s", config->offload.path);
    else
        snprintf(folder, CONFIG_TEXT + 16, "%s/offload", config->run.dir);
}

struct mesh_options layout_comm(const struct config *config)
{
    return (struct mesh_options){
        .inter_node = config->comm.inter_node == CONFIG_INTER_NODE_MPI ? COMM_INTER_NODE_MPI
                                                                       : COMM_INTER_NODE_NCCL,
        .share_gpu = config->comm.share_gpu,
        .min_ctas = (int)config->comm.gpu.min_ctas,
        .max_ctas = (int)config->comm.gpu.max_ctas,
        .copy_engines = config->comm.gpu.copy_engines,
        .keep_apart = !config->comm.shared_memory,
        .nvls = config->comm.gpu.nvls,
    };
}

int layout_data_rank(const struct layout *layout, struct mesh_coord coord)
{
    return coord.at[MESH_REPLICATE] * layout->shape.degree[MESH_SHARD] + coord.at[MESH_SHARD];
}
