/* svg.h - what pictures of plans have in common: frame, text, a legend, a scale.  Files have no
 * scripts and refer to nothing; browsers show them. */
#ifndef TRIREME_PLAN_SVG_H
#define TRIREME_PLAN_SVG_H

#include <stdio.h>

/* The beginning of a file, to its white ground, and the end.  styles: beside those that all have,
 * which are of text (h heading, e ends at its x, c centred and small), n what waits, a the axis. */
void svg_begin(FILE *out, int width, int height, const char *styles);
void svg_end(FILE *out);

/* The text that a browser shows for the picture, or under the pointer. */
void svg_title(FILE *out, const char *text);

/* Text at x, y; attributes begin with a blank, or are "". */
void svg_text(FILE *out, double x, int y, const char *attributes, const char *text);

/* A sign of the legend, 18 wide and 13 high, and what it means; *x moves behind it. */
void svg_key(FILE *out, double *x, int y, const char *sign, const char *meaning);

/* A sign: a box of a style. */
const char *svg_box(const char *style, char text[80]);

/* The scale under rows `width` wide from `left`: 0 to last, with numbers of last / per_unit. */
void svg_scale(FILE *out, int left, int width, int bottom, double last, double per_unit,
               const char *unit);

#endif
