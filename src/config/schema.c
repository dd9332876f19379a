/* schema.c - every key of the configuration, one row each, in the files schema_*.c.  Parsing,
 * checking, config --show, the man page and the effective config.yaml are all made from these rows.
 */
#include "config/schema_rows.h"

/* In the order in which keys are shown. */
static const struct key_table *const tables[] = {&schema_model, &schema_train, &schema_parallel,
                                                 &schema_run};
enum { TABLES = sizeof tables / sizeof tables[0] };

const struct key *key_at(int i)
{
    for (int t = 0; t < TABLES; i -= tables[t++]->count)
        if (i < tables[t]->count)
            return &tables[t]->keys[i];
    return NULL;
}

int key_count(void)
{
    int count = 0;
    for (int t = 0; t < TABLES; t++)
        count += tables[t]->count;
    return count;
}
