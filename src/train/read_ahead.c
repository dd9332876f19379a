/* read_ahead.c - see read_ahead.h.
 *
 * A ring of READ_AHEAD + 1 steps has a place for each micro-batch and kind of values.  While a step
 * is loaded from its place, the step READ_AHEAD later is read into the one that the step before has
 * left:
 *
 *   place     0    1    2    3
 *   holds     8    9   10    7 -> 11     while step 8 is loaded
 */
#include "train/read_ahead.h"

#include <stdlib.h>
#include <string.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/round.h"

enum { PLACES = READ_AHEAD + 1 };

/* What data files say of a micro-batch's rows; the numbers of samples are computed. */
enum kind { TOKENS, TARGETS, POSITIONS, DOCUMENTS, KINDS };

static const int load_slot[KINDS] = {
    [TOKENS] = SLOT_LOAD_TOKENS,
    [TARGETS] = SLOT_LOAD_TARGETS,
    [POSITIONS] = SLOT_LOAD_POSITIONS,
    [DOCUMENTS] = SLOT_LOAD_DOCUMENTS,
};

struct read_ahead {
    struct batches *batches;
    struct read_ahead_range range;
    int micros;           /* micro-batches of a step */
    int64_t values;       /* values of a micro-batch and kind */
    int32_t *kind[KINDS]; /* [PLACES, micros, values]; NULL: not loaded on this rank */
    int64_t *held;        /* [PLACES, micros]: first sample of the step that was read; -1: none */
    struct error failure; /* the first failure to read; no text: none */
};

/* The number of a step's micro-batch among all in the ring. */
static int64_t number_of(const struct read_ahead *a, int64_t sample, int micro)
{
    int64_t step = (sample - a->range.first) / a->range.each;
    return step % PLACES * a->micros + micro;
}

static int32_t *values_of(const struct read_ahead *a, enum kind kind, int64_t number)
{
    return a->kind[kind] ? a->kind[kind] + number * a->values : NULL;
}

/* Read a micro-batch of the step whose samples begin at `sample`. */
static int read_micro(struct read_ahead *a, int64_t sample, int micro, struct error *err)
{
    int64_t number = number_of(a, sample, micro);
    const struct step_batch batch = {.micro = micro,
                                     .tokens = {values_of(a, TOKENS, number)},
                                     .targets = values_of(a, TARGETS, number),
                                     .positions = {values_of(a, POSITIONS, number)},
                                     .documents = {values_of(a, DOCUMENTS, number)}};
    struct batches of_step = *a->batches;
    of_step.sample = sample;
    of_step.batch = min_i64(a->range.each, a->range.end - sample);
    a->held[number] = -1;
    if (batches_load(&of_step, &batch, err) || batches_load_positions(&of_step, &batch, err))
        return -1;
    a->held[number] = sample;
    alive_note();
    return 0;
}

/* How many micro-batches a step loads on this rank, and which kinds of values. */
static void find_loads(struct read_ahead *a, const struct program *program, int is_loaded[KINDS])
{
    for (int i = 0; i < program->instrs; i++) {
        const struct instr *instr = &program->instr[i];
        if (instr->kind != INSTR_LOAD)
            continue;
        a->micros = instr->micro < a->micros ? a->micros : instr->micro + 1;
        for (int k = 0; k < KINDS; k++)
            is_loaded[k] |= instr->buffer[load_slot[k]] >= 0;
    }
}

static int allocate(struct read_ahead *a, const int is_loaded[KINDS], struct error *err)
{
    int64_t all = PLACES * a->micros;
    a->values = a->batches->micro_batch * loader_rows(&a->batches->data.file[0].loader);
    a->held = array_make((size_t)all + 1, sizeof *a->held);
    for (int64_t i = 0; i < all; i++)
        a->held[i] = -1;
    size_t bytes = (size_t)(all * a->values) * sizeof(int32_t);
    for (int k = 0; k < KINDS; k++) {
        a->kind[k] = is_loaded[k] ? malloc(bytes) : NULL;
        if (is_loaded[k] && !a->kind[k])
            return error_set(err, "out of memory: %zu bytes for the tokens of %d steps", bytes,
                             PLACES);
    }
    return 0;
}

int read_ahead_open(struct read_ahead **ahead, struct batches *batches,
                    const struct program *program, struct read_ahead_range range, struct error *err)
{
    struct read_ahead *a = *ahead = array_make(1, sizeof *a);
    int is_loaded[KINDS] = {0};
    *a = (struct read_ahead){.batches = batches, .range = range};
    find_loads(a, program, is_loaded);
    if (allocate(a, is_loaded, err))
        return -1;
    for (int64_t step = 0; step < READ_AHEAD; step++)
        for (int micro = 0; micro < a->micros; micro++) {
            int64_t sample = range.first + step * range.each;
            if (sample < range.end && read_micro(a, sample, micro, err))
                return -1;
        }
    return 0;
}

void read_ahead_close(struct read_ahead *a)
{
    if (!a)
        return;
    for (int k = 0; k < KINDS; k++)
        free(a->kind[k]);
    free(a->held);
    free(a);
}

/* Was this micro-batch of the step at hand read? */
static int has(const struct read_ahead *a, int micro)
{
    int64_t sample = a->batches->sample;
    return micro < a->micros && a->held[number_of(a, sample, micro)] == sample;
}

static void copy_values(const struct read_ahead *a, enum kind kind, int micro, int32_t *to)
{
    int64_t number = number_of(a, a->batches->sample, micro);
    if (to)
        memcpy(to, values_of(a, kind, number), (size_t)a->values * sizeof *to);
}

int read_ahead_load(void *user, const struct step_batch *batch, struct error *err)
{
    struct read_ahead *a = user;
    int64_t later = a->batches->sample + READ_AHEAD * a->range.each;
    if (!has(a, batch->micro))
        return batches_load(a->batches, batch, err);
    copy_values(a, TOKENS, batch->micro, batch->tokens[0]);
    copy_values(a, TARGETS, batch->micro, batch->targets);
    if (later < a->range.end && !a->failure.text[0])
        read_micro(a, later, batch->micro, &a->failure);
    return 0;
}

int read_ahead_load_positions(void *user, const struct step_batch *batch, struct error *err)
{
    struct read_ahead *a = user;
    const struct step_batch computed = {.micro = batch->micro, .samples = {batch->samples[0]}};
    if (!has(a, batch->micro))
        return batches_load_positions(a->batches, batch, err);
    copy_values(a, POSITIONS, batch->micro, batch->positions[0]);
    copy_values(a, DOCUMENTS, batch->micro, batch->documents[0]);
    return batches_load_positions(a->batches, &computed, err);
}

int read_ahead_check(const struct read_ahead *a, struct error *err)
{
    if (!a || !a->failure.text[0])
        return 0;
    if (err)
        *err = a->failure;
    return -1;
}
