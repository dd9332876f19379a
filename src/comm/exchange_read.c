/* exchange_read.c - all-gather and reduce-scatter among members some of which read one another's
 * memory (node_memory.h).
 *
 * Members of a node send each other the addresses of the data, read them there, and send a notice
 * that they have, after which the data may change:
 *
 *     size - 1 transfers    notices: the address of what this member gives to that one; 0: it comes
 *                           by messages
 *     those of the kind     as in exchange.c, but without the messages of which one member reads
 *                           the data; they are read when the transfer is retired
 *     size - 1 transfers    notices: this member has read what that one gave
 *
 * Members of other nodes exchange the kind's messages and no notices.
 */
#include "base/round.h"
#include "comm/exchange.h"
#include "comm/node_memory.h"

/* The numbers of the kind's own transfers: from `first` to before `end`. */
struct span {
    int64_t first, end;
};

static struct span own_transfers(const struct operation *op)
{
    return (struct span){others(op), op->total - others(op)};
}

static int is_near(const struct operation *op, int member)
{
    const struct group *g = op->group;
    return node_memory_is_near(g->world, g->ranks[member]);
}

/* Returns the bytes that a member gives to another one. */
static size_t given_bytes(const struct operation *op)
{
    return (size_t)(op->elems * size_of(op));
}

/* Returns the first byte of what this member gives to another one. */
static const char *given_to(const struct operation *op, int member)
{
    int parts = op->kind->call == CALL_REDUCE_SCATTER; /* a part for each member, or one for all */
    return op->send + (parts ? (size_t)member * given_bytes(op) : 0);
}

static void read_plan(struct operation *op)
{
    op->kind->by_messages->plan(op);
    if (op->total)
        op->total += 2 * others(op);
}

/* Find the addresses of what this member gives, which the first notices send. */
static void read_begin(struct operation *op)
{
    struct queue_reads *reads = op->group->area[op->queue].reads;
    for (int m = 0; m < op->group->size; m++)
        reads[m].own = is_near(op, m)
                           ? node_memory_address(op->group->world, given_to(op, m), given_bytes(op))
                           : 0;
}

static int64_t read_limit(const struct operation *op, int64_t retired)
{
    struct span own = own_transfers(op);
    int64_t limit = own.end;
    if (retired < own.first)
        return own.first;
    if (retired >= own.end)
        return op->total;
    if (op->kind->by_messages->limit)
        limit = min_i64(limit, own.first + op->kind->by_messages->limit(op, retired - own.first));
    return limit;
}

/* Exchange notices with the partners of x. */
static void notice(const struct operation *op, struct transfer *x)
{
    struct queue_reads *reads = op->group->area[op->queue].reads;
    x->is_notice = 1;
    x->from = (const char *)&reads[x->to].own;
    x->into = (char *)&reads[x->source].peer;
    x->from_bytes = is_near(op, x->to) ? sizeof reads->own : 0;
    x->into_bytes = is_near(op, x->source) ? sizeof reads->peer : 0;
}

static void read_transfer(const struct operation *op, int64_t index, struct transfer *x)
{
    struct span own = own_transfers(op);
    if (index >= own.first && index < own.end) {
        op->kind->by_messages->transfer(op, index - own.first, x);
        return;
    }
    partners(op, (int)(index < own.first ? index : index - own.end) + 1, x);
    notice(op, x);
    __atomic_thread_fence(
        __ATOMIC_SEQ_CST); /* with what was read and written by the other process */
}

/* Find where the data of a member lie, whose address has come; op->err says if they are not mapped.
 */
static void find(struct operation *op, int member)
{
    const struct group *g = op->group;
    struct queue_reads *r = &g->area[op->queue].reads[member];
    r->at = NULL;
    if (!is_near(op, member) || !r->peer)
        return;
    r->at = node_memory_find(g->world, g->ranks[member], r->peer, given_bytes(op));
    if (!r->at)
        error_set(&op->err, "%s in group %s: the memory of member %d (rank %d) is not mapped here",
                  op->kind->name, g->name, member, g->ranks[member]);
}

static void read_retired(struct operation *op, int64_t index)
{
    struct span own = own_transfers(op);
    struct transfer x = {0};
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (index < own.first) {
        partners(op, (int)index + 1, &x);
        find(op, x.source);
    } else if (index < own.end) {
        op->kind->by_messages->retired(op, index - own.first);
    }
}

const struct comm_kind kind_all_gather_read = {.name = "all-gather",
                                               .call = CALL_ALL_GATHER,
                                               .by_messages = &kind_all_gather,
                                               .plan = read_plan,
                                               .begin = read_begin,
                                               .limit = read_limit,
                                               .transfer = read_transfer,
                                               .retired = read_retired};

const struct comm_kind kind_reduce_scatter_read = {.name = "reduce-scatter",
                                                   .call = CALL_REDUCE_SCATTER,
                                                   .by_messages = &kind_reduce_scatter,
                                                   .plan = read_plan,
                                                   .begin = read_begin,
                                                   .limit = read_limit,
                                                   .transfer = read_transfer,
                                                   .retired = read_retired};
