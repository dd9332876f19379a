/* attention_memory.h - what a GPU's memory has left for attention's backward.
 *
 * A reproducible backward keeps the gradients of all scores and runs in slices of some heads: with
 * more scratch it is faster, in the same bits (tests/bench/attention_rate, on an H100, in slices of
 * up to 2^31 scores, which is the most that one has).  So it may have what is left.
 */
#ifndef TRIREME_PLAN_ATTENTION_MEMORY_H
#define TRIREME_PLAN_ATTENTION_MEMORY_H

#include "plan/report.h"

/* Return the bytes for struct device's attention_bytes where train.attention_bytes is 0: what a
 * rank that needs need_bytes of device memory leaves of free_bytes, but for a sixteenth; 0 where
 * that is no more than DEVICE_ATTENTION_BYTES, and where no such backward is made.  Not collective.
 */
size_t attention_memory(const struct config *config, size_t need_bytes, size_t free_bytes);

/* Set the attention_bytes of a report that has a GPU's memory (report_set_gpu_memory()): what
 * training takes of that beside the plan; 0 where it takes nothing, or where that cannot be
 * planned. threads: as given to report_make().  Not collective. */
void attention_memory_note(struct report *report, int threads);

#endif
