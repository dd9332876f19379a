/* group_split.c - groups by color and key, as MPI_Comm_split() makes them: all ranks gather the
 * colors and keys of all, and each sorts out who is in its group.
 */
#include <stdlib.h>

#include "base/array.h"
#include "comm/transport.h"

struct choice {
    int color, key, rank;
};

static int by_key(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Move the ranks of one color to the front, in order.  Returns their number. */
static int pick(struct choice *choices, int count, int color)
{
    int picked = 0;
    for (int i = 0; i < count; i++)
        if (choices[i].color == color)
            choices[picked++] = choices[i];
    qsort(choices, (size_t)picked, sizeof *choices, by_key);
    return picked;
}

int group_split(struct group **group, struct world *world, int color, int key, const char *name,
                struct error *err)
{
    size_t ranks = (size_t)world_size(world);
    struct choice mine = {color, key, world_rank(world)}, *all = array_make(ranks, sizeof *all);
    int *members = array_make(ranks, sizeof *members);
    *group = NULL;
    world_all_gather(world, all, &mine, sizeof mine);
    int size = pick(all, world_size(world), color);
    for (int i = 0; i < size; i++)
        members[i] = all[i].rank;
    int rc = world_agree(world, group_of(group, world, members, size, name, err), err);
    free(all);
    free(members);
    if (rc) {
        group_destroy(*group);
        *group = NULL;
    }
    return rc;
}
