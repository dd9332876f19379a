/* report_pipeline.h - of a plan: what each rank of the pipeline axis has, and its schedule. */
#ifndef TRIREME_PLAN_REPORT_PIPELINE_H
#define TRIREME_PLAN_REPORT_PIPELINE_H

#include "plan/report.h"

/* Print a table with a line for each rank of the pipeline axis, and how long ranks wait; nothing
 * where there is no pipeline. */
void report_pipeline_print(const struct report *report, FILE *out);

/* Add the member "pipeline" to a plan: an array of what the lines of the table have. */
void report_pipeline_json(const struct report *report, struct js *to);

/* Write the schedule to a file: as text that parallel.schedule=FILE.csv reads; as a picture.
 * Return 0, or -1 with err set: the file cannot be written; of the text, its name does not end in
 * .csv. */
int report_pipeline_csv(const struct report *report, const char *path, struct error *err);
int report_pipeline_svg(const struct report *report, const char *path, struct error *err);

#endif
