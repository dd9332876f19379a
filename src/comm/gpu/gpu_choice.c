/* gpu_choice.c - two ranks with one GPU, in a list of all ranks.
 *
 * Sorted by node, GPU and rank, the ranks of one GPU follow one another, lowest first.  Every rank
 * of the job looks: with 65,536 of them, to compare each with each would take seconds.
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

/* All point into one list, in rank order. */
static int compare(const void *one, const void *other)
{
    const struct gpu_choice *a = *(const struct gpu_choice *const *)one;
    const struct gpu_choice *b = *(const struct gpu_choice *const *)other;
    int differ = compare_gpus(a, b);
    return differ ? differ : (a > b) - (a < b);
}

/* Of the ranks that follow one that has the same GPU, the lowest is the second of its GPU. */
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
