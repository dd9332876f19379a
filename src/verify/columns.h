/* columns.h - which columns of a value a rank has, where it has own ones.
 *
 * They are those of one matrix, or of several that are stacked, each of which is divided:
 *
 *   q k v | q k v      on two ranks, of three matrices
 *   q q k | k v v      of one matrix of that size, which is something else
 *
 * An op that adds or multiplies two values must find the same columns of the same tensors in both.
 * An op that reads stacked tensors each for another purpose (a gate and what goes through it;
 * queries, keys and values) must find each of them divided by itself.
 */
#ifndef TRIREME_VERIFY_COLUMNS_H
#define TRIREME_VERIFY_COLUMNS_H

#include "graph/op.h"

/* The rows or columns, whichever are divided, of so many tensors of a parameter. */
struct columns {
    const struct graph_param *param;
    int first, tensors; /* from that tensor on */
    int64_t packed; /* so many key heads, and as many value heads, stand after the first tensor's
                       heads, which read them (op_heads.c); 0: none */
};

/* Return the index, in the first whole tensor, of the first row or column that the rank has. */
int64_t columns_start(const struct columns *columns);

/* All of a divided parameter. */
struct columns columns_of(const struct graph_param *param);
/* Those of the first tensor alone. */
struct columns columns_first(const struct columns *columns);
/* Those of the others, or the keys and values that are packed after it. */
struct columns columns_others(const struct columns *columns);

/* Are they the same columns of tensors of the same size? */
int columns_equal(const struct columns *a, const struct columns *b);

/* Are `matrix`, tensor by tensor, those columns that an adapter adds to? */
int columns_are_of(const struct columns *columns, const struct columns *matrix,
                   const struct graph_adapter *adapted);

/* Are they one tensor's, of `whole` columns, from column `first` on? */
int columns_are_at(const struct columns *columns, int64_t first, int64_t whole);

/* Are they heads of one tensor, those whose keys attrs packs? */
int columns_are_packed(const struct columns *columns, const struct op_attrs *attrs);

/* Are they two tensors divided alike, a gate and what goes through it? */
int columns_are_halves(const struct columns *columns);

/* Are they the heads that attrs says?  Queries, keys and values (those of them that attrs gives the
 * op) must each be one tensor, of which the rank has whole heads, as many as attrs says.  Keys and
 * values must be the same heads, and queries the heads that belong to these keys.  more: the keys
 * and values, where they are not stacked after the queries; NULL: they are, or there are none. */
int columns_are_heads(const struct columns *columns, const struct columns *more,
                      const struct op_attrs *attrs);

#endif
