/* translator.h - a small encoder-decoder, written by hand: units that read a boundary of a unit far
 * before them, of a sequence of another length, which several of them read. */
#ifndef TRIREME_TESTS_UNIT_TRANSLATOR_H
#define TRIREME_TESTS_UNIT_TRANSLATOR_H

#include "tests/unit/rig.h"

/* As a chain of units; or all in one unit, whose graph has every value of the model and no
 * boundary: the same function of the same tensors. */
enum translator_form { TRANSLATOR_CHAIN, TRANSLATOR_WHOLE };

/* Of the sizes and as many encoder and decoder blocks as config says; a chain is wrapped as it
 * says. For model_destroy(). */
struct model *translator_model(const struct config *config, enum translator_form form);

/* The words that the model translates from and to, of sequences that each follow from their number
 * among all of the step's: a step_input's load function. */
struct translator_data {
    const struct units *units;
    int64_t data_ranks, data_rank;
};
int translator_load(void *user, const struct step_batch *batch, struct error *err);

/* What steps came to. */
enum { TRANSLATOR_STEPS = 4 };
struct translator_outcome {
    double loss[TRANSLATOR_STEPS], norm[TRANSLATOR_STEPS], targets;
    double valid; /* loss after the last, by EVALUATE, where config has data.valid */
};

/* Train a session from its seed, all steps or, of `steps` above 0, the first of them.  Collective
 * over its world.  0, or -1 with err set. */
int translator_train(struct session *session, int steps, struct translator_outcome *outcome,
                     struct error *err);

#endif
