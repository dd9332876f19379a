/* svg.c - see svg.h. */
#include "plan/svg.h"

#include <math.h>
#include <string.h>

void svg_begin(FILE *out, int width, int height, const char *styles)
{
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\">\n",
            width, height, width, height);
    fprintf(out,
            "<style>text{font:12px sans-serif;fill:#222}.h{font-size:15px;font-weight:bold}\n"
            ".e{text-anchor:end}.c{text-anchor:middle;font-size:11px}\n"
            ".n{fill:#ececec}.a{stroke:#666;stroke-width:1}\n%s</style>\n",
            styles);
    fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
}

void svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

/* Write text between tags: what XML has a meaning for, and what is not ASCII, is replaced. */
static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        default: fputc(*text < ' ' || *text > '~' ? '?' : *text, out);
        }
}

void svg_title(FILE *out, const char *text)
{
    fputs("<title>", out);
    put_escaped(out, text);
    fputs("</title>", out);
}

void svg_text(FILE *out, double x, int y, const char *attributes, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%d\"%s>", x, y, attributes);
    put_escaped(out, text);
    fputs("</text>\n", out);
}

void svg_key(FILE *out, double *x, int y, const char *sign, const char *meaning)
{
    fprintf(out, "<g transform=\"translate(%.1f %d)\">%s</g>\n", *x, y, sign);
    svg_text(out, *x + 24, y + 11, "", meaning);
    *x += 24 + 7 * (double)strlen(meaning) + 16;
}

const char *svg_box(const char *style, char text[80])
{
    snprintf(text, 80, "<rect class=\"%s\" width=\"18\" height=\"13\"/>", style);
    return text;
}

/* 1, 2 or 5 times a power of ten: about an eighth of a length. */
static double step_of(double length)
{
    double power = pow(10, floor(log10(length / 8))), eighth = length / 8 / power;
    return power * (eighth < 1.5 ? 1 : eighth < 3.5 ? 2 : eighth < 7.5 ? 5 : 10);
}

void svg_scale(FILE *out, int left, int width, int bottom, double last, double per_unit,
               const char *unit)
{
    double step = step_of(last);
    fprintf(out, "<path class=\"a\" d=\"M%d %dH%d\"/>\n", left, bottom, left + width);
    for (double at = 0; at <= last; at += step) {
        char text[32];
        double x = left + at * width / last;
        fprintf(out, "<path class=\"a\" d=\"M%.1f %dv5\"/>\n", x, bottom);
        snprintf(text, sizeof text, "%g %s", at / per_unit, unit);
        svg_text(out, x, bottom + 18, " class=\"c\"", text);
    }
}
