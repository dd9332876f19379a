/* machine_quantity.c - see machine_quantity.h. */
#include "simulate/machine_quantity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of each quantity the units that are written come from the largest to the smallest; those that are
 * only read follow them. */
static const struct unit {
    const char *name;
    enum machine_quantity quantity;
    int only_read;
    double factor;
} units[] = {
    {.name = "GiB", .quantity = QUANTITY_BYTES, .factor = 0x1p30},
    {.name = "MiB", .quantity = QUANTITY_BYTES, .factor = 0x1p20},
    {.name = "KiB", .quantity = QUANTITY_BYTES, .factor = 0x1p10},
    {.name = "B", .quantity = QUANTITY_BYTES, .factor = 1},
    {.name = "TiB", .quantity = QUANTITY_BYTES, .only_read = 1, .factor = 0x1p40},
    {.name = "TB", .quantity = QUANTITY_BYTES, .only_read = 1, .factor = 1e12},
    {.name = "GB", .quantity = QUANTITY_BYTES, .only_read = 1, .factor = 1e9},
    {.name = "MB", .quantity = QUANTITY_BYTES, .only_read = 1, .factor = 1e6},
    {.name = "kB", .quantity = QUANTITY_BYTES, .only_read = 1, .factor = 1e3},
    {.name = "TB/s", .quantity = QUANTITY_BYTES_PER_S, .factor = 1e12},
    {.name = "GB/s", .quantity = QUANTITY_BYTES_PER_S, .factor = 1e9},
    {.name = "MB/s", .quantity = QUANTITY_BYTES_PER_S, .factor = 1e6},
    {.name = "B/s", .quantity = QUANTITY_BYTES_PER_S, .factor = 1},
    {.name = "kB/s", .quantity = QUANTITY_BYTES_PER_S, .only_read = 1, .factor = 1e3},
    {.name = "Tb/s", .quantity = QUANTITY_BYTES_PER_S, .only_read = 1, .factor = 1e12 / 8},
    {.name = "Gb/s", .quantity = QUANTITY_BYTES_PER_S, .only_read = 1, .factor = 1e9 / 8},
    {.name = "Mb/s", .quantity = QUANTITY_BYTES_PER_S, .only_read = 1, .factor = 1e6 / 8},
    {.name = "Tflop/s", .quantity = QUANTITY_FLOPS_PER_S, .factor = 1e12},
    {.name = "Gflop/s", .quantity = QUANTITY_FLOPS_PER_S, .factor = 1e9},
    {.name = "flop/s", .quantity = QUANTITY_FLOPS_PER_S, .factor = 1},
    {.name = "Pflop/s", .quantity = QUANTITY_FLOPS_PER_S, .only_read = 1, .factor = 1e15},
    {.name = "s", .quantity = QUANTITY_SECONDS, .factor = 1},
    {.name = "ms", .quantity = QUANTITY_SECONDS, .factor = 1e-3},
    {.name = "us", .quantity = QUANTITY_SECONDS, .factor = 1e-6},
    {.name = "ns", .quantity = QUANTITY_SECONDS, .factor = 1e-9},
};

enum { UNITS = sizeof units / sizeof units[0] };

int machine_quantity_read(enum machine_quantity quantity, const char *text, double *value)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number))
        return -1;
    while (*end == ' ')
        end++;
    if (!*end) {
        *value = number;
        return 0;
    }
    for (int i = 0; i < UNITS; i++)
        if (units[i].quantity == quantity && !strcmp(units[i].name, end)) {
            *value = number * units[i].factor;
            return isfinite(*value) ? 0 : -1;
        }
    return -1;
}

/* A number and a unit, with as many digits as give the value again; -1: none do. */
static int text_in(const struct unit *unit, double value, char *text, size_t size)
{
    double again;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, size, "%.*g%s%s", digits, value / (unit ? unit->factor : 1), unit ? " " : "",
                 unit ? unit->name : "");
        if (!machine_quantity_read(unit ? unit->quantity : QUANTITY_NUMBER, text, &again) &&
            again == value)
            return 0;
    }
    return -1;
}

const char *machine_quantity_text(enum machine_quantity quantity, double value, char *text,
                                  size_t size)
{
    const struct unit *unit = NULL;
    for (int i = 0; i < UNITS; i++)
        if (units[i].quantity == quantity && !units[i].only_read &&
            (!unit || fabs(value) < unit->factor))
            unit = &units[i];
    if (text_in(value == 0 ? NULL : unit, value, text, size))
        text_in(NULL, value, text, size);
    return text;
}

const char *machine_quantity_describe(enum machine_quantity quantity)
{
    static const char *const described[] = {
        [QUANTITY_NUMBER] = "a number",
        [QUANTITY_BYTES] = "a number of bytes, such as 79.1 GiB",
        [QUANTITY_BYTES_PER_S] = "bytes per second, such as 3.35 TB/s, or bits: 400 Gb/s",
        [QUANTITY_FLOPS_PER_S] = "operations per second, such as 312 Tflop/s",
        [QUANTITY_SECONDS] = "a time, such as 2.5 us",
    };
    return described[quantity];
}
