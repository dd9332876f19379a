/* segment_check.h - checking and running segments. */
#ifndef TRIREME_TESTS_UNIT_SEGMENT_CHECK_H
#define TRIREME_TESTS_UNIT_SEGMENT_CHECK_H

#include "tests/unit/rig.h"

/* Check that no step of a segment overwrites what a later step reads. */
void segment_check_lifetimes(const struct session *session, const struct segment *segment);

/* Run all pieces of a segment without the exchanges between them, as in groups of one rank. Returns
 * 0, or -1 with err set. */
int segment_check_run(const struct segment *segment, const struct flat *const *flat,
                      struct device *device, void *const *base, uint64_t accumulate,
                      struct error *err);

#endif
