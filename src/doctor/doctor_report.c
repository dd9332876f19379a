/* doctor_report.c - printing facts and collecting problems; see doctor_report.h. */
#include "doctor/doctor_report.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

void doctor_fact(const struct doctor *d, const char *name, const char *fmt, ...)
{
    va_list args;
    if (!d->prints)
        return;
    printf("  %-18s ", name);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

void doctor_problem(struct doctor *d, const char *fmt, ...)
{
    char problem[PROBLEMS_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(problem, sizeof problem, fmt, args);
    va_end(args);
    text_append(d->problems, sizeof d->problems, "%s\n", problem);
}
