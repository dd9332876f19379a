/* pieces.c - how far the host may run ahead of sums that go in pieces (nccl.c, staged.c).
 *
 * A stream of CUDA holds 1024 entries that are not done: one more waits inside CUDA, for ever if a
 * peer is gone, and this rank cannot notice that there.  A call of NCCL adds about four (two waits,
 * a kernel, an event), so that a piece of an all-reduce takes eleven of the reduce stream:
 *
 *     copy 1, exchange 4, sum 1, cast 1, exchange 4
 *
 * and a sum of one piece two more, a wait before it and an event after it.  So the host waits
 * before a piece, where it can notice that a peer is gone, until at most 32 earlier ones are
 * enqueued and not done.  Those and the eight that follow take some 520 entries, which leaves the
 * other half to transfers that do not go in pieces:
 *
 *     piece    0 ... 7 | 8 ... 15 | 16 ... 23 | 24 ... 31 | 32 ...
 *     event    0         1          2           3           wait for 0, record 0
 *
 * The event of a block of pieces is recorded before the first of them.  All members of a group
 * enqueue the same pieces in the same order, so that they wait at the same places.
 */
#include <time.h>

#include "comm/gpu/channel.h"

enum { BLOCK = 8, SPINS = 2000, LOOK_EVERY = 400, NAP_NS = 50000 };

static int too_long(struct operation *op, int64_t ns)
{
    const struct world *world = op->group->link->world;
    op->err.code = EXIT_HANG;
    return error_set(&op->err,
                     "sum in group %s, rank %d on %s: not done after %lld s; another member of the "
                     "group, or this rank's GPU, does not go on",
                     op->group->name, world->rank, world->host, (long long)(ns / 1000000000));
}

/* Has a transfer failed?  A rank that failed prints a better message: wait 3 s so that it is
 * printed first. */
static int poll_transfers(struct operation *op)
{
    const struct timespec others_first = {.tv_sec = 3};
    if (!link_poll(op->group->link, &op->err))
        return 0;
    nanosleep(&others_first, NULL);
    return -1;
}

/* Wait until the pieces before an event are done, for link_hang_ns() without progress at most.
 * Returns 0: the caller may go on; or -1 with op->err set. */
static int wait_for_pieces(struct operation *op, struct device_event *event)
{
    struct link *l = op->group->link;
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct link_limit limit = {0};
    for (int64_t times = 0;; times++) {
        const int done = device_event_done(l->device, event, &op->err);
        if (done)
            return done > 0 ? 0 : -1;
        if (times < SPINS)
            continue;
        if (times == SPINS)
            limit = link_limit_begin(l, link_hang_ns(l));
        if (times % LOOK_EVERY == 0) {
            if (poll_transfers(op))
                return -1;
            if (link_limit_is_over(l, &limit))
                return too_long(op, limit.most_ns);
        }
        nanosleep(&nap, NULL);
    }
}

int link_open_pieces(struct link *l, struct error *err)
{
    for (int i = 0; i < PIECE_EVENTS; i++)
        if (!(l->piece_event[i] = device_event_create(l->device, DEVICE_EVENT_UNTIMED, err)))
            return -1;
    return 0;
}

void link_close_pieces(struct link *l)
{
    for (int i = 0; i < PIECE_EVENTS; i++)
        device_event_destroy(l->device, l->piece_event[i]);
}

/* Before the first four blocks there is nothing to wait for: an event that was never recorded
 * counts as one that has come. */
int channel_begin_piece(struct operation *op)
{
    struct link *l = op->group->link;
    const unsigned piece = l->pieces++;
    struct device_event *event = l->piece_event[piece / BLOCK % PIECE_EVENTS];
    if (piece % BLOCK)
        return GIVEN;
    return wait_for_pieces(op, event) ||
                   device_event_record(l->device, event, op_stream(op), &op->err)
               ? FAILED
               : GIVEN;
}
