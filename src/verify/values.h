/* values.h - what buffers of a program mean: shared by verify_values.c, the rules (rules.h) and
 * writers.h, for no one else.
 *
 * Every buffer carries a meaning in place of numbers.  Sums are followed by their addends: each has
 * a random number, and a sum carries the sum of those, so that an addend left out, doubled or
 * foreign shows (but for one chance in 2^64). */
#ifndef TRIREME_VERIFY_VALUES_H
#define TRIREME_VERIFY_VALUES_H

#include "program/program.h"

enum value_meaning {
    MEANS_NOTHING,
    MEANS_PARAM,     /* a flat parameter, in any format; those up to MEANS_GRAD are of a flat */
    MEANS_SLOT,      /* the optimizer's `index`-th of a flat */
    MEANS_DIRECTION, /* what UPDATE subtracts from a flat whose rule is of matrices: enum
                        value_direction */
    MEANS_GRAD,      /* of a flat, summed over micro-batches and ranks so far */
    MEANS_SUMS,      /* enum SUM_... of state.h */
    MEANS_TOKENS,    /* of sequence `of` in micro-batch `index` */
    MEANS_TARGETS,   /* like MEANS_TOKENS, as are the next three, in the order of LOAD's slots */
    MEANS_POSITIONS,
    MEANS_DOCUMENTS,
    MEANS_SAMPLES,
    MEANS_OUTPUT,      /* activation that leaves a unit in micro-batch `index` */
    MEANS_OUTPUT_GRAD, /* the gradient of MEANS_OUTPUT, summed over the units that read it so far */
    MEANS_SAVED,       /* what its forward kept for backward */
    MEANS_DEFERRED,    /* what the input part of its backward kept for the weight part */
    MEANS_CARRIED,     /* what a unit's pieces and exchanges hand on, in one phase */
    MEANS_CONSTANTS,   /* the model's */
    MEANINGS
};

/* How far a MEANS_DIRECTION is: its index. */
enum value_direction {
    DIRECTION_MOMENTUM,  /* what MOMENTUM made */
    DIRECTION_OWN,       /* the same, of which the range `own` is orthogonal */
    DIRECTION_ORTHOGONAL /* all of it is orthogonal */
};

/* The index of a MEANS_GRAD that another rank of the pipeline axis has made, of a flat that both
 * have. */
enum { OTHER_RANK = 1 };

struct addends {
    int64_t count;
    uint64_t tags;
};

struct value {
    enum value_meaning meaning;
    int of, index; /* the flat, the unit or the sequence; -1 where the meaning has none */
    int is_shard; /* MEANS_PARAM, MEANS_SLOT, MEANS_DIRECTION, MEANS_GRAD: 1: the rank's shard, of a
                     flat that is split */
    int coded;    /* MEANS_PARAM: 1: in 4 bits, from which nothing but DECODE computes */
    /* MEANS_PARAM, MEANS_SLOT: 1 from UPDATE on; MEANS_SUMS: 1 from SCALE on; MEANS_GRAD: 1: of the
     * step before, for a program that updates first */
    int updated;
    /* MEANS_GRAD, MEANS_SUMS, what an exchange sums: the mesh axes over which this is still to be
     * summed */
    unsigned pending;
    unsigned counting;     /* MEANS_SUMS: the axes over which squares and votes lack sums */
    unsigned maxima;       /* MEANS_CARRIED and the like: the axes over which it lacks a maximum */
    struct flat_range own; /* DIRECTION_OWN: a range of the flat */
    struct addends norms;  /* MEANS_SUMS: flats in the squares */
    /* MEANS_GRAD, by section of the flat: pieces of runs of backward; in the first, MEANS_SUMS:
     * micro-batches in the loss, in the second pieces of runs in the tokens at experts;
     * MEANS_OUTPUT_GRAD: units that read the output; MEANS_SAVED, MEANS_CARRIED: pieces and
     * exchanges that have written to it */
    struct addends terms[FLAT_SECTIONS];
};

static const struct value value_nothing = {.meaning = MEANS_NOTHING, .of = -1, .index = -1};

struct values {
    const struct program *program;
    struct value *value; /* per buffer */
    int *since;          /* per buffer: the instruction that wrote it by that name, or -1 */
    int *view, *next;    /* per buffer: its first view; per view: the next one; or -1 */
    int *view_since;     /* per buffer: the last instruction that wrote one of its views, or -1 */
    struct writers *writers; /* writers.h; the caller's */
    /* Per unit and input: whose output it is; -1: nobody's.  Found again, by names: the passes use
     * units->boundary[].producer, and a mistake there would otherwise be made here too. */
    int (*producer)[BOUNDARY_USES];
    char *rank_uses;    /* per rank of the pipeline axis and flat: 1: a unit of it uses the flat */
    unsigned *sum_axes; /* per flat: values_sum_axes() */
    struct addends (*gradient)[FLAT_SECTIONS];   /* per flat: the whole of its gradient */
    struct addends losses, expert_tokens, norms; /* that this rank's part of the sums must have */
    struct addends messages[2], all_messages[2]; /* sent and received so far, and in the end: by
                                                    values_message() */
    unsigned shard_axes; /* of more than one rank, over which flats are split that are */
    unsigned axes; /* of more than one rank, those of the data and of stages: the loss is a sum over
                      these */
    unsigned counted_axes; /* and that of the ranks that compute one batch: all over which squares
                              are counted */
    struct error *err;
};

/* State as a step finds it, and what its sums must come to.  values_close() frees. */
void values_open(struct values *v, const struct program *program, struct error *err);
void values_close(struct values *v);

/* What is in a buffer by this name: the latest of what was written to it, to what it is a view of,
 * or MEANS_NOTHING where one of its own views was written since. */
struct value values_get(const struct values *v, int b);

/* Has the rank a unit? */
int values_is_own_unit(const struct values *v, int unit);
/* Has a rank of the pipeline axis a unit that uses a flat? */
int values_rank_uses(const struct values *v, int rank, int flat);
/* The axes over which a gradient that the rank's units make of a flat is to be summed. */
unsigned values_sum_axes(const struct values *v, int flat);

/* Does a program that updates first find this value, by its meaning and flat, updated? */
int values_is_after_update(const struct values *v, const struct value *value);

/* Does the rank count the square of its gradient of a flat in the norm? */
int values_counts_norm(const struct values *v, int flat);

/* Note that instruction i wrote value to buffer b. */
void values_put(struct values *v, int i, int b, struct value value);

/* Is the view the place of the rank's shard in a whole buffer? */
int values_is_own_place(const struct values *v, int view);

int value_is(const struct value *value, enum value_meaning meaning, int of, int index);

/* One addend of a sum of meaning: micro-batch, and unit, phase and piece of a RUN (values_place())
 * or flat of a NORM. */
struct addends addend(enum value_meaning meaning, int micro, int of);
/* What names an addend of a gradient beside the micro-batch.  A phase has at most PIECES, which
 * verify_values() checks: a thousand blocks in one unit, divided among ranks, have fewer. */
enum { PIECES = 1 << 16 };
static inline int values_place(int unit, enum segment_phase phase, int piece)
{
    return (unit * PHASES + (int)phase) * PIECES + piece;
}

/* The addend of a message: of what a unit puts out, or its gradient, or a flat's gradient. */
struct addends values_message(const struct instr *message);

/* What its readers add to the gradient of the output of a unit: all, or those of one stage. */
struct addends values_readers(const struct values *v, int unit, int micro);
struct addends values_stage_readers(const struct values *v, int unit, int micro, int stage);

void addends_add(struct addends *sum, struct addends more);
int addends_equal(struct addends a, struct addends b);

/* Add to the terms of a gradient, by section of the use-th flat of a unit, those that a piece of a
 * run makes. */
void values_add_piece(const struct values *v, struct addends *terms, int unit, int micro,
                      enum segment_phase phase, int piece, int use);

/* Has a gradient, in each section, all of its addends? */
int values_is_complete(const struct values *v, const struct value *gradient);

/* "gradient of layers.3, whole, 1 of 2 runs, not summed over shards" into text; returns text. */
enum { VALUE_TEXT = 128 };
const char *value_text(const struct values *v, const struct value *value, char text[VALUE_TEXT]);

#endif
