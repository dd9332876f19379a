/* cost.c - see cost.h.
 *
 *   RUN forward layers.3    = rmsnorm + linear + rope + attention + linear + ...
 *     linear                = machine_product_s(m, n, k)
 *     attention             = machine_attention_s(operations, positions)
 *     rmsnorm, rope, ...    = machine_memory_s("rmsnorm", bytes)
 *   GATHER over shard       = machine_transfer_s(MACHINE_GATHER, ranks, nodes, bytes)
 *   DECODE                  = machine_memory_s("DECODE", bytes of records and of what is made)
 *   UPDATE                  = machine_memory_s("UPDATE", bytes of masters, state and gradients)
 */
#include "simulate/cost.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "segment/orthogonalize.h"

struct cost {
    struct cost_request request;
    const struct machine *machine; /* the request's, as is the program */
    const struct program *program;
    struct machine_files files;
    double **piece; /* per kind of unit and phase: seconds of each piece; NULL: not yet asked for */
    struct cost_group group[MESH_SETS]; /* of collectives, by axes; 0 ranks: not yet asked for */
};

static int segments_of(const struct cost *cost)
{
    return cost->program->units->kinds * PHASES;
}

struct cost *cost_create(const struct cost_request *request)
{
    struct cost *cost = array_make(1, sizeof *cost);
    *cost = (struct cost){
        .request = *request, .machine = request->machine, .program = request->program};
    cost->files = request->files ? *request->files : (struct machine_files){.bytes = INFINITY};
    cost->files.ranks = request->per_node;
    cost->piece = array_make((size_t)segments_of(cost), sizeof *cost->piece);
    return cost;
}

void cost_destroy(struct cost *cost)
{
    if (!cost)
        return;
    for (int s = 0; s < segments_of(cost); s++)
        free(cost->piece[s]);
    free(cost->piece);
    free(cost);
}

/* ---- ops ---- */

static enum machine_product_kind kind_of(const struct gemm *g)
{
    return g->trans_a ? PRODUCT_WEIGHT : g->trans_b ? PRODUCT_FORWARD : PRODUCT_INPUT;
}

/* Seconds of a product.  In fp8 the rounding of its operands counts; a machine without products in
 * fp8 multiplies the rounded operands in bf16. */
static double product_s(const struct machine *machine, const struct gemm *g)
{
    enum dtype dtype = g->fp8 && machine_peak(machine, DTYPE_F8) > 0 ? DTYPE_F8 : g->dt;
    double bytes = 2.0 * (double)dtype_bytes(g->dt) * (double)((g->m + g->n) * g->k);
    double seconds = machine_product_s(machine, dtype, kind_of(g), g->m, g->n, g->k);
    return g->fp8 && dtype != DTYPE_F8
               ? seconds + machine_memory_s(machine, "round_fp8", g->dt, bytes)
               : seconds;
}

/* On GPUs trireme's own kernels make the products of experts, whose sizes only the GPU knows.  They
 * were never timed: what is assumed is how much of the library's rate tiles of mma.sync reach on
 * H100 elsewhere. */
static const double own_tiles_of_library = 0.6;

static int is_by_own_tiles(const struct cost *cost, const struct graph_node *node)
{
    return cost->request.device->kind == DEVICE_CUDA &&
           (node->op == &op_experts || node->op == &op_experts_input_grad ||
            node->op == &op_experts_weight_grad);
}

static double products_s(const struct cost *cost, const struct graph *graph,
                         const struct graph_node *node)
{
    struct op_product product[OP_PRODUCTS];
    double sum = 0;
    int count = op_products(cost->request.device, graph, node, product);
    for (int i = 0; i < count; i++)
        sum += (double)product[i].times * product_s(cost->machine, &product[i].gemm);
    return is_by_own_tiles(cost, node) ? sum / own_tiles_of_library : sum;
}

/* On GPUs the library has plain causal attention of 16 bits. */
static enum machine_attention attention_kernel(const struct cost *cost, const struct graph *graph,
                                               const struct graph_node *node)
{
    int is_own = cost->request.device->kind == DEVICE_CUDA &&
                 (node->attrs.forms || graph->dtype == DTYPE_F32);
    return is_own ? MACHINE_ATTENTION_OWN : MACHINE_ATTENTION_LIBRARY;
}

double cost_step_s(const struct cost *cost, const struct segment *segment,
                   const struct segment_step *step)
{
    const struct graph *graph = segment->graph;
    const struct graph_node node = segment_step_node(segment, step);
    if (node.op->transfer != TRANSFER_NONE)
        return 0;
    if (node.op->keys)
        return machine_attention_s(cost->machine, node.op->name, graph->dtype,
                                   op_flops(graph, &node), node.op->keys(graph, &node),
                                   attention_kernel(cost, graph, &node));
    double bytes = op_bytes(graph, &node);
    double seconds = products_s(cost, graph, &node);
    return bytes > 0 ? seconds + machine_memory_s(cost->machine, node.op->name, graph->dtype, bytes)
                     : seconds;
}

/* Segments of evaluation and generation are of one phase of a kind, as forward is. */
static double run_s(struct cost *cost, const struct instr *instr)
{
    const struct segment *segment = program_segment(cost->program, instr->unit, instr->phase);
    int kind = cost->program->units->kind_of[instr->unit];
    double **kept = &cost->piece[kind * PHASES + (int)instr->phase];
    if (!*kept) {
        *kept = array_make((size_t)segment->pieces, sizeof **kept);
        for (int p = 0; p < segment->pieces; p++)
            for (int s = segment->piece[p].first; s < segment->piece[p].end; s++)
                (*kept)[p] += cost_step_s(cost, segment, &segment->step[s]);
    }
    return (*kept)[instr->piece];
}

/* ---- transfers ---- */

static int node_of_member(const struct cost *cost, unsigned axes, int member)
{
    const struct mesh_shape *shape = &cost->program->layout->shape;
    struct mesh_coord own = cost->program->state->coord;
    return mesh_rank(shape, mesh_coord_of_member(shape, own, axes, member)) /
           cost->request.per_node;
}

/* Members are in the order of their ranks, so those of a node follow one another. */
static struct cost_group group_of_axes(const struct cost *cost, unsigned axes)
{
    const struct mesh_shape *shape = &cost->program->layout->shape;
    int per_node = cost->request.per_node, last = -1;
    int own = mesh_rank(shape, cost->program->state->coord) / per_node;
    struct cost_group group = {.ranks = mesh_members(shape, axes)};
    for (int member = 0; member < group.ranks; member++) {
        int node = node_of_member(cost, axes, member);
        group.nodes += node != last;
        group.on_node += node == own;
        last = node;
    }
    return group;
}

static struct cost_group group_of_message(const struct cost *cost, const struct instr *instr)
{
    int per_node = cost->request.per_node;
    int own = mesh_rank(&cost->program->layout->shape, cost->program->state->coord) / per_node;
    int other = node_of_member(cost, instr->axes, instr->peer);
    return (struct cost_group){
        .ranks = 2, .nodes = own == other ? 1 : 2, .on_node = own == other ? 2 : 1};
}

struct cost_group cost_group(struct cost *cost, int i)
{
    const struct instr *instr = &cost->program->instr[i];
    if (instr_is_message(instr))
        return group_of_message(cost, instr);
    if (!cost->group[instr->axes].ranks)
        cost->group[instr->axes] = group_of_axes(cost, instr->axes);
    return cost->group[instr->axes];
}

static double swapped_elems(const struct program *program, const struct instr *instr, int ranks)
{
    double elems = 0;
    for (int r = 0; r < ranks; r++)
        elems += (double)program->part[instr->first_part + r].send_elems;
    return elems;
}

double cost_transfer_bytes(const struct program *program, const struct instr *instr)
{
    int ranks = mesh_members(&program->layout->shape, instr->axes);
    double each = (double)dtype_bytes(instr->dtype), elems = (double)instr->elems;
    switch (instr->kind) {
    case INSTR_GATHER:
    case INSTR_REDUCE: return each * elems * ranks;
    case INSTR_ALLTOALL: return each * swapped_elems(program, instr, ranks);
    default: return each * elems;
    }
}

enum machine_transfer_kind cost_transfer_kind(const struct instr *instr)
{
    static const enum machine_transfer_kind kinds[INSTR_KINDS] = {
        [INSTR_GATHER] = MACHINE_GATHER,        [INSTR_REDUCE] = MACHINE_REDUCE,
        [INSTR_ALLREDUCE] = MACHINE_ALL_REDUCE, [INSTR_ALLTOALL] = MACHINE_ALL_TO_ALL,
        [INSTR_SEND] = MACHINE_MESSAGE,         [INSTR_RECV] = MACHINE_MESSAGE,
    };
    return kinds[instr->kind];
}

static double transfer_as_s(struct cost *cost, int i, enum machine_transfer_kind kind)
{
    const struct instr *instr = &cost->program->instr[i];
    struct cost_group group = cost_group(cost, i);
    int sharing = group.nodes > 1 ? cost->request.per_node / group.on_node : 1;
    return machine_transfer_s(cost->machine, kind, group.ranks, group.nodes,
                              sharing < 1 ? 1 : sharing, cost_transfer_bytes(cost->program, instr));
}

static double transfer_s(struct cost *cost, int i)
{
    return transfer_as_s(cost, i, cost_transfer_kind(&cost->program->instr[i]));
}

double cost_beside(struct cost *cost, int i)
{
    if (!instr_is_message(&cost->program->instr[i]))
        return 0;
    for (int row = 0; row < cost->machine->transfers; row++)
        if (cost->machine->transfer[row].kind == MACHINE_MESSAGE_BUSY) {
            double busy = transfer_as_s(cost, i, MACHINE_MESSAGE_BUSY);
            double share = transfer_as_s(cost, i, MACHINE_MESSAGE) / busy;
            return share > 1 ? 1 : share;
        }
    return 0;
}

/* ---- all else ---- */

static enum machine_file_way way_of(const struct instr *instr)
{
    return instr->stream == STREAM_READ ? MACHINE_FILE_READ : MACHINE_FILE_WRITE;
}

/* A copy between the device and the host, or the host and a file. */
static double copy_s(const struct cost *cost, const struct instr *instr)
{
    const struct machine *m = cost->machine;
    double bytes = (double)cost->program->buffer[instr->buffer[SLOT_TO]].bytes;
    if (instr->stream == STREAM_READ || instr->stream == STREAM_WRITE)
        return machine_file_s(m, way_of(instr), &cost->files, bytes);
    return m->host_link_bytes_per_s > 0 ? bytes / m->host_link_bytes_per_s : 0;
}

int cost_is_cached(const struct cost *cost, int i)
{
    const struct instr *instr = &cost->program->instr[i];
    return (instr->stream == STREAM_READ || instr->stream == STREAM_WRITE) &&
           machine_file_is_cached(cost->machine, way_of(instr), &cost->files);
}

/* Seconds of an UPDATE, by bytes: masters, and state unless MOMENTUM has updated it, are read and
 * written, the gradient is read, and the copy that is computed with is written. */
static double update_s(const struct cost *cost, const struct instr *instr)
{
    const struct program *program = cost->program;
    const struct flat *flat = &program->units->flat[instr->flat];
    const struct state *state = program->state;
    const struct optimizer *rule = optimizer_row(flat->optimizer);
    double each =
        2 * (double)dtype_bytes(state_master_dtype(state)) + (double)dtype_bytes(flat->grad_dtype);
    if (!rule->of_matrices)
        each += 2 * optimizer_bytes_each(rule, program->layout->optimizer_dtype);
    if (instr->buffer[SLOT_PARAM] >= 0)
        each += (double)dtype_bytes(program->units->request.dtype);
    double bytes = each * (double)flat->shard_elems;
    if (instr->stream == STREAM_HOST && cost->request.device->asynchronous)
        return bytes / cost->machine->host_memory_bytes_per_s;
    int is_coded = rule->slots && rule->slot[0].kept == KEPT_CODES;
    return machine_memory_s(cost->machine, "UPDATE",
                            is_coded ? DTYPE_U8 : state_master_dtype(state), bytes);
}

static double orthogonalize_s(const struct cost *cost, const struct instr *instr)
{
    const struct program *program = cost->program;
    const struct flat *flat = &program->units->flat[instr->flat];
    enum dtype dtype = program->units->request.ns_dtype;
    struct flat_part part;
    double seconds = 0;
    for (int t = -1;
         (t = flat_next_part(flat, instr->from, instr->from + instr->elems, t, &part)) >= 0;) {
        int64_t rows = part.tensor->box.whole[0], cols = part.tensor->box.whole[1];
        int64_t least = rows < cols ? rows : cols, most = rows < cols ? cols : rows;
        double flops = 2.0 * (double)least * (double)least * (double)most;
        double all = orthogonalize_flops(
            &(struct orthogonalize){.rows = rows, .cols = cols, .steps = cost->request.ns_steps});
        seconds += all / flops *
                   machine_product_s(cost->machine, dtype, PRODUCT_FORWARD, least, least, most);
    }
    return seconds;
}

/* Seconds of a NORM: the gradient is read. */
static double norm_s(const struct cost *cost, const struct instr *instr)
{
    enum dtype dtype = cost->program->units->flat[instr->flat].grad_dtype;
    return machine_memory_s(cost->machine, instr_name(instr->kind), dtype,
                            (double)dtype_bytes(dtype) * (double)instr->elems);
}

static double elementwise_s(const struct cost *cost, const struct instr *instr, double each)
{
    return machine_memory_s(cost->machine, instr_name(instr->kind), DTYPE_F32,
                            each * (double)instr->elems);
}

/* Seconds of a DECODE: records are read, and numbers written. */
static double decode_s(const struct cost *cost, const struct instr *instr)
{
    double bytes =
        (double)nf4_bytes(instr->elems) + (double)dtype_bytes(instr->dtype) * (double)instr->elems;
    return machine_memory_s(cost->machine, instr_name(instr->kind), instr->dtype, bytes);
}

/* Seconds of ZERO or SCALE, which touch a few numbers: a launch where the machine has figures. */
static double sums_s(const struct cost *cost, const struct instr *instr, int passes)
{
    double bytes = (double)cost->program->buffer[instr->buffer[SLOT_SUMS]].bytes;
    return machine_memory_s(cost->machine, instr_name(instr->kind), DTYPE_F32, passes * bytes);
}

/* Seconds of a LOAD: to a GPU each array is a copy of its own, on processors arrays are read and
 * written. */
static double load_s(const struct cost *cost, const struct instr *instr)
{
    const struct machine *m = cost->machine;
    double seconds = 0, bytes = 0;
    for (int slot = 0; slot < LOAD_SLOTS; slot++) {
        if (instr->buffer[slot] < 0)
            continue;
        double own = (double)cost->program->buffer[instr->buffer[slot]].bytes;
        bytes += own;
        seconds +=
            m->launch_s + (m->host_link_bytes_per_s > 0 ? own / m->host_link_bytes_per_s : 0);
    }
    return cost->request.device->asynchronous
               ? seconds
               : machine_memory_s(m, instr_name(instr->kind), DTYPE_F32, 2 * bytes);
}

double cost_instr_s(struct cost *cost, int i)
{
    enum { READ = 4, WRITE = 4, BOTH = READ + WRITE };
    const struct instr *instr = &cost->program->instr[i];
    if (instr_is_transfer(instr))
        return transfer_s(cost, i);
    switch (instr->kind) {
    case INSTR_ZERO: return sums_s(cost, instr, 1);
    case INSTR_LOAD: return load_s(cost, instr);
    case INSTR_RUN: return run_s(cost, instr);
    case INSTR_ADD: return elementwise_s(cost, instr, READ + BOTH);
    case INSTR_CAST: return elementwise_s(cost, instr, READ + (double)dtype_bytes(instr->dtype));
    case INSTR_DECODE: return decode_s(cost, instr);
    case INSTR_NORM: return norm_s(cost, instr);
    case INSTR_SCALE: return sums_s(cost, instr, 2);
    case INSTR_MOMENTUM: return elementwise_s(cost, instr, BOTH + BOTH);
    case INSTR_UPDATE: return update_s(cost, instr);
    case INSTR_ORTHOGONALIZE: return orthogonalize_s(cost, instr);
    case INSTR_FETCH:
    case INSTR_SPILL: return copy_s(cost, instr);
    default: return 0;
    }
}
