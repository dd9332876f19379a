/* divided.h - a model whose blocks are divided among the ranks of a mesh axis, with every kind of
 * exchange between them.  Its head is divided by vocabulary, unevenly, with rows of padding where
 * the vocabulary is PADDED_VOCAB.  On one rank it is the same function without exchanges and
 * padding. */
#ifndef TRIREME_TESTS_UNIT_DIVIDED_H
#define TRIREME_TESTS_UNIT_DIVIDED_H

#include "program/program.h"
#include "tests/unit/rig.h"

enum { PADDED_VOCAB = 53 };

struct divided {
    struct layout layout;
    struct device *device;
    struct model *model;
    int ranks;            /* in all */
    int tensors;          /* of the tensor axis, the fastest one; the others are data ranks */
    struct units **units; /* [ranks]; ranks at one place of the tensor axis have the same */
    struct state **state; /* [ranks] */
    struct program **program, **evaluate; /* [ranks] */
};

/* Compile the programs of all ranks, for divided_close(): `tensors` ranks, times parallel.shard and
 * parallel.replicate where settings have these, on the CPU or, with device=cuda, on the first GPU.
 * settings: as for rig_config().  A failure ends the program. */
void divided_open(struct divided *d, const char *settings, int tensors);
void divided_close(struct divided *d);

/* Fill table with the model's constants as a rank has them.  The largest one of all ranks is the
 * same for any number of ranks. */
void divided_table(const struct divided *d, int rank, float *table);

#endif
