/* schema_rows.h - how the files schema_*.c write their rows, a row for each key; for these alone.
 *
 * Each file has the groups of one subject: first the names that keys of a choice take, a list for
 * each, then the keys in the order in which they are shown.  schema.c has the order of the files.
 */
#ifndef TRIREME_CONFIG_SCHEMA_ROWS_H
#define TRIREME_CONFIG_SCHEMA_ROWS_H

#include "config/schema.h"

/* The first members of a row: KEY names the key after its field, NAMED_KEY otherwise. */
#define KEY(type, field, text) NAMED_KEY(#field, type, field, text)
#define NAMED_KEY(text, kind, field, value)                                     \
    .name = text, .type = KEY_##kind, .offset = offsetof(struct config, field), \
    .bytes = sizeof(((struct config *)0)->field), .initial = value

struct key_table {
    const struct key *keys;
    int count;
};

extern const struct key_table schema_model, schema_train, schema_parallel, schema_run;

#endif
