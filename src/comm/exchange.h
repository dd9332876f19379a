/* exchange.h - helpers of the kinds of operation (exchange.c, exchange_read.c). */
#ifndef TRIREME_COMM_EXCHANGE_H
#define TRIREME_COMM_EXCHANGE_H

#include "comm/transport.h"

/* Returns the bytes of an element. */
static inline int64_t size_of(const struct operation *op)
{
    return (int64_t)dtype_bytes(op->dtype);
}

/* Returns the number of members beside this one. */
static inline int others(const struct operation *op)
{
    return op->group->size - 1;
}

/* Set the partners of transfer x: this member sends to the one `distance` members further on, and
 * receives from the one as far back. */
static inline void partners(const struct operation *op, int distance, struct transfer *x)
{
    int size = op->group->size, rank = op->group->rank;
    x->to = (rank + distance) % size;
    x->source = (rank + size - distance) % size;
}

/* Returns where this member reads what another one gives to it; NULL: that comes by messages. */
static inline const char *read_at(const struct operation *op, int member)
{
    return op->kind->by_messages ? op->group->area[op->queue].reads[member].at : NULL;
}

/* Set at and is_read of transfer x, whose partners are set: it is the part from_bytes after the
 * first that the partners give to each other. */
static inline void exchange_read(const struct operation *op, int64_t from_bytes, struct transfer *x)
{
    const char *at = read_at(op, x->source);
    x->at = at ? at + from_bytes : NULL;
    x->is_read = op->kind->by_messages && op->group->area[op->queue].reads[x->to].own != 0;
}

#endif
