/* machine_table.h - what the tables of a machine say of a size: between two rows a line in the
 * logarithms of size and rate, so that a rate between grows or falls from row to row, and so does a
 * time where it does in the rows.  Before the first row and after the last the rate is that row's.
 */
#ifndef TRIREME_SIMULATE_MACHINE_TABLE_H
#define TRIREME_SIMULATE_MACHINE_TABLE_H

#include "simulate/machine.h"

/* Operations per second of a product; 0: the table has no rows of its format and kind.  below: is
 * one of m, n and k less than in any row? */
double machine_table_product(const struct machine *machine, enum dtype dtype,
                             enum machine_product_kind kind, int64_t m, int64_t n, int64_t k,
                             int *below);

/* The rate of an op; 0: no row has its name and format.  DTYPE_COUNT: rows of any format. */
double machine_table_op(const struct machine *machine, const char *name, enum dtype dtype,
                        double size, int *below);

/* The rows of a kind of transfer whose group is nearest to one of so many ranks and nodes: within a
 * node for one within a node, over several nodes for one over several.  The group is returned in
 * ranks and nodes.  Returns its seconds, which before the first row are the first row's; 0: none.
 */
double machine_table_transfer(const struct machine *machine, enum machine_transfer_kind kind,
                              int *ranks, int *nodes, double bytes);

#endif
