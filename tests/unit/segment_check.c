/* segment_check.c - see segment_check.h. */
#include "tests/unit/segment_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

void segment_check_lifetimes(const struct session *s, const struct segment *segment)
{
    for (int step = 0; step < segment->steps; step++)
        check_step(s, segment, step);
}

int segment_check_run(const struct segment *segment, const struct flat *const *flat,
                      struct device *device, void *const *base, uint64_t accumulate,
                      struct error *err)
{
    for (int piece = 0; piece < segment->pieces; piece++)
        if (segment_run_piece(segment, piece, 0, flat, device, base, accumulate, NULL, err))
            return -1;
    return 0;
}
