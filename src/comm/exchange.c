/* exchange.c - the kinds of operation as lists of transfers (see transport.h).
 *
 *   all-gather      Every member sends its pieces to every other member, straight into place.
 *                   Little data among many members goes in rounds, each of which doubles the
 *                   parts that a member has.
 *   all-to-all      As an all-gather, but a member sends a different part to each member.
 *   reduce-scatter  In a batch one piece of every shard goes from all members to its owner, which
 *                   adds the terms in rank order.  A batch is received while another is added up.
 *   all-reduce      As a reduce-scatter, whose shards are parts of the data; after each batch the
 *                   members gather its sums.  If the data are small, all members receive all terms
 *                   and add them up.
 *   broadcast       Pieces follow one another down a binary tree.
 *   message         Pieces follow one another.
 *
 * In its k-th transfer a member sends to the member k places further on, so that at any time all
 * members send to different ones.
 */
#include <string.h>

#include "base/round.h"
#include "base/stream_copy.h"
#include "comm/exchange.h"
#include "comm/sum.h"

enum { GATHER_PIECE_BYTES = 4 << 20, TREE_PIECE_BYTES = 1 << 20, MESSAGE_PIECE_BYTES = 64 << 20 };

/* Shards of so many bytes or more are stored past the caches, in which they would not stay until
 * the update. */
enum { STREAMED_BYTES = 256 << 10 };

/* Returns the elements of the piece that begins at element `first` of `all`; 0 after the last. */
static int64_t length_at(int64_t first, int64_t piece, int64_t all)
{
    return all - first < 0 ? 0 : all - first < piece ? all - first : piece;
}

/* Returns the slot that receives another member's term of a batch.  There are slots for two
 * batches: even ones and odd ones. */
static char *slot_at(const struct operation *op, int64_t batch, int member)
{
    const struct group *g = op->group;
    int64_t slot = (batch % 2) * others(op) + member - (member > g->rank);
    return g->area[op->queue].slots + slot * (int64_t)g->slot_bytes;
}

/* Returns the terms of a batch, which begins from_bytes after what members give to each other:
 * this member's is at own, the others' are in their slots or where they are read. */
static const char *const *terms_of(const struct operation *op, int64_t batch, const char *own,
                                   int64_t from_bytes)
{
    const struct group *g = op->group;
    const char **term = g->area[op->queue].term;
    for (int m = 0; m < g->size; m++)
        if (m == g->rank)
            term[m] = own;
        else
            term[m] = read_at(op, m) ? read_at(op, m) + from_bytes : slot_at(op, batch, m);
    return term;
}

/* All-gather and all-to-all: rounds of size - 1 transfers, each of one piece */

/* Returns the part that this rank sends to a member, and the place of the part that it receives
 * from that member.  In an all-gather all members are sent the same part, and member m's has place
 * m. */
static struct comm_part part_of(const struct operation *op, int member)
{
    if (op->part)
        return op->part[member];
    return (struct comm_part){
        .send_elems = op->elems, .recv_from = member * op->elems, .recv_elems = op->elems};
}

/* In an all-gather all members plan the same number of transfers.  In an all-to-all they may not:
 * transfer i pairs the same two members on both sides, and what one member does not plan, behind
 * its longest part, is empty on the other side as well. */
static void parts_plan(struct operation *op)
{
    op->piece = GATHER_PIECE_BYTES / size_of(op);
    op->total = ceil_div(op->elems, op->piece) * others(op);
}

static void parts_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    int64_t first = index / others(op) * op->piece, size = size_of(op);
    partners(op, (int)(index % others(op)) + 1, x);
    struct comm_part to = part_of(op, x->to), source = part_of(op, x->source);
    x->from = op->send + (to.send_from + first) * size;
    x->into = op->recv + (source.recv_from + first) * size;
    x->from_bytes = length_at(first, op->piece, to.send_elems) * size;
    x->into_bytes = length_at(first, op->piece, source.recv_elems) * size;
    exchange_read(op, first * size, x);
}

/* Copy the piece from element `first` on of this member's part to its place in recv. */
static void copy_own(struct operation *op, int64_t first, int64_t piece)
{
    struct comm_part own = part_of(op, op->group->rank);
    const char *from = op->send + (own.send_from + first) * size_of(op);
    char *into = op->recv + (own.recv_from + first) * size_of(op);
    int64_t n = length_at(first, piece, own.send_elems);
    if (n && into != from)
        memcpy(into, from, (size_t)(n * size_of(op)));
}

static void parts_retired(struct operation *op, int64_t index)
{
    struct transfer x = {0};
    if (index % others(op) == 0)
        copy_own(op, index / others(op) * op->piece, op->piece);
    parts_transfer(op, index, &x);
    if (x.at)
        stream_copy_ahead(x.into, x.at, (size_t)x.into_bytes);
}

static void parts_alone(struct operation *op)
{
    copy_own(op, 0, op->elems);
}

const struct comm_kind kind_all_gather = {.name = "all-gather",
                                          .call = CALL_ALL_GATHER,
                                          .plan = parts_plan,
                                          .transfer = parts_transfer,
                                          .retired = parts_retired,
                                          .alone = parts_alone};

const struct comm_kind kind_all_to_all = {.name = "all-to-all",
                                          .call = CALL_ALL_TO_ALL,
                                          .plan = parts_plan,
                                          .transfer = parts_transfer,
                                          .retired = parts_retired,
                                          .alone = parts_alone};

/* All-gather of little data among many: each round doubles the parts that a member has
 *
 * recv begins with the member's own part; those of the members with the next higher numbers follow,
 * member 0's after the last one's.  In round k they come from the member 2^k further on.  (Bruck,
 * Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8, 1997.)
 *
 *   member     0      1      2      3      4
 *   at first   0      1      2      3      4
 *   round 0    01     12     23     34     40
 *   round 1    0123   1234   2340   3401   4012
 *   round 2    01234  12340  23401  34012  40123
 */

static void doubling_plan(struct operation *op)
{
    op->total = 0;
    while (op->group->size > INT64_C(1) << op->total)
        op->total++;
}

/* A round sends what earlier rounds received, so it is posted when these are retired. */
static int64_t doubling_limit(const struct operation *op, int64_t retired)
{
    return retired + 1;
}

static void doubling_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    int size = op->group->size, rank = op->group->rank;
    int64_t distance = INT64_C(1) << index, part = op->elems * size_of(op);
    x->to = (int)((rank + size - distance) % size);
    x->source = (int)((rank + distance) % size);
    x->from = op->recv;
    x->into = op->recv + distance * part;
    x->from_bytes = x->into_bytes = min_i64(distance, size - distance) * part;
}

const struct comm_kind kind_all_gather_doubling = {.name = "all-gather",
                                                   .call = CALL_ALL_GATHER,
                                                   .plan = doubling_plan,
                                                   .limit = doubling_limit,
                                                   .transfer = doubling_transfer};

/* Reduce-scatter: transfers in batches of size - 1 */

static void reduce_plan(struct operation *op)
{
    op->piece = (int64_t)op->group->slot_bytes / size_of(op);
    op->total = ceil_div(op->elems, op->piece) * others(op);
}

/* There are slots for two batches: the one that is added up next, and the one after it. */
static int64_t reduce_limit(const struct operation *op, int64_t retired)
{
    return (retired / others(op) + 2) * others(op);
}

static void reduce_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    int64_t batch = index / others(op), first = batch * op->piece, size = size_of(op);
    int64_t n = length_at(first, op->piece, op->elems);
    partners(op, (int)(index % others(op)) + 1, x);
    x->from = op->send + (x->to * op->elems + first) * size;
    x->into = slot_at(op, batch, x->source);
    x->from_bytes = x->into_bytes = n * size;
    exchange_read(op, first * size, x);
}

/* Add `count` terms up to n elements of recv, from `first` on. */
static void reduce_terms(const struct operation *op, const char *const *term, int count,
                         int64_t first, int64_t n)
{
    int64_t size = (int64_t)dtype_bytes(op->result);
    char *out = op->recv + first * size;
    sum_reduce(out, op->result, op->accumulate ? (float *)out : NULL, term, count, n, op->dtype,
               GROUP_SUM, op->elems * size < STREAMED_BYTES ? SUM_STORED : SUM_STREAMED);
}

static void reduce_retired(struct operation *op, int64_t index)
{
    int64_t batch = index / others(op), first = batch * op->piece;
    if (index % others(op) != others(op) - 1)
        return;
    const char *own = op->send + (op->group->rank * op->elems + first) * size_of(op);
    reduce_terms(op, terms_of(op, batch, own, first * size_of(op)), op->group->size, first,
                 length_at(first, op->piece, op->elems));
}

static void reduce_alone(struct operation *op)
{
    if (op->accumulate || op->recv != op->send)
        reduce_terms(op, &op->send, 1, 0, op->elems);
}

const struct comm_kind kind_reduce_scatter = {.name = "reduce-scatter",
                                              .call = CALL_REDUCE_SCATTER,
                                              .plan = reduce_plan,
                                              .limit = reduce_limit,
                                              .transfer = reduce_transfer,
                                              .retired = reduce_retired,
                                              .alone = reduce_alone};

/* All-reduce: in stage s members exchange the terms of batch s, then the sums of batch s - 1.  A
 * batch has one part for each member, which adds it up.
 *
 *   stage 0   terms of batch 0
 *   stage 1   terms of batch 1   sums of batch 0
 *   stage 2                      sums of batch 1
 */

/* Returns the first element of a member's part of a batch. */
static int64_t part_first(const struct operation *op, int64_t batch, int member)
{
    return (batch * op->group->size + member) * op->piece;
}

/* Returns the bytes of a member's part of a batch. */
static int64_t part_bytes(const struct operation *op, int64_t batch, int member)
{
    return length_at(part_first(op, batch, member), op->piece, op->elems) * size_of(op);
}

int64_t transport_share(int64_t elems, int size, int64_t slot_elems)
{
    enum { GRAIN = 16 };
    return min_i64(ceil_div(elems, (int64_t)size * GRAIN) * GRAIN, slot_elems);
}

static void all_reduce_plan(struct operation *op)
{
    int64_t size = op->group->size, slot = (int64_t)op->group->slot_bytes / size_of(op);
    op->piece = transport_share(op->elems, (int)size, slot);
    op->total = op->elems ? (ceil_div(op->elems, size * op->piece) + 1) * 2 * others(op) : 0;
}

/* With `summed` batches added up, stages up to number `summed` may be posted, and the terms of the
 * stage after it, for which there are slots. */
static int64_t all_reduce_limit(const struct operation *op, int64_t retired)
{
    int64_t stage = 2 * others(op), summed = (retired + others(op)) / stage;
    return stage * (summed + 1) + others(op);
}

static void all_reduce_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    int64_t stage = index / (2 * others(op)), within = index % (2 * others(op));
    int rank = op->group->rank;
    partners(op, (int)(within % others(op)) + 1, x);
    if (within < others(op)) {
        x->from = op->send + part_first(op, stage, x->to) * size_of(op);
        x->into = slot_at(op, stage, x->source);
        x->from_bytes = part_bytes(op, stage, x->to);
        x->into_bytes = part_bytes(op, stage, rank);
    } else if (stage > 0) {
        x->from = op->send + part_first(op, stage - 1, rank) * size_of(op);
        x->into = op->recv + part_first(op, stage - 1, x->source) * size_of(op);
        x->from_bytes = part_bytes(op, stage - 1, rank);
        x->into_bytes = part_bytes(op, stage - 1, x->source);
    }
}

static void all_reduce_retired(struct operation *op, int64_t index)
{
    int64_t stage = index / (2 * others(op)), rank = op->group->rank;
    int64_t bytes = part_bytes(op, stage, (int)rank);
    if (index % (2 * others(op)) != others(op) - 1 || !bytes)
        return;
    char *out = op->recv + part_first(op, stage, (int)rank) * size_of(op);
    sum_reduce(out, op->dtype, NULL, terms_of(op, stage, out, 0), op->group->size,
               bytes / size_of(op), op->dtype, op->reduction, SUM_STORED);
}

const struct comm_kind kind_all_reduce = {.name = "all-reduce",
                                          .call = CALL_ALL_REDUCE,
                                          .plan = all_reduce_plan,
                                          .limit = all_reduce_limit,
                                          .transfer = all_reduce_transfer,
                                          .retired = all_reduce_retired};

/* Small all-reduce: every member sends its term to all others, and adds all terms up */

static void small_plan(struct operation *op)
{
    op->total = op->elems ? others(op) : 0;
}

static void small_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    partners(op, (int)index + 1, x);
    x->from = op->send;
    x->into = slot_at(op, 0, x->source);
    x->from_bytes = x->into_bytes = op->elems * size_of(op);
}

static void small_retired(struct operation *op, int64_t index)
{
    if (index != op->total - 1)
        return;
    sum_reduce(op->recv, op->dtype, NULL, terms_of(op, 0, op->send, 0), op->group->size, op->elems,
               op->dtype, op->reduction, SUM_STORED);
}

const struct comm_kind kind_all_reduce_small = {.name = "all-reduce",
                                                .call = CALL_ALL_REDUCE,
                                                .plan = small_plan,
                                                .transfer = small_transfer,
                                                .retired = small_retired};

/* Broadcast: in stage s a member receives piece s from its parent, then sends piece s - 1 to its
 * two children */

static void tree_plan(struct operation *op)
{
    op->piece = TREE_PIECE_BYTES / size_of(op);
    op->total = op->elems ? (ceil_div(op->elems, op->piece) + 1) * 3 : 0;
}

/* A piece is sent after it was received: with r pieces received, stages up to number r may be
 * posted, and the receive of the stage after it. */
static int64_t tree_limit(const struct operation *op, int64_t retired)
{
    return 3 * ((retired + 2) / 3 + 1) + 1;
}

static void tree_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    int64_t stage = index / 3, within = index % 3, first = (stage - (within > 0)) * op->piece;
    int size = op->group->size, place = (op->group->rank - op->peer + size) % size;
    int64_t child = 2 * (int64_t)place + within;
    if (first < 0)
        return;
    int64_t bytes = length_at(first, op->piece, op->elems) * size_of(op);
    if (!within && place) {
        x->source = ((place - 1) / 2 + op->peer) % size;
        x->into = op->recv + first * size_of(op);
        x->into_bytes = bytes;
    } else if (within && child < size) {
        x->to = (int)((child + op->peer) % size);
        x->from = op->recv + first * size_of(op);
        x->from_bytes = bytes;
    }
}

const struct comm_kind kind_broadcast = {.name = "broadcast",
                                         .call = CALL_BROADCAST,
                                         .plan = tree_plan,
                                         .limit = tree_limit,
                                         .transfer = tree_transfer};

/* Messages */

static void message_plan(struct operation *op)
{
    op->piece = MESSAGE_PIECE_BYTES / size_of(op);
    op->total = ceil_div(op->elems, op->piece);
}

static void message_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    int64_t first = index * op->piece, size = size_of(op);
    int64_t bytes = length_at(first, op->piece, op->elems) * size;
    if (op->kind == &kind_send) {
        x->to = op->peer;
        x->from = op->send + first * size;
        x->from_bytes = bytes;
    } else {
        x->source = op->peer;
        x->into = op->recv + first * size;
        x->into_bytes = bytes;
    }
}

const struct comm_kind kind_send = {.name = "send",
                                    .call = CALL_SEND,
                                    .message = 1,
                                    .plan = message_plan,
                                    .transfer = message_transfer};

const struct comm_kind kind_recv = {.name = "receive",
                                    .call = CALL_RECV,
                                    .message = 1,
                                    .plan = message_plan,
                                    .transfer = message_transfer};

int transport_independent(const struct operation *a, const struct operation *b)
{
    int a_reads = a->kind == &kind_send, b_reads = b->kind == &kind_send;
    const char *at_a = a_reads ? a->send : a->recv, *at_b = b_reads ? b->send : b->recv;
    if (a_reads == b_reads && a->group == b->group && a->peer == b->peer && a->posted < a->total)
        return 0;
    if (a_reads && b_reads)
        return 1;
    return at_a + a->elems * size_of(a) <= at_b || at_b + b->elems * size_of(b) <= at_a;
}
