/* doctor_report.c - see doctor_report.h. */
#include "doctor/doctor_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    size_t used = strlen(d->problems);
    va_list args;
    va_start(args, fmt);
    vsnprintf(d->problems + used, sizeof d->problems - used, fmt, args);
    va_end(args);
    used = strlen(d->problems);
    if (used + 1 < sizeof d->problems)
        strcpy(d->problems + used, "\n");
}
