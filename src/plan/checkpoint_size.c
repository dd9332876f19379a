/* checkpoint_size.c - see checkpoint_size.h.
 *
 * With checkpoint.keep=2 four may lie there at once, while the newest is written: pruning spares,
 * beside the two newest, the one after which the training loss was lowest:
 *
 *     step-10 (lowest loss)   step-30   step-40   step-50.partial
 *
 * Those of earlier starts take their space already. */
#include "plan/checkpoint_size.h"

#include "base/round.h"
#include "segment/optimizer.h"

int64_t checkpoint_size_bytes(const struct config *config, const struct layout *layout,
                              const struct units *units)
{
    size_t weight = dtype_bytes(layout->dtype);
    size_t master = layout->no_masters ? weight : sizeof(float);
    int refers = layout_refers_to_folder(config);
    size_t bytes = 0;
    for (int f = 0; f < units->flats; f++) {
        const struct flat *flat = &units->flat[f];
        const struct optimizer *optimizer = optimizer_row(flat->optimizer);
        int64_t elems = flat_whole_elems(flat);
        size_t kept = flat->is_nf4 ? sizeof(float) : weight;
        size_t frozen = refers && !flat->is_frozen_adapter ? 0 : kept;
        bytes += (size_t)elems * (flat->trained ? master : frozen);
        for (int k = 0; flat->trained && k < optimizer->slots; k++)
            bytes += optimizer_slot_bytes(optimizer, k, elems, layout->optimizer_dtype);
    }
    return (int64_t)bytes;
}

int64_t checkpoint_size_more(int64_t done, int64_t steps, int64_t every, int64_t keep,
                             int64_t there)
{
    if (done >= steps)
        return 0;
    int64_t saves = every ? (steps - 1) / every - done / every + 1 : 1;
    return there > keep ? 1 : min_i64(saves, keep + 1 - there);
}

int64_t checkpoint_size_more_of_run(const struct config *config, int64_t done, int64_t steps,
                                    int64_t there)
{
    int64_t every = config->checkpoint.every, evaluated = config->train.eval_every;
    if (config->checkpoint.keep_best && evaluated && (!every || evaluated < every))
        every = evaluated; /* each evaluation may be the best */
    /* of the lowest losses, training and data.valid; and before the decay of a schedule wsd */
    int64_t spared = 1 + config->checkpoint.keep_best +
                     (config->checkpoint.every && config->train.schedule >= SCHEDULE_WSD);
    return checkpoint_size_more(done, steps, every, config->checkpoint.keep + spared, there);
}
