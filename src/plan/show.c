/* show.c - see show.h. */
#include "plan/show.h"

#include <string.h>

const char *show_bytes(double bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, size, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

void show_wrapped(FILE *out, int column, int indent, const char *text)
{
    int fresh = 1; /* nothing was printed in this line yet */
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (!fresh && column + 1 + word > SHOW_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            fresh = 1;
        }
        column += fprintf(out, "%s%.*s", fresh ? "" : " ", word, text);
        fresh = 0;
        text += word;
        text += *text == ' ';
    }
    fputc('\n', out);
}
