/* machine_quantity.h - numbers with units, as files of machines and options have them. */
#ifndef TRIREME_SIMULATE_MACHINE_QUANTITY_H
#define TRIREME_SIMULATE_MACHINE_QUANTITY_H

#include <stddef.h>

enum machine_quantity {
    QUANTITY_NUMBER,
    QUANTITY_BYTES,       /* "79.1 GiB" */
    QUANTITY_BYTES_PER_S, /* "3.35 TB/s", "400 Gb/s" (bits) */
    QUANTITY_FLOPS_PER_S, /* "312 Tflop/s" */
    QUANTITY_SECONDS,     /* "2.5 us" */
};

/* A finite number, and a unit of the quantity or none, into value.  Returns 0, or -1: it is none.
 */
int machine_quantity_read(enum machine_quantity quantity, const char *text, double *value);

/* A text that machine_quantity_read() makes the same value of, into text of so many
 * bytes, 40 or more.  Returns text. */
const char *machine_quantity_text(enum machine_quantity quantity, double value, char *text,
                                  size_t size);

/* For errors: "a number of bytes, such as 79.1 GiB". */
const char *machine_quantity_describe(enum machine_quantity quantity);

#endif
