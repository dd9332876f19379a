/* columns.h - which columns of a value a rank has, where it has own ones.
 *
 * They are those of one matrix, or of several that are stacked, each of which is divided:
 *
 *   q k v | q k v      on two ranks, of three matrices
 *   q q k | k v v      of one matrix of that size, which is something else
 *
 * So what reads own columns must read those of the same tensors, or of each by itself.
 */
#ifndef TRIREME_VERIFY_COLUMNS_H
#define TRIREME_VERIFY_COLUMNS_H

#include "graph/op.h"

/* The rows or columns, whichever are divided, of the first so many tensors of a parameter. */
struct columns {
    const struct graph_param *param;
    int parts;
};

/* All of a divided parameter. */
struct columns columns_of(const struct graph_param *param);

/* Are they the same columns of tensors of the same size? */
int columns_equal(const struct columns *a, const struct columns *b);

/* Are they two tensors divided alike, a gate and what goes through it? */
int columns_are_halves(const struct columns *columns);

/* Are they the heads that attrs says: queries, keys and values, where the op has them, of a tensor
 * each and whole heads, keys and values divided alike, and query heads as the key heads that they
 * go with?  more: keys and values that are not behind the queries; NULL: none. */
int columns_are_heads(const struct columns *columns, const struct columns *more,
                      const struct op_attrs *attrs);

#endif
