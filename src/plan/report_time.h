/* report_time.h - how long a step and a run take, where the machine's speeds are known. */
#ifndef TRIREME_PLAN_REPORT_TIME_H
#define TRIREME_PLAN_REPORT_TIME_H

#include "plan/report.h"

/* Print how long a step and the run take; nothing where the report has no forecast. */
void report_time_print(const struct report *report, FILE *out);

/* Add the same to a plan as the member "forecast". */
void report_time_json(const struct report *report, struct js *to);

#endif
