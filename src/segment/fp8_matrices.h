/* fp8_matrices.h - which of a model's matrices are multiplied in fp8, where precision asks for it:
 * those whose sides, a rank's part of them, a GPU takes (graph/build.c).
 */
#ifndef TRIREME_SEGMENT_FP8_MATRICES_H
#define TRIREME_SEGMENT_FP8_MATRICES_H

#include "segment/units.h"

enum { FP8_NOTE = 160 };

/* Refuse a model with precision fp8 none of whose matrices is multiplied in it.  Returns 0, or -1
 * with err set. */
int fp8_matrices_check(const struct units *units, struct error *err);

/* " in 14 of 28 matrices (not attn.q, 60 x 64)" where some are multiplied in bf16 instead; "" where
 * all are in fp8, or the model's are not to be.  Returns note. */
const char *fp8_matrices_note(const struct units *units, char note[FP8_NOTE]);

#endif
