/* report_units.h - what each unit of a model takes in a step; for report_forecast.c alone. */
#ifndef TRIREME_PLAN_REPORT_UNITS_H
#define TRIREME_PLAN_REPORT_UNITS_H

#include "plan/report.h"

/* Set report->unit and report->units from the first rank's program, with the costs of
 * report->speeds. */
void report_units_fill(struct report *report, const struct forecast_request *request);

#endif
