/* mpi.c - transport: carries out a list of transfers by MPI messages.
 *
 *     0 ... retired - 1          complete, their results taken (kind->retired())
 *     retired ... posted - 1     in flight; only the oldest, number `retired`, is tested
 *     posted ... total - 1       not started; the window and kind->limit() say how many may be
 *
 * Every message of the process uses one communicator; group and queue are in the tag, and messages
 * between two ranks with the same tag keep their order.
 */
#include <stdio.h>

#include "base/round.h"
#include "comm/transport.h"

/* An operation keeps its requests in memory that operation.h, which does not know MPI, declares as
 * void *. */
typedef MPI_Request request __attribute__((may_alias));
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits");

enum { RECEIVE, SEND };

/* Returns the request of a transfer's receive or send. */
static request *request_at(const struct operation *op, int64_t index, int which)
{
    return (request *)&op->request[2 * (index % op->window) + which];
}

static int step(struct operation *op);

/* The member that the oldest transfer waits for; -1: none.  *sends: 1 if it waits for that member
 * to receive, 0 to send.  An operation of another transport, such as a copy within a group of one,
 * waits for nobody. */
static int waited_member(const struct operation *op, int *sends)
{
    struct transfer x = {0};
    if (!op->kind || op->step != step || op->retired >= op->posted)
        return -1;
    op->kind->transfer(op, op->retired, &x);
    *sends = *request_at(op, op->retired, RECEIVE) == MPI_REQUEST_NULL;
    if (*sends && *request_at(op, op->retired, SEND) == MPI_REQUEST_NULL)
        return -1;
    return *sends ? x.to : x.source;
}

int transport_waits_for(const struct operation *op)
{
    int sends, member = waited_member(op, &sends);
    return member < 0 ? -1 : op->group->ranks[member];
}

void transport_describe(const struct operation *op, char *text, size_t bytes)
{
    int sends, member = waited_member(op, &sends);
    if (!op->kind)
        snprintf(text, bytes, "a call of the communication thread");
    else if (member < 0)
        snprintf(text, bytes, "%s in group %s", op->kind->name, op->group->name);
    else
        snprintf(text, bytes, "%s in group %s waits for member %d (rank %d) to %s", op->kind->name,
                 op->group->name, member, op->group->ranks[member], sends ? "receive" : "send");
}

/* Set op->err: the receive or send of a transfer has failed.  Returns STEP_DONE. */
static int fail(struct operation *op, int64_t index, int which, const char *why)
{
    const struct group *g = op->group;
    struct transfer x = {0};
    op->kind->transfer(op, index, &x);
    int member = which == SEND ? x.to : x.source;
    op->err.code = EXIT_NODE;
    error_set(&op->err, "%s in group %s: %s member %d (rank %d): %s", op->kind->name, g->name,
              which == SEND ? "message to" : "message from", member, g->ranks[member], why);
    return STEP_DONE;
}

static int fail_mpi(struct operation *op, int64_t index, int which, int code)
{
    char why[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(code, why, &length);
    return fail(op, index, which, why);
}

/* Start a transfer's messages.  Returns STEP_MOVED, or STEP_DONE with op->err set. */
static int post(struct operation *op, int64_t index)
{
    const struct group *g = op->group;
    struct transfer x = {0};
    request *receive = request_at(op, index, RECEIVE), *send = request_at(op, index, SEND);
    int tag = g->tag + op->queue, rc;
    *receive = *send = MPI_REQUEST_NULL;
    op->kind->transfer(op, index, &x);
    if (x.into_bytes && !x.at) {
        rc = MPI_Irecv(x.into, (int)x.into_bytes, MPI_BYTE, g->ranks[x.source], tag, g->world->comm,
                       receive);
        if (rc != MPI_SUCCESS)
            return fail_mpi(op, index, RECEIVE, rc);
    }
    if (x.from_bytes && !x.is_read) {
        rc = MPI_Isend(x.from, (int)x.from_bytes, MPI_BYTE, g->ranks[x.to], tag, g->world->comm,
                       send);
        if (rc != MPI_SUCCESS)
            return fail_mpi(op, index, SEND, rc);
    }
    op->sent_bytes += x.is_notice ? 0 : x.from_bytes;
    return STEP_MOVED;
}

/* Fail if a message is shorter than expected: then its sender runs another program than this rank.
 */
static int check_length(struct operation *op, int64_t index, MPI_Status *status)
{
    struct transfer x = {0};
    int bytes;
    op->kind->transfer(op, index, &x);
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (bytes != x.into_bytes)
        return fail(op, index, RECEIVE,
                    "its length is not the expected one: the members "
                    "started different operations");
    return STEP_MOVED;
}

/* Test a request.  Returns STEP_MOVED: it is complete; STEP_WAITS: not yet; or STEP_DONE with
 * op->err set. */
static int test(struct operation *op, int64_t index, int which)
{
    request *r = request_at(op, index, which);
    MPI_Status status;
    int flag;
    if (*r == MPI_REQUEST_NULL)
        return STEP_MOVED;
    int rc = MPI_Test((MPI_Request *)r, &flag, &status);
    if (rc != MPI_SUCCESS)
        return fail_mpi(op, index, which, rc);
    if (!flag)
        return STEP_WAITS;
    return which == RECEIVE ? check_length(op, index, &status) : STEP_MOVED;
}

/* Retire the oldest transfer if it is complete.  Returns as test() does. */
static int retire(struct operation *op)
{
    int step = test(op, op->retired, RECEIVE);
    if (step == STEP_MOVED)
        step = test(op, op->retired, SEND);
    if (step != STEP_MOVED)
        return step;
    if (op->kind->retired)
        op->kind->retired(op, op->retired);
    op->retired++;
    return op->err.text[0] ? STEP_DONE : STEP_MOVED;
}

/* Post as many transfers as window and kind allow.  Returns STEP_MOVED if there was one, STEP_WAITS
 * if there was none, or STEP_DONE with op->err set. */
static int post_allowed(struct operation *op)
{
    int64_t limit = min_i64(op->retired + op->window, op->total);
    int result = STEP_WAITS;
    if (op->kind->limit)
        limit = min_i64(limit, op->kind->limit(op, op->retired));
    while (op->posted < limit && result != STEP_DONE)
        result = post(op, op->posted++);
    return result;
}

static int step(struct operation *op)
{
    enum { TRANSFERS = 8 }; /* most that a step retires, before the other queues are stepped */
    int result, moved = STEP_WAITS;
    if (!op->posted && op->kind->begin)
        op->kind->begin(op);
    for (int i = 0; i < TRANSFERS; i++) {
        result = post_allowed(op);
        if (result == STEP_DONE || op->retired == op->total)
            return STEP_DONE;
        if (result == STEP_MOVED)
            moved = STEP_MOVED;
        result = retire(op);
        if (result == STEP_DONE)
            return STEP_DONE;
        if (result == STEP_WAITS)
            return moved;
        moved = STEP_MOVED;
    }
    return moved;
}

const struct transport transport_mpi = {.name = "mpi", .step = step};
