/* show.c - see show.h. */
#include "plan/show.h"

#include <stdio.h>

const char *show_bytes(double bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, size, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}
