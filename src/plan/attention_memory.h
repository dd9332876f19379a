/* attention_memory.h - what a GPU's memory has left for attention's backward.
 *
 * A reproducible backward keeps the gradients of all scores and runs in parts of some heads, whose
 * bits are the same in parts of any size (tests/bench/attention_rate): with more scratch it is
 * faster.  So it may have what the plan leaves.
 */
#ifndef TRIREME_PLAN_ATTENTION_MEMORY_H
#define TRIREME_PLAN_ATTENTION_MEMORY_H

#include "plan/report.h"

/* Bytes for struct device's attention_bytes on a GPU of device_bytes in all: what a rank's plan
 * leaves of them but for a sixteenth; train.attention_bytes where that is set; 0 where that is no
 * more than parts have in any case, and where nothing is known (device_bytes is 0, or what is wrong
 * with the configuration will be said by who plans it). Not collective. */
size_t attention_memory(const struct config *config, int ranks, int nodes, int threads,
                        size_t device_bytes);

/* Note in a report that was judged by a GPU's memory what training takes of it besides, by that. */
void attention_memory_note(struct report *report, int threads);

#endif
