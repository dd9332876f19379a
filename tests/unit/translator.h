/* translator.h - a small encoder-decoder, written by hand.  Its decoder blocks all read the output
 * of the encoder: a boundary of a unit far before them, with several readers, and of a sequence of
 * another length. */
#ifndef TRIREME_TESTS_UNIT_TRANSLATOR_H
#define TRIREME_TESTS_UNIT_TRANSLATOR_H

#include "tests/unit/rig.h"

/* A chain of units; or all of the model in one unit without boundaries, which is the same function
 * of the same tensors. */
enum translator_form { TRANSLATOR_CHAIN, TRANSLATOR_WHOLE };

/* Make the model, for model_destroy(), with the sizes and as many encoder and decoder blocks as
 * config says; a chain is divided into units by parallel.wrap. */
struct model *translator_model(const struct config *config, enum translator_form form);

/* For translator_load(). */
struct translator_data {
    const struct units *units;
    int64_t data_ranks, data_rank; /* number of data ranks, and the one of this rank */
};
/* Load the tokens that the model translates from and to; a step_input's load function.  A sequence
 * follows from its number among all sequences of the step. */
int translator_load(void *user, const struct step_batch *batch, struct error *err);

enum { TRANSLATOR_STEPS = 4 };
/* The numbers of training steps. */
struct translator_outcome {
    double loss[TRANSLATOR_STEPS], norm[TRANSLATOR_STEPS]; /* of each step; norm: of the gradient */
    double targets;                                        /* of the last step */
    double valid; /* loss of an evaluation after the last step, where config has data.valid */
};

/* Train a session from its seed, the first `steps` steps, or all where steps is 0.  Collective over
 * its world.  Returns 0, or -1 with err set. */
int translator_train(struct session *session, int steps, struct translator_outcome *outcome,
                     struct error *err);

#endif
