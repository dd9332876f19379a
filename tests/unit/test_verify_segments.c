/* test_verify_segments.c - does verify see that a segment hands a value on at a wrong place, or
 * that state does not lie where it should?  Real programs are accepted (test_verify.c); here each
 * operand, step, piece, tensor and buffer of some is spoilt, one at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graph/op.h"
#include "tests/unit/rig.h"
#include "verify/verify.h"

#define SIZES                                                                   \
    "model.layers=2 model.hidden=24 model.heads=4 model.ffn=20 model.vocab=23 " \
    "data.seq_len=8 train.micro_batch=1 "

static const struct {
    int ranks;
    const char *settings;
} layouts[] = {
    {1, SIZES "train.global_batch=1 model.kv_heads=2"},
    {1, SIZES "train.global_batch=1 parallel.schedule=zb_h1 recompute=full"},
    {2, SIZES "train.global_batch=2 parallel.tensor=2 parallel.tensor_overlap=2 "
              "recompute=selective"},
    {2, SIZES "train.global_batch=6 model.family=gpt2 parallel.strategy=NO_SHARD "
              "parallel.reduce_bucket_bytes=100000000"},
    {2, SIZES "train.global_batch=2 parallel.strategy=FULL_SHARD train.optimizer=adamw8bit "
              "model.ffn=256"},
    {2, SIZES "train.global_batch=2 parallel.strategy=FULL_SHARD precision=bf16 model.experts=3 "
              "model.tie_embeddings=true train.freeze=layers.0.attn.*"},
};

/* Call spoil for the training program of the last rank of each layout; all together must spoil at
 * least so many places. */
static void everywhere(int (*spoil)(struct program *program), int least)
{
    int spoilt = 0;
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
        struct fleet fleet;
        struct error err = {0};
        struct config config = rig_config(layouts[l].settings);
        fleet_open(&fleet, &config, layouts[l].ranks, PROGRAM_TRAIN);
        struct program *program = fleet.program[fleet.ranks - 1];
        spoilt += spoil(program);
        if (verify_program(program, &err))
            fail_msg("%s", err.text);
        fleet_close(&fleet);
    }
    print_message("%d places spoilt\n", spoilt);
    assert_true(spoilt >= least);
}

/* names: "a|b": a text that refuses the program has one of these. */
static int refused(const struct program *program, const char *names, const char *what)
{
    struct error err = {0};
    char copy[128], *rest = copy;
    if (!verify_program(program, &err))
        fail_msg("not noticed: %s", what);
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name; (name = strtok_r(rest, "|", &rest));)
        if (strstr(err.text, name))
            return 1;
    fail_msg("%s: \"%s\"", what, err.text);
    return 0;
}

/* Call spoil for each segment of training. */
static int each_segment(struct program *program,
                        int (*spoil)(const struct program *program, struct segment *segment))
{
    int spoilt = 0;
    for (int k = 0; k < program->units->kinds; k++)
        for (int phase = 0; phase < PHASES; phase++)
            spoilt += spoil(program, &program->units->kind[k].segment[phase]);
    return spoilt;
}

/* ---- operands ---- */

static int is_read(const struct segment *segment, int v)
{
    for (int s = 0; s < segment->steps; s++)
        for (int k = 0; k < NODE_INS; k++)
            if (segment_node(segment, &segment->step[s])->in[k] == v)
                return 1;
    return 0;
}

/* A place before, or behind the operand's. */
static int spoil_ref(const struct program *program, struct segment_ref *ref, const char *what)
{
    struct segment_ref was = *ref;
    ref->offset += ref->offset ? -4 : 4;
    refused(program, "wrong place", what);
    *ref = was;
    ref->space = was.space == SPACE_WORK ? SPACE_OUTPUT : SPACE_WORK;
    refused(program, "wrong place|wrong steps", what);
    *ref = was;
    return 1;
}

static int spoil_operands(const struct program *program, struct segment *segment)
{
    int spoilt = 0;
    for (int s = 0; s < segment->steps; s++) {
        struct segment_step *step = &segment->step[s];
        const struct graph_node *node = segment_node(segment, step);
        for (int k = 0; k < NODE_INS; k++)
            if (node->in[k] >= 0)
                spoilt += spoil_ref(program, &step->in[k], "another place of an input");
        for (int k = 0; k < NODE_OUTS; k++)
            if (node->out[k] >= 0 && (segment->graph->values[node->out[k]].role != VALUE_TEMP ||
                                      is_read(segment, node->out[k])))
                spoilt += spoil_ref(program, &step->out[k], "another place of a result");
    }
    return spoilt;
}

static int spoil_all_operands(struct program *program)
{
    return each_segment(program, spoil_operands);
}

static void test_places_of_operands(void **state)
{
    everywhere(spoil_all_operands, 500);
}

/* The first step that makes a value of the segment's workspace, and the last that reads it; -1. */
static int find_maker(const struct segment *segment, int v)
{
    for (int s = 0; s < segment->steps; s++)
        for (int k = 0; k < NODE_OUTS; k++)
            if (segment_node(segment, &segment->step[s])->out[k] == v &&
                segment->step[s].out[k].space == SPACE_WORK)
                return s;
    return -1;
}

static int find_last_reader(const struct segment *segment, int v)
{
    int last = -1;
    for (int s = 0; s < segment->steps; s++)
        for (int k = 0; k < NODE_INS; k++)
            if (segment_node(segment, &segment->step[s])->in[k] == v)
                last = s;
    return last;
}

/* Put a value at another place, in all steps. */
static void move_value(struct segment *segment, int v, size_t offset)
{
    for (int s = 0; s < segment->steps; s++) {
        struct segment_step *step = &segment->step[s];
        const struct graph_node *node = segment_node(segment, step);
        for (int k = 0; k < NODE_INS; k++)
            if (node->in[k] == v)
                step->in[k].offset = offset;
        for (int k = 0; k < NODE_OUTS; k++)
            if (node->out[k] == v)
                step->out[k].offset = offset;
    }
}

static size_t offset_of(const struct segment *segment, int v)
{
    const struct segment_step *step = &segment->step[find_maker(segment, v)];
    int k = 0;
    while (segment_node(segment, step)->out[k] != v)
        k++;
    return step->out[k].offset;
}

/* A value at the place of one that is read after it was made. */
static int spoil_lives(const struct program *program, struct segment *segment)
{
    int spoilt = 0, values = segment->steps ? segment->graph->value_count : 0;
    for (int v = 0; v < values; v++)
        for (int w = 0; w < values; w++) {
            int first = find_maker(segment, v), second = find_maker(segment, w);
            if (first < 0 || second <= first || segment->step[first].row_chunks > 1 ||
                segment->step[second].row_chunks > 1 || find_last_reader(segment, v) <= second ||
                find_last_reader(segment, w) < 0)
                continue;
            size_t was = offset_of(segment, w);
            move_value(segment, w, offset_of(segment, v));
            refused(program, "wrong place", "two values at one place");
            move_value(segment, w, was);
            spoilt++;
        }
    return spoilt;
}

static int spoil_all_lives(struct program *program)
{
    return each_segment(program, spoil_lives);
}

static void test_lives_do_not_overlap(void **state)
{
    everywhere(spoil_all_lives, 50);
}

/* Scratch at the place of an operand, and beyond the workspace. */
static int spoil_scratch(const struct program *program, struct segment *segment)
{
    int spoilt = 0;
    for (int s = 0; s < segment->steps; s++) {
        struct segment_step *step = &segment->step[s];
        struct segment_ref was = step->scratch;
        if (was.space < 0)
            continue;
        step->scratch.offset = segment->work_bytes;
        refused(program, "beyond its space", "scratch beyond the workspace");
        step->scratch = was;
        for (int k = 0; k < NODE_INS; k++) {
            if (step->in[k].space != SPACE_WORK)
                continue;
            step->scratch.offset = step->in[k].offset;
            refused(program, "wrong place", "scratch in an input");
            step->scratch = was;
        }
        spoilt++;
    }
    return spoilt;
}

static int spoil_all_scratch(struct program *program)
{
    return each_segment(program, spoil_scratch);
}

static void test_scratch_is_apart(void **state)
{
    everywhere(spoil_all_scratch, 10);
}

/* ---- steps and pieces ---- */

static void swap_steps(struct segment_step *a, struct segment_step *b)
{
    struct segment_step was = *a;
    *a = *b;
    *b = was;
}

static int reads_result(const struct graph_node *node, const struct graph_node *of)
{
    int reads = 0;
    for (int k = 0; k < NODE_INS; k++)
        reads |= node->in[k] >= 0 && node->in[k] == of->out[0];
    return reads;
}

static int spoil_order(const struct program *program, struct segment *segment)
{
    int spoilt = 0;
    for (int s = 0; s + 1 < segment->steps; s++) {
        struct segment_step *step = &segment->step[s];
        if (step[0].piece != step[1].piece ||
            !reads_result(segment_node(segment, &step[1]), segment_node(segment, &step[0])))
            continue;
        swap_steps(&step[0], &step[1]);
        refused(program, "wrong place|wrong steps", "a step before what it reads");
        swap_steps(&step[0], &step[1]);
        int was = step[1].node;
        step[1].node = step[0].node;
        refused(program, "wrong place|wrong steps", "a node in place of another");
        step[1].node = was;
        spoilt++;
    }
    return spoilt;
}

static int spoil_pieces(const struct program *program, struct segment *segment)
{
    int spoilt = 0;
    segment->has_row_chunks = !segment->has_row_chunks;
    if (segment->pieces)
        refused(program, "wrong steps", "rows in chunks, or whole");
    segment->has_row_chunks = !segment->has_row_chunks;
    for (int p = 0; p < segment->pieces; p++) {
        struct segment_piece *piece = &segment->piece[p], was = *piece;
        piece->runs = !piece->runs;
        refused(program, "wrong steps", "a piece that runs or does not");
        *piece = was;
        for (int space = 0; space < SPACE_COUNT; space++) {
            piece->writes ^= space_bit(space);
            refused(program, "wrong steps", "other spaces written");
            *piece = was;
            if (space == SPACE_WORK || !(was.reads >> space & 1))
                continue;
            piece->reads ^= space_bit(space);
            refused(program, "wrong steps", "other spaces read");
            *piece = was;
        }
        if (was.end == was.first)
            continue;
        piece->end--;
        refused(program, "wrong steps|wrong place", "a step left out of its piece");
        *piece = was;
        spoilt++;
    }
    return spoilt;
}

static int spoil_steps(struct program *program)
{
    return each_segment(program, spoil_order) + each_segment(program, spoil_pieces);
}

static void test_steps_and_pieces(void **state)
{
    everywhere(spoil_steps, 100);
}

/* A node that need not run, and one that adds to what is not there, or writes over what is. */
static int spoil_nodes(struct program *program)
{
    int spoilt = 0;
    for (int k = 0; k < program->units->kinds; k++) {
        struct graph *graph = program->units->kind[k].train;
        for (int n = 0; n < graph->node_count; n++) {
            struct graph_node *node = &graph->nodes[n], was = *node;
            node->unused = node->backward && !was.unused;
            node->replaced = !node->backward && !was.replaced;
            if (node->unused || node->replaced)
                spoilt += refused(program, "wrong steps", "a node that runs and need not");
            *node = was;
            if (node->unused || node->out[0] < 0 ||
                graph->values[node->out[0]].role != VALUE_PARAM_GRAD)
                continue;
            node->accumulate = !node->accumulate;
            spoilt += refused(program, "wrong place", "a gradient added to or written");
            *node = was;
        }
    }
    return spoilt;
}

static void test_nodes_run_once(void **state)
{
    everywhere(spoil_nodes, 100);
}

/* A value whose size is wrongly none takes no place, and is no value. */
static int spoil_sizes(struct program *program)
{
    int spoilt = 0;
    for (int k = 0; k < program->units->kinds; k++) {
        struct graph *graph = program->units->kind[k].train;
        for (int n = 0; n < graph->node_count; n++) {
            int v = graph->nodes[n].out[0];
            if (v < 0 || graph->nodes[n].unused || graph->nodes[n].replaced)
                continue;
            struct graph_value *value = &graph->values[v];
            const struct graph_value was = *value;
            value->dim[value->dims < GRAPH_DIMS ? value->dims++ : GRAPH_DIMS - 1] = 0;
            spoilt += refused(program, "wrong place|wrong size|wrong operand", "no elements");
            *value = was;
        }
    }
    return spoilt;
}

static void test_values_have_elements(void **state)
{
    everywhere(spoil_sizes, 100);
}

/* ---- gradients and flats ---- */

static int spoil_gradients(const struct program *program, struct segment *segment)
{
    int spoilt = 0;
    for (int s = 0; s < segment->steps; s++) {
        struct segment_step *step = &segment->step[s], was = *step;
        step->adds_input = was.adds_input < 0 ? 0 : -1;
        spoilt += refused(program, "wrong place", "a gradient of an input");
        *step = was;
        step->grad_use = was.grad_use ? 0 : 1;
        spoilt += refused(program, "wrong place", "a gradient of another flat");
        *step = was;
        step->tensor[0]++;
        spoilt += refused(program, "wrong place", "a gradient of another tensor");
        *step = was;
    }
    return spoilt;
}

static int spoil_all_gradients(struct program *program)
{
    return each_segment(program, spoil_gradients);
}

static void test_gradients_are_named(void **state)
{
    everywhere(spoil_all_gradients, 100);
}

static int is_own(const struct program *program, int flat)
{
    return program->state->has[flat];
}

static int blocks; /* flats that have blocks */

/* A tensor of a flat somewhere else, or of another section; two in each other's place; other
 * blocks.
 */
static int spoil_flats(struct program *program)
{
    int spoilt = 0;
    for (int f = 0; f < program->units->flats; f++) {
        struct flat *flat = &program->units->flat[f];
        for (int t = 0; t < flat->tensors && is_own(program, f); t++) {
            struct flat_tensor *tensor = &flat->tensor[t], was = *tensor;
            tensor->offset += FLAT_ALIGN;
            spoilt += refused(program, "wrong flat", "a tensor somewhere else");
            *tensor = was;
            if (flat->sections > 1) {
                tensor->section = !tensor->section;
                spoilt += refused(program, "wrong flat", "a tensor of another section");
                *tensor = was;
            }
            if (t + 1 == flat->tensors || tensor[1].elems != was.elems)
                continue;
            tensor[0].offset = tensor[1].offset;
            tensor[1].offset = was.offset;
            spoilt += refused(program, "wrong flat", "two tensors that change places");
            tensor[1].offset = tensor[0].offset;
            *tensor = was;
        }
        if (flat->block > 1 && is_own(program, f)) {
            flat->block *= 7;
            spoilt += refused(program, "wrong flat", "shards that cut blocks");
            flat->block /= 7;
            blocks++;
        }
        for (int p = 0; p < flat->pads && is_own(program, f); p++) {
            flat->pad[p].count--;
            spoilt += refused(program, "wrong flat", "padding that nobody zeroes");
            flat->pad[p].count++;
        }
    }
    return spoilt;
}

static void test_tensors_of_flats(void **state)
{
    everywhere(spoil_flats, 50);
    assert_true(blocks > 0);
}

/* ---- state ---- */

static int spoil_bytes(struct program *program, int b)
{
    if (b < 0)
        return 0;
    program->buffer[b].bytes -= 4;
    refused(program, "wrong size", "a smaller buffer of the state");
    program->buffer[b].bytes += 4;
    return 1;
}

/* Smaller buffers, gradients at the place of another's, and other numbers of the sums. */
static int spoil_state(struct program *program)
{
    const struct state *state = program->state;
    int spoilt = 0, last = -1;
    for (int f = 0; f < program->units->flats; f++) {
        const struct state_flat *own = &state->flat[f];
        spoilt += spoil_bytes(program, own->param) + spoil_bytes(program, own->master) +
                  spoil_bytes(program, own->grad) + spoil_bytes(program, own->whole_grad);
        for (int k = 0; k < OPTIMIZER_SLOTS; k++)
            spoilt += spoil_bytes(program, own->slot[k]);
        struct program_buffer *grad = own->grad < 0 ? NULL : &program->buffer[own->grad];
        if (grad && last >= 0 && own->bucket >= 0 && own->bucket == state->flat[last].bucket) {
            const struct program_buffer was = *grad;
            grad->from = program->buffer[state->flat[last].grad].from;
            grad->offset = program->buffer[state->flat[last].grad].offset;
            spoilt += refused(program, "share memory", "a gradient over another's");
            *grad = was;
        }
        last = own->grad >= 0 ? f : last;
    }
    const int views[] = {state->loss_scale, state->over_data, state->over_tensor};
    for (int k = 0; k < 3; k++) {
        struct program_buffer *view = &program->buffer[views[k]], was = *view;
        view->from -= sizeof(double);
        view->offset -= sizeof(double);
        spoilt += refused(program, "wrong sums", "other numbers of the sums");
        *view = was;
    }
    return spoilt;
}

/* A table of constants that is too small, and another number as the factor of the loss. */
static int spoil_loss_scale(struct program *program)
{
    struct program_buffer *constants = &program->buffer[program->state->constants];
    int spoilt = 0;
    if (constants->bytes) {
        constants->bytes -= 4;
        spoilt += refused(program, "wrong size", "fewer constants");
        constants->bytes += 4;
    }
    for (int i = 0; i < program->instrs; i++) {
        struct instr *instr = &program->instr[i], was = *instr;
        if (instr->kind != INSTR_RUN || instr->buffer[SPACE_LOSS_SCALE] < 0)
            continue;
        instr->buffer[SPACE_LOSS_SCALE] = program->state->sums;
        spoilt += refused(program, "wrong operand", "another factor of the loss");
        *instr = was;
    }
    return spoilt;
}

/* A RUN that adds to a gradient, and an UPDATE of state, that do not say that they read it. */
static int spoil_reads(struct program *program)
{
    int spoilt = 0;
    for (int i = 0; i < program->instrs; i++) {
        struct instr *update = &program->instr[i];
        if (update->kind == INSTR_UPDATE && update->buffer[SLOT_OPTIMIZER] >= 0) {
            update->reads ^= space_bit(SLOT_OPTIMIZER);
            spoilt += refused(program, "wrong operand", "state that is not said to be read");
            update->reads ^= space_bit(SLOT_OPTIMIZER);
        }
        for (int use = 0; use < FLAT_USES; use++) {
            struct instr *instr = &program->instr[i], was = *instr;
            if (instr->kind != INSTR_RUN || !segment_added(instr->accumulate, use))
                continue;
            instr->reads &= ~space_bit(SPACE_GRAD + use);
            spoilt += refused(program, "wrong operand", "a sum that is not said to be read");
            *instr = was;
        }
    }
    return spoilt;
}

static void test_sums_are_read(void **state)
{
    everywhere(spoil_reads, 1);
}

/* A unit that runs the segments of another kind of blocks, or of more. */
static int spoil_kinds(struct program *program)
{
    for (int k = 0; k < program->units->kinds; k++) {
        struct unit_kind *kind = &program->units->kind[k];
        kind->block_kind++;
        refused(program, "wrong flat", "another kind of unit");
        kind->block_kind--;
        kind->blocks++;
        refused(program, "wrong flat", "a unit of more blocks");
        kind->blocks--;
    }
    return program->units->kinds;
}

static void test_kinds(void **state)
{
    everywhere(spoil_kinds, 10);
}

static void test_state(void **state)
{
    everywhere(spoil_state, 100);
    everywhere(spoil_loss_scale, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_of_operands),
        cmocka_unit_test(test_lives_do_not_overlap),
        cmocka_unit_test(test_scratch_is_apart),
        cmocka_unit_test(test_steps_and_pieces),
        cmocka_unit_test(test_nodes_run_once),
        cmocka_unit_test(test_gradients_are_named),
        cmocka_unit_test(test_values_have_elements),
        cmocka_unit_test(test_tensors_of_flats),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_sums_are_read),
        cmocka_unit_test(test_state),
    };
    return cmocka_run_group_tests_name("verify and segments", tests, NULL, NULL);
}
