/* step_svg.h - a forecast step as a picture: an SVG file without scripts, which browsers show. */
#ifndef TRIREME_PLAN_STEP_SVG_H
#define TRIREME_PLAN_STEP_SVG_H

#include <stdio.h>

#include "base/error.h"
#include "simulate/record.h"

/* Write the picture: ranks down, time across; for each rank a row of what its compute stream does,
 * with gaps in which it waits, and below it a narrow row for each other stream.  What is narrower
 * than a pixel is drawn together with what follows it, where that is of the same kind. */
void step_svg_print(const struct record *record, const char *heading, FILE *out);

/* Write the picture to a file.  Returns 0, or -1 with err set. */
int step_svg_write(const struct record *record, const char *heading, const char *path,
                   struct error *err);

#endif
