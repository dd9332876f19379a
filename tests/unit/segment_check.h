/* segment_check.h - what tests of segments share. */
#ifndef TRIREME_TESTS_UNIT_SEGMENT_CHECK_H
#define TRIREME_TESTS_UNIT_SEGMENT_CHECK_H

#include "tests/unit/rig.h"

/* Within a segment nothing is overwritten that is still needed. */
void segment_check_lifetimes(const struct session *session, const struct segment *segment);

/* Run all pieces, without exchanges: that is what a segment means in groups of one. */
int segment_check_run(const struct segment *segment, const struct flat *const *flat,
                      struct device *device, void *const *base, uint64_t accumulate,
                      struct error *err);

#endif
