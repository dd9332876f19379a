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

const char *show_time(double seconds, char text[32])
{
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {{.from = 2 * 86400, .unit = 86400, .name = "days"},
                 {.from = 2 * 3600, .unit = 3600, .name = "h"},
                 {.from = 2 * 60, .unit = 60, .name = "min"},
                 {.from = 1, .unit = 1, .name = "s"},
                 {.from = 0, .unit = 1e-3, .name = "ms"}};
    int i = 0;
    while (seconds < units[i].from)
        i++;
    double value = seconds / units[i].unit;
    snprintf(text, 32, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[i].name);
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
