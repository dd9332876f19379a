/* owners.c - see owners.h.
 *
 * A flat is cut by bisection: for a bound on the cost of a range, ranges are filled from the first
 * tensor on; the least bound that makes no more ranges than ranks is found to a thousandth.
 */
#include "program/owners.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/program.h"
#include "segment/optimizer.h"
#include "segment/orthogonalize.h"

struct owners {
    const struct units *units;
    const struct layout *layout;
    struct flat_range **range; /* per flat, per member; NULL: its rule is not of matrices */
    double *load;              /* per rank of MESH_DATA: of the flats so far */
};

/* A range of tensors, being filled. */
struct cut {
    struct flat_range range;
    double cost;
};

static int data_members(const struct layout *layout)
{
    return mesh_members(&layout->shape, MESH_DATA);
}

unsigned owners_axes(const struct owners *owners, int flat)
{
    if (flat_is_sharded(&owners->units->flat[flat]))
        return owners->units->flat[flat].shard_axes;
    return data_members(owners->layout) > 1 ? MESH_DATA : 0;
}

int owners_count(const struct owners *owners, int flat)
{
    return mesh_members(&owners->layout->shape, owners_axes(owners, flat));
}

static double cost_of(const struct flat_tensor *tensor)
{
    return orthogonalize_flops(&(struct orthogonalize){
        .rows = tensor->box.whole[0], .cols = tensor->box.whole[1], .steps = 1});
}

/* Cut a flat so that no range costs more than bound, where one tensor does not.  Returns the number
 * of ranges; of the first `most` of them cut says what they are. */
static int cut_flat(const struct flat *flat, double bound, struct cut *cut, int most)
{
    int cuts = 0;
    double cost = 0;
    for (int t = 0; t < flat->tensors; t++) {
        const struct flat_tensor *tensor = &flat->tensor[t];
        int opens = t == 0 || cost + cost_of(tensor) > bound;
        cuts += opens;
        cost = (opens ? 0 : cost) + cost_of(tensor);
        if (cuts > most)
            continue;
        struct cut *last = &cut[cuts - 1];
        if (opens)
            last->range.start = tensor->offset;
        last->range.count = tensor->offset + tensor->elems - last->range.start;
        last->cost = cost;
    }
    return cuts;
}

/* The least bound for which a flat is cut into `ranks` ranges or fewer. */
static double least_bound(const struct flat *flat, struct cut *cut, int ranks)
{
    double least = 0, most = 0;
    for (int t = 0; t < flat->tensors; t++)
        most += cost_of(&flat->tensor[t]);
    while (most - least > 1e-3 * most) {
        double middle = (least + most) / 2;
        if (cut_flat(flat, middle, cut, ranks) <= ranks)
            most = middle;
        else
            least = middle;
    }
    return most;
}

static int by_cost(const void *a, const void *b)
{
    const struct cut *one = a, *other = b;
    if (one->cost != other->cost)
        return one->cost < other->cost ? 1 : -1;
    return one->range.start < other->range.start ? -1 : 1;
}

/* The member with the least so far, of those that own nothing of the flat. */
static int least_loaded(const struct owners *o, const struct flat_range *range, int members)
{
    int least = -1;
    for (int m = 0; m < members; m++)
        if (!range[m].count && (least < 0 || o->load[m] < o->load[least]))
            least = m;
    return least;
}

/* Choose the owners of flat f: its ranges, the most costly first, each go to the member with the
 * least load. */
static void divide(struct owners *o, int f)
{
    const struct flat *flat = &o->units->flat[f];
    int members = owners_count(o, f);
    struct cut *cut = array_make((size_t)members, sizeof *cut);
    int cuts = cut_flat(flat, least_bound(flat, cut, members), cut, members);
    qsort(cut, (size_t)cuts, sizeof *cut, by_cost);
    o->range[f] = array_make((size_t)members, sizeof *o->range[f]);
    for (int i = 0; i < cuts; i++) {
        int owner = least_loaded(o, o->range[f], members);
        o->range[f][owner] = cut[i].range;
        for (int rank = owner; rank < data_members(o->layout); rank += members)
            o->load[rank] += cut[i].cost; /* each replica does the same */
    }
    free(cut);
}

struct owners *owners_create(const struct units *units, const struct layout *layout)
{
    struct owners *o = array_make(1, sizeof *o);
    o->units = units;
    o->layout = layout;
    o->range = array_make((size_t)units->flats, sizeof *o->range);
    o->load = array_make((size_t)data_members(layout), sizeof *o->load);
    for (int f = 0; f < units->flats; f++)
        if (units->flat[f].trained && optimizer_row(units->flat[f].optimizer)->of_matrices)
            divide(o, f);
    return o;
}

struct flat_range owners_range(const struct owners *owners, int flat, int rank)
{
    return owners->range[flat][rank];
}

void owners_destroy(struct owners *owners)
{
    if (!owners)
        return;
    for (int f = 0; f < owners->units->flats; f++)
        free(owners->range[f]);
    free(owners->range);
    free(owners->load);
    free(owners);
}
