/* machine_fields.h - the keys of a machine in a file, and where each is in struct machine. */
#ifndef TRIREME_SIMULATE_MACHINE_FIELDS_H
#define TRIREME_SIMULATE_MACHINE_FIELDS_H

#include "base/error.h"
#include "simulate/machine.h"
#include "simulate/machine_quantity.h"

enum machine_field_type {
    MACHINE_FIELD_TEXT,   /* char [bytes] */
    MACHINE_FIELD_SWITCH, /* int, 0 or 1: false or true */
    MACHINE_FIELD_COUNT,  /* int */
    MACHINE_FIELD_BYTES,  /* size_t */
    MACHINE_FIELD_REAL,   /* double */
};

struct machine_field {
    const char *name; /* dotted, where it is in a group: "node.latency" */
    enum machine_field_type type;
    enum machine_quantity quantity;
    size_t offset, bytes; /* in struct machine */
    double least, most, initial;
    int needed; /* has to be given, by the machine or by the one that it is like */
};

enum { MACHINE_FIELDS_MOST = 64 };

extern const struct machine_field machine_fields[]; /* groups' fields side by side */
extern const int machine_field_count;

/* The tables' names and columns: "products" [dtype, kind, m, n, k, flops_per_s], "ops" [name,
 * dtype, size, rate], "transfers" [kind, ranks, nodes, bytes, seconds]. */
extern const char *const machine_product_kinds[PRODUCT_KINDS];
extern const char *const machine_transfer_kinds[MACHINE_TRANSFERS];

/* The text of a field, as a file has it, in text of so many bytes: MACHINE_TEXT or more. */
const char *machine_field_text(const struct machine *machine, const struct machine_field *field,
                               char *text, size_t size);

/* Put a value in.  Returns 0, or -1 with err saying what it should be. */
int machine_field_set(struct machine *machine, const struct machine_field *field, const char *text,
                      struct error *err);

#endif
