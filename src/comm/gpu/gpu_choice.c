/* gpu_choice.c - find two ranks that have the same GPU, in a list of all ranks.
 *
 * The list is sorted by node, GPU and rank, so that the ranks of one GPU are neighbours, the lowest
 * first.  Every rank of the job runs this search; comparing each rank with each other one would
 * take seconds in a job of 65,536 ranks.
 */
#include "comm/gpu/gpu_choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int compare_gpus(const struct gpu_choice *a, const struct gpu_choice *b)
{
    return a->node != b->node ? (a->node > b->node) - (a->node < b->node)
                              : strcmp(a->gpu.uuid, b->gpu.uuid);
}

/* Compare two entries of the sorted list for qsort(): by node, GPU and rank.  The entries point
 * into one array in rank order, so the lower address is the lower rank. */
static int compare(const void *one, const void *other)
{
    const struct gpu_choice *a = *(const struct gpu_choice *const *)one;
    const struct gpu_choice *b = *(const struct gpu_choice *const *)other;
    int differ = compare_gpus(a, b);
    return differ ? differ : (a > b) - (a < b);
}

/* The lowest rank whose GPU a lower rank has too is the second rank of that GPU in the sorted list:
 * so its left neighbour there is the first one. */
int gpu_choice_find_shared(const struct gpu_choice *all, int size, int ranks[2])
{
    const struct gpu_choice **sorted = array_make((size_t)size, sizeof *sorted);
    int found = 0;
    for (int r = 0; r < size; r++)
        sorted[r] = &all[r];
    qsort(sorted, (size_t)size, sizeof *sorted, compare);
    for (int i = 1; i < size; i++) {
        if (compare_gpus(sorted[i - 1], sorted[i]) || (found && sorted[i] - all > ranks[1]))
            continue;
        ranks[0] = (int)(sorted[i - 1] - all);
        ranks[1] = (int)(sorted[i] - all);
        found = 1;
    }
    free(sorted);
    return found;
}
