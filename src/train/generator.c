/* generator.c - see generator.h.
 *
 * Of a slot's text some tokens are in the cache, and the others wait:
 *
 *   ids      The cat sat on the    first = 0: the one at position 0
 *            ---cached--- waiting
 *
 * Each pass takes the next waiting tokens of every slot: up to a prompt's chunk of them where a
 * slot has several (PROMPT), else one (TOKEN).  A slot of which none waits any more has logits for
 * its next token, which the root draws and sends to all; it is then what waits.  Rows that a
 * slot does not need, because it is empty or has fewer tokens waiting, are computed on token 0, at
 * positions behind its own: what they leave in the cache is overwritten before anything sees it.
 */
#include "train/generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "base/round.h"
#include "train/sampling.h"

struct slot {
    int64_t text; /* its number; -1: nothing is generated here */
    int32_t *ids; /* of the text last generated here */
    int count, capacity;
    int64_t prompt; /* of ids: given, the others were drawn */
    int64_t first;  /* of ids: at position 0 */
    int64_t cached; /* positions whose keys and values are kept */
    int64_t taken;  /* of those waiting, by the pass under way */
};

/* What the root says of a slot's next token. */
struct drawn {
    int32_t id;
    int32_t ends; /* 1: the text has ended; -1: logits are no numbers */
};

struct generator {
    struct session *s;
    int64_t slots, chunk; /* tokens of each slot in the pass under way */
    struct slot *slot;
    int64_t context;
    int root;
    float *logits; /* of the root: [slots, the model's vocabulary] */
    struct drawn *drawn;
};

/* ---- a pass ---- */

static int64_t waiting(const struct slot *slot)
{
    return slot->text < 0 ? 0 : slot->count - slot->first - slot->cached;
}

/* Tokens, and in place of targets which of all rows each slot wants logits of. */
static int load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct generator *g = user;
    for (int64_t b = 0; b < g->slots; b++) {
        const struct slot *slot = &g->slot[b];
        int32_t *tokens = batch->tokens[0] ? batch->tokens[0] + b * g->chunk : NULL;
        if (tokens)
            memset(tokens, 0, (size_t)g->chunk * sizeof *tokens);
        if (tokens && slot->taken)
            memcpy(tokens, slot->ids + slot->first + slot->cached,
                   (size_t)slot->taken * sizeof *tokens);
        if (batch->targets)
            batch->targets[b] = (int32_t)(b * g->chunk + max_i64(slot->taken, 1) - 1);
    }
    return 0;
}

/* Attention reads the first position of a slot alone; those behind the last that the model knows,
 * which are of rows that nobody needs, count as that. */
static int load_places(void *user, const struct step_batch *batch, struct error *err)
{
    const struct generator *g = user;
    int64_t last = g->s->units->generate_positions - 1;
    for (int64_t row = 0; batch->positions[0] && row < g->slots * g->chunk; row++)
        batch->positions[0][row] =
            (int32_t)min_i64(g->slot[row / g->chunk].cached + row % g->chunk, last);
    return 0;
}

static int fetch_logits(struct generator *g, const struct program *program, struct error *err)
{
    size_t bytes = (size_t)(g->slots * g->s->config.model.vocab) * sizeof *g->logits;
    if (world_rank(g->s->world) != g->root)
        return 0;
    const void *at = executor_buffer(g->s->executor, &program->buffer[program->logits]);
    return device_download(g->s->device, g->logits, at, bytes, err);
}

static int run_pass(struct generator *g, struct error *err)
{
    const struct step_input input = {.load = load, .load_places = load_places, .user = g};
    int64_t most = 1;
    for (int64_t b = 0; b < g->slots; b++)
        most = max_i64(most, waiting(&g->slot[b]));
    const struct program *program = most > 1 ? g->s->prompt : g->s->token;
    g->chunk = program_seq(program, 0);
    for (int64_t b = 0; b < g->slots; b++)
        g->slot[b].taken = min_i64(waiting(&g->slot[b]), g->chunk);
    int rc =
        execute(g->s->executor, program, &input, NULL, NULL, err) || fetch_logits(g, program, err);
    if (world_must(g->s->world, rc, err))
        return -1;
    for (int64_t b = 0; b < g->slots; b++)
        g->slot[b].cached += g->slot[b].taken;
    return 0;
}

/* ---- the next tokens ---- */

static void append(struct slot *slot, int32_t id)
{
    slot->ids = array_grow(slot->ids, slot->count, &slot->capacity, sizeof *slot->ids);
    slot->ids[slot->count++] = id;
}

/* On the root: draw the next token of slot b, and hand it on. */
static struct drawn draw(struct generator *g, const struct generator_request *request,
                         struct sampling *sampling, int64_t b)
{
    const struct slot *slot = &g->slot[b];
    float *logits = g->logits + b * g->s->config.model.vocab;
    int64_t before = slot->count - slot->prompt;
    if (before < request->how.min_tokens)
        for (int64_t id = 0; id < request->vocab; id++)
            if (request->is_stop(request->user, id))
                logits[id] = -INFINITY;
    uint64_t index = (uint64_t)slot->text << 32 | (uint64_t)before;
    uint64_t number = philox_u64(philox_key(request->seed, "generate"), index);
    int64_t id = sampling_draw(sampling, &request->how, logits, slot->ids, slot->count,
                               (double)(number >> 11) * 0x1p-53);
    if (id < 0)
        return (struct drawn){.ends = -1};
    if (request->is_stop(request->user, id))
        return (struct drawn){.id = (int32_t)id, .ends = 1};
    int ends = request->take(request->user, slot->text, id);
    return (struct drawn){.id = (int32_t)id, .ends = ends || before + 1 >= request->how.tokens};
}

/* All ranks append what the root draws for the slots of which no token waits. */
static int draw_all(struct generator *g, const struct generator_request *request,
                    struct sampling *sampling, struct error *err)
{
    int is_root = world_rank(g->s->world) == g->root;
    for (int64_t b = 0; b < g->slots && is_root; b++)
        if (g->slot[b].text >= 0 && !waiting(&g->slot[b]))
            g->drawn[b] = draw(g, request, sampling, b);
    world_broadcast(g->s->world, g->drawn, (size_t)g->slots * sizeof *g->drawn, g->root);
    for (int64_t b = 0; b < g->slots; b++) {
        struct slot *slot = &g->slot[b];
        if (slot->text < 0 || waiting(slot))
            continue;
        if (g->drawn[b].ends < 0)
            return error_set(err,
                             "text %lld: the logits of token %lld are no numbers: what the model "
                             "computes overflows, or its weights are damaged",
                             (long long)slot->text + 1, (long long)slot->count - slot->prompt + 1);
        append(slot, g->drawn[b].id);
        if (!g->drawn[b].ends)
            continue;
        if (is_root && request->ended)
            request->ended(request->user, slot->text);
        slot->text = -1;
    }
    return 0;
}

/* ---- slots ---- */

/* Where the context is full, begin again with its last half. */
static void make_space(const struct generator *g, struct slot *slot)
{
    if (slot->text < 0 || slot->count - slot->first <= g->context)
        return;
    slot->first = slot->count - max_i64(g->context / 2, 1);
    slot->cached = 0;
}

/* Put a prompt into a slot; of one that is longer than the context the end counts.  What it begins
 * with as the slot's last text did is kept, but for one token, whose logits are needed. */
static void begin(const struct generator *g, struct slot *slot, int64_t text,
                  const struct generator_prompt *prompt)
{
    int64_t first = max_i64(prompt->count - g->context, 0), same = 0;
    if (first == 0 && slot->first == 0)
        while (same < min_i64(slot->cached, prompt->count - 1) &&
               slot->ids[same] == prompt->ids[same])
            same++;
    slot->text = text;
    slot->count = 0;
    for (int64_t i = 0; i < prompt->count; i++)
        append(slot, prompt->ids[i]);
    slot->prompt = prompt->count;
    slot->first = first;
    slot->cached = same;
}

static int64_t busy(const struct generator *g)
{
    int64_t count = 0;
    for (int64_t b = 0; b < g->slots; b++)
        count += g->slot[b].text >= 0;
    return count;
}

int generator_run(struct generator *g, const struct generator_request *request,
                  const struct generator_prompt *prompts, int64_t count, struct error *err)
{
    struct sampling *sampling = sampling_create(request->vocab);
    int64_t next = 0;
    int rc = 0;
    while (!rc && (next < count || busy(g))) {
        /* A pass over a prompt computes rows for all slots, so new texts begin several at a time.
         */
        int64_t least = min_i64(count - next, max_i64(g->slots / 2, 1));
        int begins = next < count && g->slots - busy(g) >= least;
        for (int64_t b = 0; b < g->slots; b++) {
            if (begins && next < count && g->slot[b].text < 0) {
                begin(g, &g->slot[b], next, &prompts[next]);
                next++;
            }
            make_space(g, &g->slot[b]);
        }
        rc = run_pass(g, err);
        if (!rc)
            rc = draw_all(g, request, sampling, err);
    }
    sampling_destroy(sampling);
    return rc ? -1 : 0;
}

/* ---- making one ---- */

/* The first rank that has the last unit. */
static int find_root(const struct session *s)
{
    struct mesh_coord coord = {{0}};
    coord.at[MESH_PIPELINE] = s->units->rank[s->units->count - 1];
    return mesh_rank(&s->layout.shape, coord);
}

struct generator *generator_create(struct session *session)
{
    struct generator *g = array_make(1, sizeof *g);
    const struct units_generate *sizes = &session->units->request.generate;
    g->s = session;
    g->slots = sizes->batch;
    g->context = session->config.data.seq_len;
    g->root = find_root(session);
    g->slot = array_make((size_t)g->slots, sizeof *g->slot);
    g->drawn = array_make((size_t)g->slots, sizeof *g->drawn);
    g->logits = array_make((size_t)(g->slots * session->config.model.vocab), sizeof *g->logits);
    for (int64_t b = 0; b < g->slots; b++)
        g->slot[b].text = -1;
    return g;
}

void generator_forget(struct generator *generator)
{
    for (int64_t b = 0; b < generator->slots; b++)
        generator->slot[b].cached = 0;
}

int generator_root(const struct generator *generator)
{
    return generator->root;
}

void generator_destroy(struct generator *g)
{
    if (!g)
        return;
    for (int64_t b = 0; b < g->slots; b++)
        free(g->slot[b].ids);
    free(g->slot);
    free(g->drawn);
    free(g->logits);
    free(g);
}
