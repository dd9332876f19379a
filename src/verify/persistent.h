/* persistent.h - do the buffers that outlive a step have their sizes and places? */
#ifndef TRIREME_VERIFY_PERSISTENT_H
#define TRIREME_VERIFY_PERSISTENT_H

#include "program/program.h"

/* Of the rank's state: what is kept of a flat has as many elements, in the format, as the flat and
 * its optimizer say; gradients of different flats do not overlap, though they may be views of one
 * buffer; the step's sums have each of their parts at its place (state.h).  Returns 0, or -1 with
 * err naming the buffer ("wrong size", "share memory", "wrong sums"). */
int persistent_check(const struct program *program, struct error *err);

#endif
