/* svg.h - what pictures of plans have in common: frame, text, a legend, a scale.  Files have no
 * scripts and refer to nothing; browsers show them. */
#ifndef TRIREME_PLAN_SVG_H
#define TRIREME_PLAN_SVG_H

#include <stdio.h>

/* In these functions out is the file that is written, and lengths are pixels. */

/* Write the beginning of a file, to its white ground; and the end.  styles: CSS of the picture's
 * own classes.  All pictures have these: text h is a heading, e ends at its x, c is centred and
 * small; n is what waits, a the axis. */
void svg_begin(FILE *out, int width, int height, const char *styles);
void svg_end(FILE *out);

/* Write the text that a browser shows for the picture, or under the pointer. */
void svg_title(FILE *out, const char *text);

/* Write text at x, y; attributes begin with a blank, or are "". */
void svg_text(FILE *out, double x, int y, const char *attributes, const char *text);

/* Write a sign of the legend, 18 wide and 13 high, and what it means; *x moves past it. */
void svg_key(FILE *out, double *x, int y, const char *sign, const char *meaning);

/* Make a sign, a box of a style, in text; returns text. */
const char *svg_box(const char *style, char text[80]);

/* Write the scale under rows that are `width` wide from `left`: 0 to last, with numbers in units of
 * per_unit. */
void svg_scale(FILE *out, int left, int width, int bottom, double last, double per_unit,
               const char *unit);

#endif
