/* session.c - open what a command computes with, in this order: compare settings among ranks,
 * choose the device (all ranks the same kind), layout (found first where parallel.layout is auto),
 * model, units and programs, all without memory of the model; compare what they need with what
 * there is (memory_budget.h), while failing is cheap; then mesh, communicators, slabs.  After each
 * part that can fail on one rank all ranks agree, so that all go on or all return its error. */
#include "train/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "comm/gpu/gpu.h"
#include "program/compile.h"
#include "program/sent.h"
#include "verify/verify.h"
#include "train/gpu_check.h"
#include "train/gpu_shapes.h"
#include "plan/attention_memory.h"
#include "train/layout_auto.h"
#include "train/lr_schedule.h"
#include "train/memory_budget.h"
#include "train/shared_settings.h"

static int add_program(struct session *s, struct program **program, enum program_kind kind,
                       struct error *err)
{
    *program = program_create(s->state, kind);
    s->programs[s->program_count++] = *program;
    return verify_program(*program, err);
}

static int compile(struct session *s, enum session_use use, struct error *err)
{
    struct units_request request = layout_units(&s->layout, &s->config);
    layout_set_variant(&request, world_rank(s->world) % layout_variants(&s->layout));
    int generates = use == SESSION_GENERATE || (use == SESSION_TRAIN && s->config.generate.samples);
    if (generates)
        request.generate =
            layout_generate(&s->config, use == SESSION_GENERATE ? s->config.generate.batch
                                                                : s->config.generate.samples);
    if (use == SESSION_GENERATE) /* nothing is trained or evaluated: no space for a sequence */
        request.seq[0] = 1;
    if (units_create(&s->units, s->model, &request, s->device, err))
        return -1;
    int training = use == SESSION_TRAIN;
    s->state = state_create(s->units, &s->layout, training, world_rank(s->world));
    if (training && add_program(s, &s->train, PROGRAM_TRAIN, err))
        return -1;
    if (training && s->layout.overlap_update && add_program(s, &s->update, PROGRAM_UPDATE, err))
        return -1;
    int evaluates = use == SESSION_EVALUATE || (training && s->config.data.valid[0]);
    if (evaluates && add_program(s, &s->evaluate, PROGRAM_EVALUATE, err))
        return -1;
    if (generates && (add_program(s, &s->prompt, PROGRAM_PROMPT, err) ||
                      add_program(s, &s->token, PROGRAM_TOKEN, err)))
        return -1;
    return 0;
}

/* Compute the constants of the model, such as its rotary table, and copy them to the device. */
static int upload_table(struct session *s, struct error *err)
{
    const struct program_buffer *constants = &s->state->buffer[s->state->constants];
    void *to = executor_buffer(s->executor, constants), *table = malloc(constants->bytes + 1);
    if (!table)
        return error_set(err, "out of memory: constants of the model");
    int rc = units_constants(s->units, table, err) ||
             device_upload(s->device, to, table, constants->bytes, err);
    free(table);
    return rc ? -1 : 0;
}

static int allocate(struct session *s, struct error *err)
{
    char folder[CONFIG_TEXT + 16];
    layout_swap_folder(&s->config, folder);
    if (executor_allocate(&s->executor, s->device, s->mesh, s->mem, s->programs, s->program_count,
                          folder, err))
        return -1;
    executor_watch(s->executor, (int)s->config.run.hang_seconds);
    return 0;
}

/* Make what steps need.  On a GPU this captures the matrix products, with the algorithms chosen. */
static int prepare_steps(struct session *s, struct error *err)
{
    const struct optimizer_rule rule = lr_schedule_rule(&s->config.train, 1);
    return executor_prepare(s->executor, s->programs, s->program_count, &rule, err) ||
                   upload_table(s, err)
               ? -1
               : 0;
}

/* The threads of this rank: run.threads; else 0 if OMP_NUM_THREADS is set, which the device reads;
 * else the cores that are the rank's own. */
static int threads_of(const struct session *s)
{
    if (s->config.run.threads || getenv("OMP_NUM_THREADS"))
        return (int)s->config.run.threads;
    return world_cores(s->world);
}

/* Choose the CPU or a GPU. Collective: auto chooses the same kind on all ranks. */
static int choose_device(struct session *s, struct device_request *request, struct error *err)
{
    *request = (struct device_request){.kind = DEVICE_CPU,
                                       .local_ranks = world_local_size(s->world),
                                       .any_order = !s->config.train.reproducible,
                                       .spare_sms = (int)s->config.comm.gpu.spare_sms};
    enum config_device wanted = s->config.device;
    if (wanted == CONFIG_DEVICE_AUTO && gpu_everywhere(s->world))
        wanted = CONFIG_DEVICE_CUDA;
    enum gpu_sharing sharing = s->config.comm.share_gpu ? GPU_SHARED : GPU_OWN;
    if (wanted == CONFIG_DEVICE_CUDA) {
        request->kind = DEVICE_CUDA;
        if (gpu_choose(s->world, sharing, &request->index, err))
            return -1;
    }
    request->threads = threads_of(s); /* a rank is bound near its GPU by now */
    return 0;
}

void session_warn_unused_gpus(const struct session *s)
{
    char signs[GPU_SIGNS], why[128];
    if (world_rank(s->world) || s->config.device != CONFIG_DEVICE_AUTO ||
        s->device->kind != DEVICE_CPU || !gpu_signs(signs))
        return;
    log_warn(s->log,
             "this runs on the CPU, although there are GPUs (%s): %s; device=cpu says that it is "
             "meant",
             signs, device_gpu_count(why) ? "not every rank has one of its own" : why);
}

void session_warn_far_tensors(const struct session *s)
{
    int tensors = s->layout.shape.degree[MESH_TENSOR];
    for (int r = 0; r < world_size(s->world) && !world_rank(s->world); r++) {
        int first = r - r % tensors;
        const char *host = world_host_of(s->world, r), *other = world_host_of(s->world, first);
        if (!strcmp(host, other))
            continue;
        log_warn(s->log,
                 "ranks %d (%s) and %d (%s) divide layers, on different nodes, and exchange "
                 "activations over the network in each; a parallel.tensor that divides the ranks "
                 "of a node is faster",
                 first, other, r, host);
        return;
    }
}

void session_warn_lost_overlap(const struct session *s)
{
    int asked = layout_lost_overlap(&s->layout, &s->config);
    if (asked && !world_rank(s->world))
        log_warn(s->log,
                 "parallel.tensor_overlap %d is off: the %lld rows of a micro-batch cannot be cut "
                 "into %d parts for each of %d tensor ranks",
                 asked,
                 (long long)(s->layout.micro_batch * s->config.data.seq_len /
                             s->layout.shape.degree[MESH_CONTEXT]),
                 asked, s->layout.shape.degree[MESH_TENSOR]);
}

/* The number of ranks per node; 0 where nodes differ.  Collective. */
static int ranks_per_node(struct world *world)
{
    double least = world_local_size(world), most = least;
    world_all_reduce(world, &least, 1, WORLD_MIN);
    world_all_reduce(world, &most, 1, WORLD_MAX);
    return least == most ? (int)least : 0;
}

static int check_fp8(const struct session *s, struct error *err)
{
    struct error lacking = {0};
    if (s->config.precision != PRECISION_FP8 || !device_check_fp8(s->device, &lacking))
        return 0;
    return error_set(err, "precision fp8 needs %s; use precision bf16", lacking.text);
}

/* Compile all programs, and find the memory that they need. */
static int compile_all(struct session *s, enum session_use use, struct error *err)
{
    if (compile(s, use, err))
        return -1;
    s->comm = layout_comm(&s->config);
    sent_describe(&s->comm, s->programs, s->program_count);
    memory_need(&s->need, s->programs, s->program_count, &s->comm,
                memory_budget_reserve(s->device));
    return 0;
}

/* Undo compile_all(). */
static void drop_programs(struct session *s)
{
    struct program **all[] = {&s->train, &s->update, &s->evaluate, &s->prompt, &s->token};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        program_destroy(*all[i]);
        *all[i] = NULL;
    }
    s->program_count = 0;
    state_destroy(s->state);
    s->state = NULL;
    units_destroy(s->units);
    s->units = NULL;
}

/* Compile; then, if a rank has a GPU of its own, compile again so that attention's backward may use
 * the memory that is left there. */
static int compile_into_memory(struct session *s, enum session_use use, struct error *err)
{
    size_t total, left = 0;
    s->device->attention_bytes = (size_t)s->config.train.attention_bytes;
    if (compile_all(s, use, err))
        return -1;
    if (use != SESSION_TRAIN || s->device->kind != DEVICE_CUDA || s->config.comm.share_gpu)
        return 0;
    if (device_memory(s->device, &total, &left, err))
        return -1;
    size_t bytes = attention_memory(&s->config, s->need.device_bytes, left);
    if (!bytes)
        return 0;
    s->device->attention_bytes = bytes;
    drop_programs(s);
    return compile_all(s, use, err);
}

/* Prepare the ops of a unit that a program runs. */
static void prepare_ops(const struct session *s, const struct program *program, int unit)
{
    const struct graph *graph = program_graph(program, unit);
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        int is_run = !node->replaced && !node->unused && (!node->backward || program == s->train);
        if (is_run && node->op->prepare)
            node->op->prepare(s->device, graph, node);
    }
}

/* Prepare the ops of all programs, so that libraries compile while the rank gets its memory and
 * connects to the others. */
static void begin_ops(const struct session *s)
{
    for (int p = 0; p < s->program_count; p++)
        for (int u = 0; u < s->units->count; u++)
            if (program_owns(s->programs[p], u))
                prepare_ops(s, s->programs[p], u);
}

/* Do the part of opening that needs no other rank: all that comes before the mesh. */
static int prepare(struct session *s, const struct device_request *request, int per_node,
                   enum session_use use, struct error *err)
{
    int ranks = world_size(s->world);
    if (use == SESSION_TRAIN && config_check_training(&s->config, err))
        return -1;
    if (s->config.lora.use_dora) /* nothing is dropped but in training, which was refused */
        s->config.lora.dropout = 0;
    if (layout_resolve(&s->layout, &s->config, ranks, per_node, request->kind, err))
        return layout_advise(&s->config, ranks, per_node, request->kind, err);
    if (use == SESSION_TRAIN && s->config.comm.share_gpu && request->kind == DEVICE_CPU)
        return error_set(err, "comm.share_gpu is of ranks on GPUs, and this runs on CPUs; leave it "
                              "out");
    if (use == SESSION_TRAIN && !s->config.comm.shared_memory && request->kind != DEVICE_CPU)
        return error_set(err, "comm.shared_memory false is of ranks on CPUs, and this runs on "
                              "GPUs; leave it out");
    if (device_open(&s->device, request, err) || check_fp8(s, err) ||
        layout_model(&s->model, &s->config, err))
        return -1;
    s->data_rank =
        layout_data_rank(&s->layout, mesh_coord_of_rank(&s->layout.shape, world_rank(s->world)));
    if (compile_into_memory(s, use, err))
        return -1;
    begin_ops(s);
    return 0;
}

/* Warn where cuDNN does not do attention on a rank; the executor has met all shapes while it
 * prepared its segments.  Collective. */
static void warn_of_attention(const struct session *s)
{
    struct device_attention attention;
    char which[40] = "";
    if (s->device->kind != DEVICE_CUDA)
        return;
    device_attention(s->device, &attention);
    const int rank = world_rank(s->world), size = world_size(s->world);
    double ranks = attention.why[0] != 0, first = attention.why[0] ? rank : size;
    world_all_reduce(s->world, &ranks, 1, WORLD_SUM);
    world_all_reduce(s->world, &first, 1, WORLD_MIN);
    if (rank != (int)first)
        return;
    if ((int)ranks < size)
        snprintf(which, sizeof which, " on %d of %d ranks", (int)ranks, size);
    log_warn(s->log, "attention%s by trireme's own kernels, not by cuDNN: %s", which,
             attention.why);
}

int session_open(struct session **out, struct world *world, struct log *log, struct mem *mem,
                 const struct config *config, enum session_use use, struct memory_limits *limits,
                 struct error *err)
{
    struct session *s = array_make(1, sizeof *s);
    s->world = world;
    s->log = log;
    s->mem = mem;
    s->config = *config;
    struct device_request request;
    struct memory_limits least = {0};
    world_watch(world, (int)config->run.hang_seconds);
    int per_node = ranks_per_node(world);
    enum product_table_missing missing = use == SESSION_TRAIN ? PRODUCT_IS_TIMED : PRODUCT_IS_LEFT;
    int rc = shared_settings_check(world, config, err) || choose_device(s, &request, err) ||
             gpu_check_all(world, &request, config, log, err) ||
             (use == SESSION_TRAIN && layout_auto_set(&s->config, world, log, &request, err)) ||
             world_agree(world, prepare(s, &request, per_node, use, err), err) ||
             memory_budget_check(s, &least, err) ||
             mesh_create(&s->mesh, world, s->layout.shape, err) ||
             mesh_attach(s->mesh, world, s->device, mem, &s->comm, err) ||
             memory_budget_check_attached(s, err) || world_agree(world, allocate(s, err), err) ||
             executor_register(s->executor, err) ||
             product_table_choose(&s->products, s, missing, err) || gpu_shapes_check(s, err) ||
             world_agree(world, prepare_steps(s, err), err);
    if (limits)
        *limits = least;
    if (rc) {
        session_close(s);
        return -1;
    }
    warn_of_attention(s);
    *out = s;
    return 0;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    executor_destroy(s->executor);
    product_table_free(&s->products);
    free(s->wrong_shapes);
    drop_programs(s);
    mesh_destroy(s->mesh);
    model_destroy(s->model);
    device_close(s->device);
    layout_release(&s->layout);
    free(s);
}
