/* schedule_svg.h - a schedule as a picture: an SVG file without scripts, which browsers show. */
#ifndef TRIREME_PLAN_SCHEDULE_SVG_H
#define TRIREME_PLAN_SCHEDULE_SVG_H

#include <stdio.h>

#include "simulate/timeline.h"

/* Write the picture: ranks down, time across; a box for each action, a line for each message
 * between ranks, at the right the share of the time that each rank waits.  name: of the schedule,
 * for the heading.  The timeline's costs are those of timeline_costs(), which the caption explains.
 */
void schedule_svg_print(const struct timeline *timeline, const char *name, FILE *out);

#endif
