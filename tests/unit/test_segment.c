/* test_segment.c - a segment by itself: it reads what it declares to read, writes what it declares
 * to write, all of it, and not a byte beside; inside, nothing is overwritten that is still needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/philox.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "tests/unit/rig.h"

enum { GUARD = 4096, PATTERN = 0x5b };

/* One memory per space, of exactly the size it has, between guards. */
struct spaces {
    const struct session *s;
    size_t bytes[SPACE_COUNT];
    char *block[SPACE_COUNT];
    void *base[SPACE_COUNT];
};

static size_t space_bytes(const struct session *s, int unit, const struct segment *segment,
                          enum segment_space space)
{
    const struct units *units = s->units;
    const struct unit_flats *use = &units->use[unit];
    size_t size = dtype_bytes(units->request.dtype);
    size_t rows = (size_t)(units->request.batch * units->request.seq);
    if (space < SPACE_INPUT) {
        int k = space < SPACE_GRAD ? (int)space - SPACE_PARAM : (int)space - SPACE_GRAD;
        size = space < SPACE_GRAD ? size : sizeof(float);
        return k < use->count ? (size_t)units->flat[use->flat[k]].padded * size : 0;
    }
    switch (space) {
    case SPACE_SAVED: return units_kind(units, unit)->segment[PHASE_FORWARD].saved_bytes;
    case SPACE_DEFERRED: return segment->deferred_bytes;
    case SPACE_TOKENS:
    case SPACE_TARGETS: return rows * sizeof(int32_t);
    case SPACE_CONST: return (size_t)(units->request.seq * s->model->const_width) * sizeof(float);
    case SPACE_LOSS: return 2 * sizeof(double);
    case SPACE_WORK: return segment->work_bytes;
    default: return units->boundary_bytes;
    }
}

/* Values a segment may find, the same for the same space. */
static void fill(const struct session *s, enum segment_space space, void *data, size_t bytes)
{
    size_t size = dtype_bytes(s->units->request.dtype);
    uint64_t key = philox_key((uint64_t)space, "fill");
    if (space == SPACE_TOKENS || space == SPACE_TARGETS) {
        for (size_t i = 0; i < bytes / sizeof(int32_t); i++)
            ((int32_t *)data)[i] = (int32_t)(philox_u64(key, i) % (uint64_t)s->config.model.vocab);
        return;
    }
    if (space == SPACE_LOSS || (space >= SPACE_GRAD && space < SPACE_INPUT)) {
        memset(data, 0, bytes);
        return;
    }
    if (space == SPACE_CONST || size == sizeof(float)) {
        philox_fill_normal(data, key, 0, (int64_t)(bytes / sizeof(float)), 0, 0.3f);
        return;
    }
    for (size_t i = 0; i < bytes / size; i++)
        ((bf16 *)data)[i] = f32_to_bf16(0.3f * philox_normal(key, i));
}

/* Make the spaces of a segment, and nothing for those it does not declare.  What it only writes is
 * filled with the byte `rest`. */
static void spaces_make(struct spaces *spaces, const struct session *s, int unit,
                        const struct segment *segment, int rest)
{
    unsigned touched = segment->reads | segment->writes;
    *spaces = (struct spaces){.s = s};
    for (int k = 0; k < SPACE_COUNT; k++) {
        if (!(touched >> k & 1))
            continue;
        spaces->bytes[k] = space_bytes(s, unit, segment, k);
        spaces->block[k] = aligned_alloc(64, (spaces->bytes[k] + 2 * GUARD + 63) / 64 * 64);
        spaces->base[k] = spaces->block[k] + GUARD;
        memset(spaces->block[k], PATTERN, spaces->bytes[k] + 2 * GUARD);
        if ((segment->reads >> k & 1 && k != SPACE_WORK) || k == SPACE_LOSS)
            fill(s, k, spaces->base[k], spaces->bytes[k]);
        else
            memset(spaces->base[k], rest, spaces->bytes[k]);
    }
}

static void spaces_free(struct spaces *spaces)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        free(spaces->block[k]);
}

static void check_guards(const struct spaces *spaces)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        for (size_t i = 0; spaces->block[k] && i < GUARD; i++)
            if (spaces->block[k][i] != PATTERN ||
                spaces->block[k][GUARD + spaces->bytes[k] + i] != PATTERN)
                fail_msg("a byte beside space %d was written", k);
}

static uint64_t hash_of(const struct spaces *spaces, unsigned which)
{
    uint64_t hash = 0;
    for (int k = 0; k < SPACE_COUNT; k++)
        if (which >> k & 1)
            hash = hash_bytes_seeded(spaces->base[k], spaces->bytes[k], hash);
    return hash;
}

static void run(const struct segment *segment, int unit, struct spaces *spaces, uint64_t accumulate)
{
    struct error err = {0};
    const struct flat *flat[FLAT_USES];
    units_flats(spaces->s->units, unit, flat);
    if (segment_run(segment, flat, spaces->s->device, spaces->base, accumulate, NULL, &err))
        fail_msg("%s", err.text);
}

/* Which elements of the gradient of the use-th flat the segment writes: those of its sections, and
 * with the first one the padding; 1 each.  free() it. */
static char *written_elems(const struct session *s, int unit, const struct segment *segment,
                           int use)
{
    const struct flat *flat = &s->units->flat[s->units->use[unit].flat[use]];
    unsigned sections = segment_sections(segment, use, flat);
    char *written = calloc((size_t)flat->padded, 1);
    for (int t = 0; t < flat->tensors; t++)
        if (sections >> flat->tensor[t].section & 1)
            memset(written + flat->tensor[t].offset, 1, (size_t)flat->tensor[t].elems);
    for (int p = 0; p < flat->pads && sections & 1; p++)
        memset(written + flat->pad[p].start, 1, (size_t)flat->pad[p].count);
    return written;
}

/* Nothing of what a segment writes in a space differs. */
static int are_equal(const struct spaces *a, const struct spaces *b, int unit,
                     const struct segment *segment, int space)
{
    if (space < SPACE_GRAD || space >= SPACE_INPUT)
        return !memcmp(a->base[space], b->base[space], a->bytes[space]);
    char *written = written_elems(a->s, unit, segment, space - SPACE_GRAD);
    const float *one = a->base[space], *two = b->base[space];
    int equal = 1;
    for (size_t i = 0; i < a->bytes[space] / sizeof *one; i++)
        equal &= !written[i] || !memcmp(&one[i], &two[i], sizeof *one);
    free(written);
    return equal;
}

/* A range of memory that an operand has. */
struct range {
    struct segment_ref ref;
    size_t bytes;
};

static int meet(struct range a, struct range b)
{
    return a.ref.space >= 0 && a.ref.space == b.ref.space && a.bytes && b.bytes &&
           a.ref.offset < b.ref.offset + b.bytes && b.ref.offset < a.ref.offset + a.bytes;
}

static struct range out_range(const struct segment *g, int step, int k)
{
    int value = g->graph->nodes[g->step[step].node].out[k];
    return (struct range){g->step[step].out[k], value < 0 ? 0 : graph_bytes(g->graph, value)};
}

static struct range scratch_range(const struct session *s, const struct segment *g, int step)
{
    const struct graph_node *node = &g->graph->nodes[g->step[step].node];
    size_t bytes = node->op->scratch ? node->op->scratch(s->device, g->graph, node) : 0;
    return (struct range){g->step[step].scratch, bytes};
}

/* Whether a step from `from` on reads the value. */
static int read_from(const struct segment *g, int value, int from)
{
    for (int s = from; s < g->steps; s++)
        for (int k = 0; k < NODE_INS; k++)
            if (g->graph->nodes[g->step[s].node].in[k] == value)
                return 1;
    return 0;
}

/* May the op of this step write its first output over this value, which it reads? */
static int may_replace(const struct segment *g, int step, int value)
{
    const struct graph_node *node = &g->graph->nodes[g->step[step].node];
    for (int k = 0; k < NODE_INS; k++)
        if (node->in[k] == value && node->op->in_place >> k & 1)
            return 1;
    return 0;
}

/* What one step writes meets nothing that it or a later one reads. */
static void check_step(const struct session *s, const struct segment *g, int step)
{
    struct range scratch = scratch_range(s, g, step);
    for (int k = 0; k < NODE_OUTS; k++) {
        struct range out = out_range(g, step, k);
        assert_false(meet(out, scratch));
        for (int other = 0; other < k; other++)
            assert_false(meet(out, out_range(g, step, other)));
        for (int before = 0; before < step; before++)
            for (int j = 0; j < NODE_OUTS; j++) {
                int value = g->graph->nodes[g->step[before].node].out[j];
                struct range had = out_range(g, before, j);
                if (value < 0 || had.ref.space != SPACE_WORK || !read_from(g, value, step))
                    continue;
                int dies = !read_from(g, value, step + 1);
                assert_false(meet(had, scratch));
                assert_false(meet(had, out) && !(k == 0 && dies && may_replace(g, step, value)));
            }
    }
}

static void check_lifetimes(const struct session *s, const struct segment *segment)
{
    for (int step = 0; step < segment->steps; step++)
        check_step(s, segment, step);
}

/* A tensor that is kept may leave a gap behind it, which nobody writes. */
static void check_segment(const struct session *s, int unit, const struct segment *segment)
{
    unsigned gaps = 1u << SPACE_WORK | 1u << SPACE_SAVED | 1u << SPACE_DEFERRED;
    unsigned results = segment->writes & ~gaps;
    unsigned inputs = segment->reads & ~segment->writes;
    struct spaces clean, poisoned;
    spaces_make(&clean, s, unit, segment, 0);
    spaces_make(&poisoned, s, unit, segment, 0xff);
    check_lifetimes(s, segment);
    uint64_t before = hash_of(&clean, inputs);
    run(segment, unit, &clean, 0);
    run(segment, unit, &poisoned, 0);
    check_guards(&clean);
    check_guards(&poisoned);
    assert_true(hash_of(&clean, inputs) == before);
    assert_true(hash_of(&poisoned, inputs) == before);
    for (int k = 0; k < SPACE_COUNT; k++)
        if (results >> k & 1 && !are_equal(&clean, &poisoned, unit, segment, k))
            fail_msg("unit %d %s: space %d depends on what it held before", unit,
                     segment_phase_name(segment->phase), k);
    spaces_free(&clean);
    spaces_free(&poisoned);
}

/* Written twice, and written then added to: the second gradient is twice the first. */
static void check_accumulation(const struct session *s, int unit, const struct segment *segment)
{
    unsigned grads = segment->writes & ((1u << SPACE_INPUT) - (1u << SPACE_GRAD));
    struct spaces once, twice;
    spaces_make(&once, s, unit, segment, 0xff);
    spaces_make(&twice, s, unit, segment, 0xff);
    run(segment, unit, &once, 0);
    run(segment, unit, &twice, 0);
    run(segment, unit, &twice, 0);
    assert_true(hash_of(&once, grads) == hash_of(&twice, grads));
    run(segment, unit, &twice, ~UINT64_C(0));
    double most = 0, size = 0;
    for (int k = SPACE_GRAD; k < SPACE_INPUT; k++) {
        char *written = grads >> k & 1 ? written_elems(s, unit, segment, k - SPACE_GRAD) : NULL;
        for (size_t i = 0; written && i < once.bytes[k] / sizeof(float); i++) {
            double one = ((float *)once.base[k])[i], two = ((float *)twice.base[k])[i];
            double off = written[i] ? fabs(two - 2 * one) : 0;
            most = off <= most ? most : off;
            size = written[i] ? fmax(size, fabs(one)) : size;
        }
        free(written);
    }
    assert_true(most <= 1e-5 * size);
    spaces_free(&once);
    spaces_free(&twice);
}

static void check_units(const struct session *s)
{
    for (int u = 0; u < s->units->count; u++) {
        const struct unit_kind *kind = units_kind(s->units, u);
        check_segment(s, u, &kind->evaluation);
        for (int phase = 0; phase < PHASES; phase++) {
            check_segment(s, u, &kind->segment[phase]);
            check_accumulation(s, u, &kind->segment[phase]);
        }
    }
}

/* A unit in which the projections are needed again after their rotation, which may be done in
 * place, two gradients of them meet, and a weight is used twice. */
static struct graph *twice_used(void)
{
    enum { HEADS = 3, KV = 1, DIM = 4, WIDTH = 7, ROWS = (HEADS + 2 * KV) * DIM };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    const int64_t shape[3][2] = {{ROWS, WIDTH}, {WIDTH, HEADS * DIM}, {WIDTH, ROWS}};
    int w[3], x = build_input(graph, WIDTH), table = build_rope_table(graph, DIM);
    for (int i = 0; i < 3; i++) {
        struct graph_param param = {
            .parts = 1, .part_rows = {shape[i][0]}, .dims = 2, .dim = {shape[i][0], shape[i][1]}};
        snprintf(param.part[0], GRAPH_NAME, "w%d", i);
        w[i] = build_param(graph, &param);
    }
    int h = build_linear(graph, x, w[0], -1);
    int turned = build_rope(graph, h, table, HEADS, KV, DIM);
    int mixed = build_attention(graph, turned, HEADS, KV, DIM);
    int o = build_linear(graph, mixed, w[1], -1);
    int y = build_linear(graph, h, w[2], o);
    build_output(graph, build_linear(graph, turned, w[2], y));
    return graph;
}

/* A unit that ends in a norm, whose statistics backward wants and whose result is handed on. */
static struct graph *ends_in_norm(void)
{
    enum { WIDTH = 7 };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    struct graph_param matrix = {
        .parts = 1, .part_rows = {WIDTH}, .dims = 2, .dim = {WIDTH, WIDTH}};
    struct graph_param norm = {.parts = 1, .part_rows = {WIDTH}, .dims = 1, .dim = {WIDTH}};
    snprintf(matrix.part[0], GRAPH_NAME, "matrix");
    snprintf(norm.part[0], GRAPH_NAME, "norm");
    int x = build_input(graph, WIDTH);
    int h = build_linear(graph, x, build_param(graph, &matrix), x);
    build_output(graph, build_rmsnorm(graph, h, build_param(graph, &norm), 1e-5f));
    return graph;
}

/* A unit in which a norm's backward, which makes the gradient of the input, adds to that of a
 * parameter, which a bias has begun. */
static struct graph *norm_and_bias(void)
{
    enum { WIDTH = 7 };
    struct graph *graph = graph_create(2, 5, DTYPE_F32);
    struct graph_param matrix = {
        .parts = 1, .part_rows = {WIDTH}, .dims = 2, .dim = {WIDTH, WIDTH}};
    struct graph_param norm = {.parts = 1, .part_rows = {WIDTH}, .dims = 1, .dim = {WIDTH}};
    snprintf(matrix.part[0], GRAPH_NAME, "matrix");
    snprintf(norm.part[0], GRAPH_NAME, "norm");
    int x = build_input(graph, WIDTH), w = build_param(graph, &norm);
    int h = build_linear(graph, build_rmsnorm(graph, x, w, 1e-5f), build_param(graph, &matrix), -1);
    build_output(graph, build_bias(graph, h, w));
    return graph;
}

/* The segments of such a unit in memory of their own. */
struct unit {
    struct graph *graph;
    struct flat flat;
    const struct flat *uses[FLAT_USES];
    struct param_place place[4];
    struct segment forward, backward, input, weight;
    struct device *device;
    int64_t elems; /* of input and output */
    size_t most;   /* bytes of each space */
    void *base[SPACE_COUNT];
};

static void unit_open(struct unit *u, struct graph *graph, enum config_recompute recompute,
                      struct device *device)
{
    struct error err = {0};
    *u = (struct unit){.graph = graph, .device = device, .elems = 2 * 5 * 7};
    assert_int_equal(autodiff(u->graph, &err), 0);
    flat_create(&u->flat, "unit", 0, u->graph, &(struct model_unit){0}, 1, 1);
    u->uses[0] = &u->flat;
    for (int i = 0; i < u->graph->param_count; i++) {
        u->place[i] = (struct param_place){0, i, u->flat.tensor[i].offset};
        u->flat.tensor[i].section = i;
    }
    assert_int_equal(
        segment_compile(&u->forward, u->graph, PHASE_FORWARD, recompute, u->place, device, &err),
        0);
    assert_int_equal(
        segment_compile(&u->backward, u->graph, PHASE_BACKWARD, recompute, u->place, device, &err),
        0);
    assert_int_equal(segment_compile(&u->input, u->graph, PHASE_BACKWARD_INPUT, recompute, u->place,
                                     device, &err),
                     0);
    assert_int_equal(segment_compile(&u->weight, u->graph, PHASE_BACKWARD_WEIGHT, recompute,
                                     u->place, device, &err),
                     0);
    size_t most = u->backward.work_bytes + u->forward.work_bytes + u->forward.saved_bytes +
                  u->input.work_bytes + u->weight.work_bytes + u->input.deferred_bytes;
    most = u->most = 64 * (most / 64 + (size_t)u->flat.padded + 1);
    for (int k = 0; k < SPACE_COUNT; k++) {
        u->base[k] = aligned_alloc(64, most);
        memset(u->base[k], 0, most);
    }
    philox_fill_normal(u->base[SPACE_PARAM], 1, 0, u->flat.padded, 0, 0.4f);
    philox_fill_normal(u->base[SPACE_INPUT], 2, 0, u->elems, 0, 1);
    philox_fill_normal(u->base[SPACE_OUTPUT_GRAD], 3, 0, u->elems, 0, 1);
    for (int t = 0; t < 5; t++)
        for (int i = 0; i < 2; i++) {
            ((float *)u->base[SPACE_CONST])[t * 4 + i] = cosf((float)t * (i ? 0.1f : 1));
            ((float *)u->base[SPACE_CONST])[t * 4 + 2 + i] = sinf((float)t * (i ? 0.1f : 1));
        }
}

static void unit_close(struct unit *u)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        free(u->base[k]);
    segment_destroy(&u->forward);
    segment_destroy(&u->backward);
    segment_destroy(&u->input);
    segment_destroy(&u->weight);
    flat_destroy(&u->flat);
    graph_destroy(u->graph);
}

/* The same without a backward phase, where nothing is kept and more is done in place. */
static void check_alone(struct unit *u, const struct session *s)
{
    struct error err = {0};
    struct segment alone;
    struct graph *graph = twice_used();
    assert_int_equal(
        segment_compile(&alone, graph, PHASE_FORWARD, RECOMPUTE_NONE, u->place, u->device, &err),
        0);
    check_lifetimes(s, &alone);
    float *kept = malloc((size_t)u->elems * sizeof *kept);
    memcpy(kept, u->base[SPACE_OUTPUT], (size_t)u->elems * sizeof *kept);
    assert_true(alone.work_bytes <= u->most);
    assert_int_equal(segment_run(&alone, u->uses, u->device, u->base, 0, NULL, &err), 0);
    assert_memory_equal(kept, u->base[SPACE_OUTPUT], (size_t)u->elems * sizeof *kept);
    free(kept);
    segment_destroy(&alone);
    graph_destroy(graph);
}

/* The output along the gradient given for it. */
static double along_output(struct unit *u)
{
    struct error err = {0};
    double sum = 0;
    assert_int_equal(segment_run(&u->forward, u->uses, u->device, u->base, 0, NULL, &err), 0);
    for (int64_t i = 0; i < u->elems; i++)
        sum +=
            (double)((float *)u->base[SPACE_OUTPUT])[i] * ((float *)u->base[SPACE_OUTPUT_GRAD])[i];
    return sum;
}

/* Slope of that in one element, by a central difference: to 1e-3 in fp32. */
static double slope(struct unit *u, float *value)
{
    const float step = 0.03f, was = *value;
    *value = was + step;
    double up = along_output(u);
    *value = was - step;
    double down = along_output(u);
    *value = was;
    return (up - down) / (2 * (double)step);
}

static double worst_slope(struct unit *u, enum segment_space space, const float *grad,
                          int64_t elems)
{
    double most = 0, size = 0;
    for (int64_t i = 0; i < elems; i++) {
        double off = fabs(slope(u, (float *)u->base[space] + i) - grad[i]);
        most = off <= most ? most : off;
        size = fmax(size, fabs(grad[i]));
    }
    return most / size;
}

static void test_a_value_used_twice(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    struct unit u;
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    unit_open(&u, twice_used(), RECOMPUTE_NONE, s->device);
    check_lifetimes(s, &u.forward);
    check_lifetimes(s, &u.backward);
    along_output(&u);
    check_alone(&u, s);
    assert_int_equal(segment_run(&u.backward, u.uses, s->device, u.base, 0, NULL, &err), 0);
    double weights = worst_slope(&u, SPACE_PARAM, u.base[SPACE_GRAD], u.flat.padded);
    double input = worst_slope(&u, SPACE_INPUT, u.base[SPACE_INPUT_GRAD], u.elems);
    print_message("off by %.2g of the largest gradient of weights, %.2g of input's\n", weights,
                  input);
    assert_true(weights <= 2e-3 && input <= 2e-3);
    unit_close(&u);
    session_close(s);
}

/* Overwrite what is not handed over. */
static void overwrite(struct unit *u, unsigned kept)
{
    for (int k = 0; k < SPACE_COUNT; k++)
        if (!(kept >> k & 1) || k == SPACE_WORK)
            memset(u->base[k], 0xff, u->most);
}

/* Backward after forward, with what is not declared to be handed over overwritten in between. */
static void run_both(struct unit *u)
{
    struct error err = {0};
    assert_int_equal(segment_run(&u->forward, u->uses, u->device, u->base, 0, NULL, &err), 0);
    overwrite(u, u->backward.reads);
    assert_int_equal(segment_run(&u->backward, u->uses, u->device, u->base, 0, NULL, &err), 0);
}

/* The same with backward in two parts. */
static void run_parts(struct unit *u)
{
    struct error err = {0};
    const unsigned results = 1u << SPACE_GRAD | 1u << SPACE_INPUT_GRAD;
    unsigned weight = u->weight.reads, parts = u->input.reads | weight;
    unsigned made = segment_sections(&u->input, 0, &u->flat);
    uint64_t adds = 0;
    for (int s = 0; s < u->graph->param_count; s++)
        adds |= made >> s & 1 ? segment_adds(0, s) : 0;
    assert_int_equal(segment_run(&u->forward, u->uses, u->device, u->base, 0, NULL, &err), 0);
    overwrite(u, parts & ~(1u << SPACE_DEFERRED));
    assert_int_equal(segment_run(&u->input, u->uses, u->device, u->base, 0, NULL, &err), 0);
    overwrite(u, weight | results);
    assert_int_equal(segment_run(&u->weight, u->uses, u->device, u->base, adds, NULL, &err), 0);
}

/* The gradients are the same bits whatever is kept. */
static void check_recomputed(struct graph *(*make)(void), const struct session *s)
{
    struct unit kept, again;
    unit_open(&kept, make(), RECOMPUTE_NONE, s->device);
    run_both(&kept);
    for (enum config_recompute r = RECOMPUTE_SELECTIVE; r <= RECOMPUTE_FULL; r++) {
        unit_open(&again, make(), r, s->device);
        check_lifetimes(s, &again.forward);
        check_lifetimes(s, &again.backward);
        assert_true(again.forward.saved_bytes < kept.forward.saved_bytes);
        assert_true(r != RECOMPUTE_FULL || !again.forward.saved_bytes);
        assert_false((again.backward.reads | again.backward.writes) & 1u << SPACE_OUTPUT);
        run_both(&again);
        assert_memory_equal(again.base[SPACE_GRAD], kept.base[SPACE_GRAD],
                            (size_t)kept.flat.padded * sizeof(float));
        assert_memory_equal(again.base[SPACE_INPUT_GRAD], kept.base[SPACE_INPUT_GRAD],
                            (size_t)kept.elems * sizeof(float));
        unit_close(&again);
    }
    unit_close(&kept);
}

/* Backward in two parts makes the same bits, whatever forward keeps; the first makes the gradient
 * of the input alone, where no op makes both. */
static void check_parts(struct graph *(*make)(void), const struct session *s)
{
    for (enum config_recompute r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        struct unit whole, parts;
        unit_open(&whole, make(), r, s->device);
        unit_open(&parts, make(), r, s->device);
        check_lifetimes(s, &parts.input);
        check_lifetimes(s, &parts.weight);
        assert_true(parts.input.writes >> SPACE_INPUT_GRAD & 1);
        assert_false(parts.weight.writes >> SPACE_INPUT_GRAD & 1);
        assert_true(parts.input.deferred_bytes > 0 || make == norm_and_bias);
        assert_int_equal(parts.weight.deferred_bytes, parts.input.deferred_bytes);
        assert_true(parts.input.steps + parts.weight.steps >= whole.backward.steps);
        run_both(&whole);
        run_parts(&parts);
        assert_memory_equal(parts.base[SPACE_GRAD], whole.base[SPACE_GRAD],
                            (size_t)whole.flat.padded * sizeof(float));
        assert_memory_equal(parts.base[SPACE_INPUT_GRAD], whole.base[SPACE_INPUT_GRAD],
                            (size_t)whole.elems * sizeof(float));
        unit_close(&whole);
        unit_close(&parts);
    }
}

static void test_backward_in_two_parts(void **state)
{
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    check_parts(twice_used, s);
    check_parts(ends_in_norm, s);
    check_parts(norm_and_bias, s);
    session_close(s);
}

static void test_made_again(void **state)
{
    struct mem mem = {0};
    struct config config = rig_config("model.preset=llama-tiny data.seq_len=3");
    struct session *s = rig_open(&mem, &config, NULL, 0);
    check_recomputed(twice_used, s);
    check_recomputed(ends_in_norm, s);
    session_close(s);
}

static const char *const models[] = {
    "model.hidden=1 model.heads=1 model.head_dim=2 model.ffn=1 model.vocab=2 data.seq_len=1",
    "model.hidden=7 model.heads=3 model.kv_heads=1 model.head_dim=2 model.ffn=5 model.vocab=11 "
    "data.seq_len=13 train.micro_batch=3 train.global_batch=3",
    "model.hidden=33 model.heads=3 model.head_dim=10 model.ffn=17 model.vocab=67 data.seq_len=23 "
    "model.tie_embeddings=true",
    /* so many words that the head's rows come in chunks: 64, 64 and 3 */
    "model.hidden=3 model.heads=1 model.head_dim=2 model.ffn=3 model.vocab=33000 data.seq_len=131 "
    "train.global_batch=1",
    /* positions that no sequence reaches, beside a table that the head shares */
    "model.family=gpt2 model.hidden=18 model.heads=3 model.ffn=23 model.vocab=67 data.seq_len=5 "
    "model.max_seq_len=9 model.tie_embeddings=true train.micro_batch=3 train.global_batch=3",
};

enum { MODELS = sizeof models / sizeof models[0] };

static void test_segments_keep_to_themselves(void **state)
{
    const char *const *levels = device_cpu_levels();
    for (int level = 0; levels[level]; level++)
        for (int i = 0; i < 18 * MODELS; i++) {
            static const char *const recompute[] = {"none", "selective", "full"};
            static const char *const schedule[] = {"1f1b", "gpipe", "zb_h1"};
            char text[512];
            struct mem mem = {0};
            snprintf(text, sizeof text,
                     "model.layers=1 %s precision=%s recompute=%s parallel.schedule=%s",
                     models[i / 2 % MODELS], i % 2 ? "bf16" : "fp32",
                     recompute[i / (2 * MODELS) % 3], schedule[i / (6 * MODELS)]);
            struct config config = rig_config(text);
            struct session *s = rig_open(&mem, &config, levels[level], 0);
            check_units(s);
            session_close(s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_keep_to_themselves),
        cmocka_unit_test(test_a_value_used_twice),
        cmocka_unit_test(test_made_again),
        cmocka_unit_test(test_backward_in_two_parts),
    };
    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
