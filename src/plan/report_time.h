/* report_time.h - how long a step and a run take, where the machine's speeds are known. */
#ifndef TRIREME_PLAN_REPORT_TIME_H
#define TRIREME_PLAN_REPORT_TIME_H

#include "plan/report.h"

/* Nothing where the report has no forecast. */
void report_time_print(const struct report *report, FILE *out);

/* Add member "forecast". */
void report_time_json(const struct report *report, struct js *to);

/* "412 ms", "3.5 s", "2.1 h", "12 days" into text; returns text. */
const char *report_time_text(double seconds, char text[32]);

#endif
