/* product_table.h - the algorithms by which a run's GPUs multiply matrices: chosen by time before
 * the first step, the same on all ranks, kept in run.dir/products.json (train.tune_products).
 *
 * Another algorithm gives other last bits of a sum.  So the lowest rank that has a product times it
 * and all take what it chose: with data parallelism rank 0 chooses all, with pipeline stages each
 * stage its own.  A run that goes on reads the file and times only what is not in it, as on another
 * layout.  A file of another GPU or another version of the library, or a damaged one, is warned of,
 * and all products are timed again.
 */
#ifndef TRIREME_TRAIN_PRODUCT_TABLE_H
#define TRIREME_TRAIN_PRODUCT_TABLE_H

#include "device/product.h"

#define PRODUCTS_FILE "products.json"

struct session;

/* Zero-initialised: empty. */
struct product_table {
    struct product_choice *choice; /* the same on all ranks */
    int count, capacity;
    int is_new; /* 1: some of it is not in the file */
};

/* What becomes of a product that is not in the file. */
enum product_table_missing {
    PRODUCT_IS_LEFT, /* it has the library's first suggestion */
    PRODUCT_IS_TIMED
};

/* Choose the algorithms, by the file or by time, and let the session's device take them.  To be
 * called between executor_allocate() and executor_prepare().  Does nothing without
 * train.tune_products, and on CPUs.  Collective over the session's world.  Returns 0, or -1 on all
 * ranks with err set. */
int product_table_choose(struct product_table *table, struct session *session,
                         enum product_table_missing missing, struct error *err);

/* Write the table to run.dir/products.json, if something in it is new.  For rank 0 alone.  Returns
 * 0, or -1 with err set and the file as it was. */
int product_table_write(struct product_table *table, const struct session *session,
                        struct error *err);

void product_table_free(struct product_table *table);

#endif
