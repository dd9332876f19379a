/* node_share.c - the ranks of each node map one another's blocks (node_memory.h). */
#include <stdlib.h>

#include "base/array.h"
#include "comm/node_memory.h"
#include "comm/transport.h"

int node_memory_share(struct world *world, const void *memory, const void *sharer)
{
    if (!world || world->size < 2)
        return 0;
    struct node_share s = {0};
    struct node_memory_offer mine = node_memory_offer(world, memory);
    struct node_memory_offer *offer = array_make((size_t)world->size, sizeof *offer);
    double all = 1;
    int any = 0;
    world_all_gather(world, offer, &mine, sizeof mine);
    for (int rank = 0; rank < world->size; rank++) {
        all = all != 0 && offer[rank].is_made;
        any = any || offer[rank].bytes;
    }
    if (all != 0 && any)
        all = !node_memory_map(world, &s, offer);
    world_all_reduce(world, &all, 1, WORLD_MIN);
    s.sharer = sharer;
    if (all != 0 && any)
        node_memory_publish(world, memory, &s, offer);
    else
        node_memory_discard(&s);
    free(offer);
    return all != 0;
}
