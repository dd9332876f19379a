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
 * positions after its own: what they leave in the cache is overwritten before anything sees it.
 */
#include "train/generator.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "base/round.h"
#include "train/sampling.h"

struct slot {
    int64_t text; /* its number; -1: nothing is generated here */
    int32_t *ids; /* tokens of the text last generated here */
    int count, capacity;
    int64_t prompt; /* the first `prompt` of ids were given, the others drawn */
    int64_t first;  /* index in ids of the token at position 0 */
    int64_t cached; /* positions whose keys and values are kept */
    int64_t taken;  /* waiting tokens that the pass under way computes */
};

/* What the root broadcasts of a slot's next token. */
struct drawn {
    int32_t id;
    int32_t ends; /* 1: the text has ended; -1: logits are no numbers */
};

struct generator {
    struct session *s;
    int64_t slots;
    int64_t chunk; /* tokens of each slot in the pass under way */
    struct slot *slot;
    int64_t context;     /* tokens of a text that are kept at most */
    int root;            /* generator_root() */
    float *logits;       /* on the root, after a pass: [slots, the model's vocabulary] */
    struct drawn *drawn; /* per slot */
    int64_t *wanting;    /* on the root: the slots of which no token waits */
};

/* What tokens of a run are drawn with, on the root. */
struct drawing {
    const struct generator_request *request;
    struct sampling **sampling; /* per thread that may draw */
    int64_t samplings;
    int64_t *stop; /* ids that end a text, not to be drawn where it must not end yet */
    int stops, stop_capacity;
};

/* ---- a pass ---- */

static int64_t waiting(const struct slot *slot)
{
    return slot->text < 0 ? 0 : slot->count - slot->first - slot->cached;
}

/* For a step_input: fill in the tokens of a pass, and in place of targets the row of each slot
 * whose logits are wanted. */
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

/* For a step_input: fill in the positions of rows.  Rows that no slot needs may be at positions
 * after the last that the model knows: these become the last one. */
static int load_positions(void *user, const struct step_batch *batch, struct error *err)
{
    const struct generator *g = user;
    int64_t last = g->s->units->generate_positions - 1;
    for (int64_t row = 0; batch->positions[0] && row < g->slots * g->chunk; row++)
        batch->positions[0][row] =
            (int32_t)min_i64(g->slot[row / g->chunk].cached + row % g->chunk, last);
    return 0;
}

/* Will any text want its next token when the pass under way is done? */
static int any_will_want_token(const struct generator *g)
{
    for (int64_t b = 0; b < g->slots; b++)
        if (g->slot[b].text >= 0 && waiting(&g->slot[b]) == g->slot[b].taken)
            return 1;
    return 0;
}

/* Get the logits that the root draws from; on the root alone. */
static int fetch_logits(struct generator *g, const struct program *program, struct error *err)
{
    if (world_rank(g->s->world) != g->root)
        return 0;
    g->logits = executor_logits(g->s->executor, program, err);
    return g->logits ? 0 : -1;
}

static int run_pass(struct generator *g, struct error *err)
{
    const struct step_input input = {.load = load, .load_positions = load_positions, .user = g};
    int64_t most = 1;
    for (int64_t b = 0; b < g->slots; b++)
        most = max_i64(most, waiting(&g->slot[b]));
    const struct program *program = most > 1 ? g->s->prompt : g->s->token;
    g->chunk = program_seq(program, 0);
    for (int64_t b = 0; b < g->slots; b++)
        g->slot[b].taken = min_i64(waiting(&g->slot[b]), g->chunk);
    int rc = executor_run_step(g->s->executor, program, &input, NULL, NULL, err) ||
             (any_will_want_token(g) && fetch_logits(g, program, err));
    if (world_end_job_if_failed(g->s->world, rc, err))
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

/* On the root: draw the next token of slot b, -1 if its logits are no numbers.  It depends on the
 * text and its length alone, so that threads may draw for slots in any order. */
static int64_t draw(struct generator *g, const struct drawing *d, struct sampling *sampling,
                    int64_t b)
{
    const struct generator_request *request = d->request;
    const struct slot *slot = &g->slot[b];
    float *logits = g->logits + b * g->s->config.model.vocab;
    int64_t before = slot->count - slot->prompt;
    for (int i = 0; i < d->stops && before < request->how.min_tokens; i++)
        logits[d->stop[i]] = -INFINITY;
    uint64_t index = (uint64_t)slot->text << 32 | (uint64_t)before;
    uint64_t number = philox_u64(philox_key(request->seed, "generate"), index);
    return sampling_draw(sampling, &request->how, logits, slot->ids, slot->count,
                         (double)(number >> 11) * 0x1p-53);
}

/* Hand the drawn token of slot b to the request.  Returns struct drawn's `ends`: 1 if the text ends
 * with it, 0 if not, -1 if its logits are no numbers. */
static int hand_on(const struct generator *g, const struct generator_request *request, int64_t b)
{
    const struct slot *slot = &g->slot[b];
    int32_t id = g->drawn[b].id;
    if (id < 0)
        return -1;
    if (request->is_stop(request->user, id))
        return 1;
    int ends = request->take(request->user, slot->text, id);
    return ends || slot->count - slot->prompt + 1 >= request->how.tokens;
}

static int wants_token(const struct slot *slot)
{
    return slot->text >= 0 && !waiting(slot);
}

/* On the root: each thread draws for some slots, and then tokens are handed on in order.  The team
 * is as large as a kernel's, or one: OpenMP ends and starts threads where sizes alternate. */
static void draw_slots(struct generator *g, const struct drawing *d)
{
    int64_t count = 0;
    for (int64_t b = 0; b < g->slots; b++)
        if (wants_token(&g->slot[b]))
            g->wanting[count++] = b;
#pragma omp parallel for num_threads(count > 1 ? device_threads(g->s->device) : 1) \
    schedule(static, 1)
    for (int64_t k = 0; k < count; k++) {
        int64_t b = g->wanting[k];
        g->drawn[b].id = (int32_t)draw(g, d, d->sampling[omp_get_thread_num()], b);
    }
    for (int64_t k = 0; k < count; k++)
        g->drawn[g->wanting[k]].ends = hand_on(g, d->request, g->wanting[k]);
}

/* All ranks append what the root draws for the slots of which no token waits. */
static int draw_all(struct generator *g, const struct drawing *d, struct error *err)
{
    const struct generator_request *request = d->request;
    int is_root = world_rank(g->s->world) == g->root;
    if (is_root)
        draw_slots(g, d);
    world_broadcast(g->s->world, g->drawn, (size_t)g->slots * sizeof *g->drawn, g->root);
    for (int64_t b = 0; b < g->slots; b++) {
        struct slot *slot = &g->slot[b];
        if (!wants_token(slot))
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

/* Put a prompt into a slot; of a prompt that is longer than the context only the end is read.
 * Where it begins as the slot's last text did, what is cached of that is kept; its last token is
 * computed in any case, because its logits are needed. */
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

/* Begin texts in free slots.  A pass over a prompt computes rows for all slots, so several begin at
 * a time. */
static void begin_texts(const struct generator *g, const struct generator_prompt *prompts,
                        int64_t count, int64_t *next)
{
    int64_t least = min_i64(count - *next, max_i64(g->slots / 2, 1));
    int begins = *next < count && g->slots - busy(g) >= least;
    for (int64_t b = 0; b < g->slots; b++) {
        if (begins && *next < count && g->slot[b].text < 0) {
            begin(g, &g->slot[b], *next, &prompts[*next]);
            ++*next;
        }
        make_space(g, &g->slot[b]);
    }
}

static struct drawing make_drawing(const struct generator *g,
                                   const struct generator_request *request)
{
    struct drawing d = {.request = request};
    if (world_rank(g->s->world) != g->root)
        return d;
    d.samplings = min_i64(g->s->device->threads, g->slots);
    d.sampling = array_make((size_t)d.samplings, sizeof(struct sampling *));
    for (int64_t t = 0; t < d.samplings; t++)
        d.sampling[t] = sampling_create(request->vocab);
    for (int64_t id = 0; id < request->vocab && request->how.min_tokens; id++)
        if (request->is_stop(request->user, id)) {
            d.stop = array_grow(d.stop, d.stops, &d.stop_capacity, sizeof *d.stop);
            d.stop[d.stops++] = id;
        }
    return d;
}

static void free_drawing(struct drawing *d)
{
    for (int64_t t = 0; t < d->samplings; t++)
        sampling_destroy(d->sampling[t]);
    free(d->sampling);
    free(d->stop);
}

/* Has any rank been asked to stop?  Every pass asks, as one with large parameters takes seconds. */
static int is_stopped(const struct generator *g, const struct generator_request *request)
{
    double asked = stop_asked(request->stop) != 0;
    if (!request->stop)
        return 0;
    world_all_reduce(g->s->world, &asked, 1, WORLD_MAX);
    return asked > 0;
}

static void forget_texts(struct generator *g)
{
    for (int64_t b = 0; b < g->slots; b++)
        g->slot[b].text = -1;
}

int generator_run(struct generator *g, const struct generator_request *request,
                  const struct generator_prompt *prompts, int64_t count, struct error *err)
{
    struct drawing drawing = make_drawing(g, request);
    int64_t next = 0;
    int rc = 0;
    while (!rc && (next < count || busy(g))) {
        rc = is_stopped(g, request) ? GENERATOR_STOPPED : 0;
        if (rc)
            break;
        begin_texts(g, prompts, count, &next);
        rc = run_pass(g, err) || draw_all(g, &drawing, err) ? -1 : 0;
    }
    if (rc == GENERATOR_STOPPED)
        forget_texts(g);
    free_drawing(&drawing);
    return rc;
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
    g->wanting = array_make((size_t)g->slots, sizeof *g->wanting);
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
    free(g->wanting);
    free(g);
}
