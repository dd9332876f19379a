/* divided.h - a model whose blocks are divided among the ranks of a mesh axis: every kind
 * of exchange is in them; and its head by vocabulary, unevenly, with rows of padding where the
 * vocabulary is PADDED_VOCAB.  With one rank it is the same function, without exchanges and
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
    int ranks, tensors;   /* tensor ranks, fastest; the others are data ranks */
    struct units **units; /* per rank; those of one place of the tensor axis are the same */
    struct state **state;
    struct program **program, **evaluate;
};

/* The programs of all ranks of a tensor axis, times parallel.shard and parallel.replicate, where
 * these are given, for divided_close(), on the CPU or, with device=cuda, on the first GPU.
 * settings: as for rig_config().  Ends the program if it cannot. */
void divided_open(struct divided *d, const char *settings, int tensors);
void divided_close(struct divided *d);

/* Fill the model's constants as a rank has them: the largest of all ranks' is the same for each
 * number of ranks. */
void divided_table(const struct divided *d, int rank, float *table);

#endif
