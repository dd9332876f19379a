/* values.c - see values.h. */
#include "verify/values.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/philox.h"

static const struct value nothing = {.meaning = NOTHING, .unit = -1, .index = -1};

void addends_add(struct addends *sum, struct addends more)
{
    sum->count += more.count;
    sum->tags += more.tags;
}

int addends_equal(struct addends a, struct addends b)
{
    return a.count == b.count && a.tags == b.tags;
}

struct addends addend(enum meaning meaning, int micro, int unit)
{
    uint64_t place = (uint64_t)(uint32_t)micro << 32 | (uint32_t)unit;
    return (struct addends){1, philox_u64((uint64_t)meaning, place)};
}

int value_is(const struct value *value, enum meaning meaning, int unit, int index)
{
    return value->meaning == meaning && value->unit == unit && value->index == index;
}

int values_is_own_place(const struct values *v, int view)
{
    const struct buffer *part = &v->program->buffer[view];
    size_t shards = (size_t)v->program->request.shape.degree[MESH_SHARD];
    return part->bytes * shards == v->program->buffer[part->whole].bytes &&
           part->from == part->bytes * (size_t)v->program->request.coord.at[MESH_SHARD];
}

/* What a view holds by what was written to the whole. */
static struct value part_of(const struct values *v, int view)
{
    struct value value = v->value[v->program->buffer[view].whole];
    if (value.meaning == SUMS)
        return value;
    if (value.meaning != PARAM || value.part || !values_is_own_place(v, view))
        return nothing;
    value.part = 1;
    return value;
}

struct value values_get(const struct values *v, int b)
{
    int whole = v->program->buffer[b].whole;
    if (whole >= 0 && v->since[whole] > v->since[b])
        return part_of(v, b);
    for (int part = v->view[b]; part >= 0; part = v->next[part])
        if (v->since[part] > v->since[b])
            return nothing;
    return v->value[b];
}

void values_put(struct values *v, int i, int b, struct value value)
{
    v->value[b] = value;
    v->since[b] = i;
}

static void open_buffers(struct values *v)
{
    int buffers = v->program->buffers;
    v->value = array_make((size_t)buffers, sizeof *v->value);
    v->since = array_make((size_t)buffers, sizeof *v->since);
    v->view = array_make((size_t)buffers, sizeof *v->view);
    v->next = array_make((size_t)buffers, sizeof *v->next);
    for (int b = 0; b < buffers; b++) {
        v->value[b] = nothing;
        v->since[b] = v->view[b] = v->next[b] = -1;
    }
    for (int b = 0; b < buffers; b++) {
        int whole = v->program->buffer[b].whole;
        if (whole < 0)
            continue;
        v->next[b] = v->view[whole];
        v->view[whole] = b;
    }
}

static void holds(struct values *v, int b, struct value value)
{
    if (b >= 0)
        v->value[b] = value;
}

static void open_state(struct values *v)
{
    for (int u = 0; u < v->program->units->count; u++) {
        const struct unit_state *state = &v->program->state[u];
        struct value value = {.meaning = PARAM, .unit = u};
        if (state->whole_param >= 0 && !v->program->buffer[state->whole_param].partial)
            holds(v, state->whole_param, value);
        value.part = flat_is_sharded(&v->program->units->flat[u]);
        holds(v, state->param, value);
        holds(v, state->master, value);
        value.meaning = SLOT;
        for (int k = 0; k < OPTIMIZER_SLOTS; k++) {
            value.index = k;
            holds(v, state->slot[k], value);
        }
    }
    holds(v, v->program->constants, (struct value){.meaning = CONSTANTS, .unit = -1, .index = -1});
}

/* Of a value that several ranks hold alike, one counts the square: the first of them. */
static int counts_norm(const struct values *v, int unit)
{
    const int *at = v->program->request.coord.at;
    unsigned alike = v->axes;
    if (flat_is_sharded(&v->program->units->flat[unit]))
        alike &= ~(1u << MESH_SHARD);
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (alike >> axis & 1 && at[axis] > 0)
            return 0;
    return 1;
}

/* A gradient is the sum over micro-batches of what each unit that uses the parameters adds. */
static void open_sums(struct values *v)
{
    const struct units *units = v->program->units;
    v->gradient = array_make((size_t)units->count, sizeof *v->gradient);
    for (int m = 0; m < v->program->request.micros; m++) {
        addends_add(&v->losses, addend(SUMS, m, -1));
        for (int u = 0; u < units->count; u++) {
            int ends = units_kind(units, u)->ends_in_loss;
            unsigned writes = units_segment(units, u, ends ? PHASE_BOTH : PHASE_BACKWARD)->writes;
            if (writes >> SPACE_GRAD & 1)
                addends_add(&v->gradient[u], addend(GRAD, m, u));
            if (writes >> SPACE_SHARED_GRAD & 1)
                addends_add(&v->gradient[units_shared(units, u)], addend(GRAD, m, u));
        }
    }
    for (int u = 0; u < units->count; u++)
        if (counts_norm(v, u))
            addends_add(&v->norms, addend(SUMS, -1, u));
}

void values_open(struct values *v, const struct program *program, struct error *err)
{
    const int *degree = program->request.shape.degree;
    *v = (struct values){.program = program, .err = err};
    for (int axis = 0; axis < MESH_AXES; axis++)
        if ((axis == MESH_SHARD || axis == MESH_REPLICATE) && degree[axis] > 1)
            v->axes |= 1u << axis;
    open_buffers(v);
    open_state(v);
    open_sums(v);
}

void values_close(struct values *v)
{
    free(v->value);
    free(v->since);
    free(v->view);
    free(v->next);
    free(v->gradient);
}

/* ---- for messages ---- */

struct line {
    char *text;
    int used;
};

static void say(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct line *line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line->text + line->used, (size_t)(VALUE_TEXT - line->used), fmt, args);
    va_end(args);
    line->used = n < VALUE_TEXT - line->used ? line->used + n : VALUE_TEXT - 1;
}

static const char *meaning_name(enum meaning meaning)
{
    static const char *const names[MEANINGS] = {
        [NOTHING] = "nothing",       [PARAM] = "parameters of",  [SLOT] = "optimizer state of",
        [GRAD] = "gradient of",      [SUMS] = "the step's sums", [TOKENS] = "tokens of",
        [TARGETS] = "targets of",    [OUTPUT] = "output of",     [DERIVED] = "output gradient of",
        [SAVED] = "what is kept of", [CONSTANTS] = "constants",
    };
    return names[meaning];
}

const char *value_text(const struct values *v, const struct value *value, char text[VALUE_TEXT])
{
    struct line line = {.text = text};
    enum meaning meaning = value->meaning;
    int state = meaning == PARAM || meaning == SLOT || meaning == GRAD;
    say(&line, "%s", meaning_name(meaning));
    if (value->unit >= 0)
        say(&line, " unit %d", value->unit);
    if (value->index >= 0 && meaning >= TOKENS)
        say(&line, " micro %d", value->index);
    if (state)
        say(&line, "%s%s", value->part ? ", own shard" : ", whole",
            value->updated ? ", updated" : "");
    if (meaning == GRAD)
        say(&line, ", %lld of %lld runs", (long long)value->terms.count,
            (long long)v->gradient[value->unit].count);
    if (meaning == SUMS)
        say(&line, ", %lld of %lld micro-batches, %lld norms", (long long)value->terms.count,
            (long long)v->losses.count, (long long)value->norms.count);
    if (value->pending)
        say(&line, ", not summed over%s%s", value->pending >> MESH_SHARD & 1 ? " shards" : "",
            value->pending >> MESH_REPLICATE & 1 ? " replicas" : "");
    return text;
}
