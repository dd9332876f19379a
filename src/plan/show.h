/* show.h - how plans write numbers for people. */
#ifndef TRIREME_PLAN_SHOW_H
#define TRIREME_PLAN_SHOW_H

#include <stddef.h>
#include <stdio.h>

enum { SHOW_COLUMNS = 100 }; /* what a plan prints is never wider */

/* Write bytes to text as "28.21 GiB"; returns text. */
const char *show_bytes(double bytes, char *text, size_t size);

/* Print text, broken between words; lines after the first are indented.  column is where the first
 * line begins. */
void show_wrapped(FILE *out, int column, int indent, const char *text);

#endif
