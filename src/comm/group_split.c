/* group_split.c - see group.h: who is in which group costs a single small all-gather. */
#include <stdlib.h>

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
    struct choice mine = {color, key, world_rank(world)}, *all = malloc(ranks * sizeof *all);
    int *members = malloc(ranks * sizeof *members);
    int rc = all && members ? 0 : error_set(err, "out of memory: group %s", name);
    *group = NULL;
    if (world_agree(world, rc, err))
        goto fail;
    world_all_gather(world, all, &mine, sizeof mine);
    int size = pick(all, world_size(world), color);
    for (int i = 0; i < size; i++)
        members[i] = all[i].rank;
    rc = group_of(group, world, members, size, name, err);
    if (world_agree(world, rc, err))
        goto fail;
    free(all);
    free(members);
    return 0;
fail:
    free(all);
    free(members);
    group_destroy(*group);
    *group = NULL;
    return -1;
}
