/* dropout.h - the random words of dropout on the CPU; see struct dropout_mask. */
#ifndef TRIREME_DEVICE_CPU_DROPOUT_H
#define TRIREME_DEVICE_CPU_DROPOUT_H

#include "base/philox.h"
#include "device/ops.h"

/* The counter of a plane and a sequence's sample, to whose words 0 and 1 column and row are put. */
static inline struct philox4 dropout_counter(const struct dropout_mask *m, int64_t sequence,
                                             int64_t plane)
{
    const uint32_t *sample = m->samples + 2 * sequence;
    return (struct philox4){{0, 0, sample[0], sample[1] | (uint32_t)plane << 16}};
}

/* The four words of columns 4 * block to 4 * block + 3 of a row. */
static inline struct philox4 dropout_words(const struct dropout_mask *m, struct philox4 counter,
                                           uint32_t row, uint32_t block)
{
    counter.v[0] = block;
    counter.v[1] = row;
    return philox(counter, (uint32_t)m->key, (uint32_t)(m->key >> 32));
}

#endif
