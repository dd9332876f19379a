/* check.h - for programs that mpirun starts: counting failed checks, and failing on all ranks
 * together. */
#ifndef TRIREME_TESTS_MPI_CHECK_H
#define TRIREME_TESTS_MPI_CHECK_H

#include <stdio.h>

#include "comm/world.h"
#include "io/h5.h"

struct checks {
    struct world *world;
    struct mem mem;
    int failed;
};

static inline void check_at(struct checks *c, int holds, const char *what, const char *file,
                            int line)
{
    if (holds)
        return;
    if (c->failed++ < 5)
        fprintf(stderr, "%s:%d: rank %d of %d: does not hold: %s\n", file, line,
                world_rank(c->world), world_size(c->world), what);
}

/* Count a check that does not hold on this rank, and print the first five of them. */
#define CHECK(c, holds) check_at(c, (holds) != 0, #holds, __FILE__, __LINE__)

/* Start HDF5 and the world.  Returns 0, or -1 with the reason on stderr.  Collective. */
static inline int checks_start(struct checks *c)
{
    struct error err = {0};
    h5_setup();
    if (!world_start(&c->world, &c->mem, &err))
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

/* Stop the world.  Returns the exit status of the program: 0 if all checks held on all ranks and
 * all memory was freed.  Collective. */
static inline int checks_finish(struct checks *c)
{
    double failed = c->failed;
    world_all_reduce(c->world, &failed, 1, WORLD_SUM);
    world_stop(c->world);
    if (c->mem.blocks)
        fprintf(stderr, "%lld counted blocks were not freed\n", (long long)c->mem.blocks);
    return failed > 0 || c->mem.blocks;
}

#endif
