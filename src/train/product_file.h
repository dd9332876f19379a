/* product_file.h - the file of product_table.h. */
#ifndef TRIREME_TRAIN_PRODUCT_FILE_H
#define TRIREME_TRAIN_PRODUCT_FILE_H

#include "train/product_table.h"

/* Write a table to the file at path, replaced whole or not at all.  library: as
 * device_products_library() says.  Returns 0, or -1 with err set. */
int product_file_write(const struct product_table *table, const char *library, const char *path,
                       struct error *err);

/* Read the file at path into an empty table, which stays empty where there is no file.  Returns 0,
 * or -1 with err set and the table empty: the file is damaged, or of another GPU or library. */
int product_file_read(struct product_table *table, const char *library, const char *path,
                      struct error *err);

#endif
