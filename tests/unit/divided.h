/* divided.h - a model whose blocks are divided by hand among the ranks of a mesh axis: every kind
 * of exchange is in them; and its head by vocabulary, unevenly, with rows of padding.  With one
 * rank it is the same function, without exchanges and padding. */
#ifndef TRIREME_TESTS_UNIT_DIVIDED_H
#define TRIREME_TESTS_UNIT_DIVIDED_H

#include "program/program.h"
#include "tests/unit/rig.h"

struct divided {
    struct layout layout;
    struct device *device;
    struct model *model;
    struct units **units; /* per rank */
    int ranks;
    struct state **state;
    struct program **program, **evaluate;
};

/* The programs of all ranks of a tensor axis, for divided_close().  settings: as for rig_config().
 * Ends the program if it cannot. */
void divided_open(struct divided *d, const char *settings, int ranks);
void divided_close(struct divided *d);

/* Fill the model's constants as a rank has them: the largest of all ranks' is the same for each
 * number of ranks. */
void divided_table(const struct divided *d, int rank, float *table);

/* The place in the whole matrix of element i of a rank's tensor; a number that names it.  Rows of
 * the head past the vocabulary are padding. */
int64_t divided_place(const struct divided *d, const struct flat_tensor *tensor, int rank,
                      int64_t i);

#endif
