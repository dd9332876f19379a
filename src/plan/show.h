/* show.h - how plans, and reports of runs, write numbers for people. */
#ifndef TRIREME_PLAN_SHOW_H
#define TRIREME_PLAN_SHOW_H

#include <stddef.h>
#include <stdio.h>

enum { SHOW_COLUMNS = 100 }; /* what a plan prints is never wider */

/* Write bytes to text as "28.21 GiB"; returns text. */
const char *show_bytes(double bytes, char *text, size_t size);

/* Write a time to text as "412 ms", "3.50 s", "2.10 h", "12.0 days"; returns text. */
const char *show_time(double seconds, char text[32]);

/* Print text, broken between words; lines after the first are indented.  column is where the first
 * line begins. */
void show_wrapped(FILE *out, int column, int indent, const char *text);

#endif
