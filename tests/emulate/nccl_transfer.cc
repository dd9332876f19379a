/* nccl_transfer.cc - operations of an emulated communicator, as steps that never wait.
 *
 * A collective: (0) show the others what is asked and where the data is; (1) when all have, read
 * their memory and say so; (2) when all have read, end.  A message: the sender shows it, the
 * receiver reads it and says so.  What is received is filled with NaN first, and memory that was
 * sent must not have changed at the end, so that somebody who does not wait is found out.  Memory
 * of all sides of an operation must be registered, or of none: NCCL 2.28 waits for ever where only
 * one side's is.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <array>
#include <map>

#include "nccl_reduce.h"
#include "nccl_state.h"
#include "record.h"
#include "stream.h"

namespace emulate
{
namespace
{

enum { LOOK_EVERY_NS = 20000000 };

bool collective(const operation &o)
{
    return o.kind != SEND && o.kind != RECV;
}

bool sends(const communicator &c, const operation &o)
{
    return o.kind != RECV && (o.kind != BROADCAST || c.rank == o.root);
}

bool receives(const communicator &c, const operation &o)
{
    return o.kind != SEND && (o.kind != REDUCE || c.rank == o.root);
}

uint64_t send_bytes(const communicator &c, const operation &o)
{
    return o.count * type_bytes(o.type) * (o.kind == REDUCE_SCATTER ? (uint64_t)c.ranks : 1);
}

uint64_t recv_bytes(const communicator &c, const operation &o)
{
    return o.count * type_bytes(o.type) * (o.kind == ALL_GATHER ? (uint64_t)c.ranks : 1);
}

/* The forms the library calls in place; everything else must not overlap. */
bool in_place(const communicator &c, const operation &o)
{
    uint64_t block = o.count * type_bytes(o.type) * (uint64_t)c.rank;

    if (o.kind == ALL_GATHER)
        return o.send == o.recv + block;
    if (o.kind == REDUCE_SCATTER)
        return o.recv == o.send + block;
    return o.send == o.recv;
}

uint64_t checksum(const char *at, uint64_t bytes)
{
    uint64_t sum = bytes, word = 0;

    for (; bytes >= 8; at += 8, bytes -= 8) {
        memcpy(&word, at, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    word = 0;
    memcpy(&word, at, bytes);
    return (sum ^ word) * 0x9e3779b97f4a7c15u;
}

/* Whether memory that others read, or that the operation writes, is registered. */
int sent_is_registered(communicator &c, const operation &o)
{
    return o.count && sends(c, o) && is_registered(c, o.send, send_bytes(c, o));
}

int received_is_registered(communicator &c, const operation &o)
{
    return o.count && receives(c, o) && is_registered(c, o.recv, recv_bytes(c, o));
}

struct message describe(communicator &c, const operation &o)
{
    struct message m = {o.kind, o.type, o.op, o.root, o.count, {}, 0, 0, 0};

    if (sends(c, o) && o.count)
        emulate_locate(o.send, &m.send);
    m.registered = sent_is_registered(c, o);
    if (collective(o))
        m.registered |= received_is_registered(c, o) << 1;
    if (o.kind == BROADCAST || o.kind == REDUCE)
        m.registered = 0; /* not every rank has both */
    return m;
}

/* Fill what is received with NaN, but for the part that is sent as well. */
void poison(const communicator &c, const operation &o)
{
    uint64_t block = o.count * type_bytes(o.type);

    if (!receives(c, o))
        return;
    if (!sends(c, o) || !in_place(c, o)) {
        memset(o.recv, 0xff, recv_bytes(c, o));
    } else if (o.kind == ALL_GATHER) {
        for (int r = 0; r < c.ranks; r++)
            if (r != c.rank)
                memset(o.recv + (uint64_t)r * block, 0xff, block);
    }
}

/* The first operation of its kind with a peer, or in a ring, takes memory for as long as the
 * communicator is there. */
void connect(communicator &c, const operation &o)
{
    enum { COLLECTIVE_CTAS = 24, MESSAGE_CTAS = 32, PARTS = 6, RECV_PARTS = 5 };
    bool ring = collective(o);
    int most = ring ? COLLECTIVE_CTAS : MESSAGE_CTAS, ctas = c.config.maxCTAs;
    int64_t bytes = (int64_t)emulate_connection_bytes();

    if (!c.connected.insert({ring ? -1 : (int)o.kind, ring ? -1 : o.root}).second)
        return;
    if (!ring) {
        record("NCCL: %s: rank %d of %d %s rank %d", c.name.c_str(), c.rank, c.ranks,
               o.kind == SEND ? "sends to" : "receives from", o.root);
        bytes = bytes * (o.kind == RECV ? RECV_PARTS : PARTS - RECV_PARTS) / PARTS;
    }
    if (ctas == NCCL_CONFIG_UNDEF_INT || ctas > most)
        ctas = most;
    c.held += bytes * ctas;
    emulate_hold(c.device, bytes * ctas);
}

/* First turn of an operation: false when it is not due yet. */
bool begin(communicator &c, operation &o)
{
    if (c.ranks > 1 && !emulate_network())
        return false;
    if (o.idle == 0)
        o.idle = 1 + (int)emulate_random(3);
    if (--o.idle > 0)
        return false;
    if (sends(c, o) && o.count)
        o.checksum = checksum(o.send, send_bytes(c, o));
    poison(c, o);
    connect(c, o);
    o.phase = 1;
    return true;
}

void verify_sent(communicator &c, const operation &o)
{
    if (sends(c, o) && o.count && !(receives(c, o) && in_place(c, o)) &&
        checksum(o.send, send_bytes(c, o)) != o.checksum)
        fail(c, ncclInternalError, "memory was changed while it was being sent");
}

/* ---- collectives ---- */

bool agree(communicator &c, const operation &o)
{
    const struct message &mine = c.control->member[c.rank].collective;

    for (int r = 0; r < c.ranks; r++) {
        const struct message &its = c.control->member[r].collective;
        if (its.kind == mine.kind && its.type == mine.type && its.op == mine.op &&
            its.root == mine.root && its.count == mine.count &&
            its.window_bytes == mine.window_bytes && its.window_offset == mine.window_offset &&
            its.registered == mine.registered)
            continue;
        snprintf(c.control->why, sizeof(c.control->why),
                 "collective %llu: ranks %d and %d differ in operation, count, type, root, window "
                 "or in whether memory is registered",
                 (unsigned long long)o.number, c.rank, r);
        c.control->failure = ncclInvalidUsage;
        return false;
    }
    return true;
}

void reduce_ring(const communicator &c, const operation &o, char *to,
                 const std::array<const char *, MAX_RANKS> &from)
{
    uint64_t bytes = type_bytes(o.type), piece = (o.count + c.ranks - 1) / c.ranks;
    const void *at[MAX_RANKS];

    for (uint64_t p = 0, begin = 0; begin < o.count; p++, begin += piece) {
        uint64_t count = o.count - begin < piece ? o.count - begin : piece;
        for (int r = 0; r < c.ranks; r++)
            at[r] = from[r] + begin * bytes;
        reduce(o.type, o.op, to + begin * bytes, at, c.ranks, (int)(p + 1) % c.ranks, count);
    }
}

void read_others(const communicator &c, operation &o,
                 const std::array<const char *, MAX_RANKS> &from)
{
    uint64_t block = o.count * type_bytes(o.type);
    const void *at[MAX_RANKS];

    switch (o.kind) {
    case ALL_GATHER:
        for (int r = 0; r < c.ranks; r++)
            if (r != c.rank || !in_place(c, o))
                memcpy(o.recv + (uint64_t)r * block, from[r], block);
        break;
    case REDUCE_SCATTER:
        for (int r = 0; r < c.ranks; r++)
            at[r] = from[r] + (uint64_t)c.rank * block;
        reduce(o.type, o.op, o.recv, at, c.ranks, (c.rank + 1) % c.ranks, o.count);
        break;
    case BROADCAST:
        if (c.rank != o.root || o.send != o.recv)
            memcpy(o.recv, from[o.root], block);
        break;
    default:
        if (!receives(c, o))
            break;
        o.kept.resize(block); /* others may still read recv, where it is send */
        reduce_ring(c, o, o.kept.data(), from);
    }
}

/* Memory of every rank that sends; false when one is gone. */
bool find_others(const communicator &c, const operation &o,
                 std::array<const char *, MAX_RANKS> &from)
{
    for (int r = 0; r < c.ranks; r++) {
        bool has = o.kind != BROADCAST || r == o.root;
        from[r] = NULL;
        if (has)
            from[r] = r == c.rank
                          ? o.send
                          : (const char *)emulate_peer(&c.control->member[r].collective.send);
        if (has && !from[r])
            return false;
    }
    return true;
}

/* Returns true when the operation is done. */
bool step_collective(communicator &c, operation &o)
{
    struct control &all = *c.control;
    struct member &me = all.member[c.rank];
    std::array<const char *, MAX_RANKS> from;

    if (o.phase == 0) {
        if (!begin(c, o))
            return false;
        o.number = ++c.collectives;
        me.collective = describe(c, o);
        by_copy_engines(c, o, &me.collective);
        me.posted = o.number;
    }
    if (o.phase == 1) {
        for (int r = 0; r < c.ranks; r++)
            if (all.member[r].posted < o.number)
                return false;
        if (!agree(c, o))
            return false;
        if (!find_others(c, o, from)) {
            fail(c, ncclRemoteError, "memory of a rank is gone");
            return false;
        }
        read_others(c, o, from);
        me.read = o.number;
        o.phase = 2;
    }
    for (int r = 0; r < c.ranks; r++)
        if (all.member[r].read < o.number)
            return false;
    if (!o.kept.empty())
        memcpy(o.recv, o.kept.data(), o.kept.size());
    o.kept = std::vector<char>();
    verify_sent(c, o);
    return true;
}

/* ---- messages ---- */

bool step_send(communicator &c, operation &o)
{
    struct channel &to = c.control->channel[c.rank][o.root];

    if (o.phase == 0) {
        if (!begin(c, o))
            return false;
        to.message = describe(c, o);
        o.number = to.sent + 1;
        to.sent = o.number;
    }
    if (to.taken < o.number)
        return false;
    verify_sent(c, o);
    return true;
}

bool step_receive(communicator &c, operation &o)
{
    struct channel &from = c.control->channel[o.root][c.rank];

    if (o.phase == 0 && !begin(c, o))
        return false;
    if (from.sent == from.taken)
        return false;
    const struct message m = from.message;
    if (m.count != o.count || m.type != o.type) {
        snprintf(c.control->why, sizeof(c.control->why),
                 "message from rank %d to rank %d: sent and received differ in count or type",
                 o.root, c.rank);
        c.control->failure = ncclInvalidUsage;
        return false;
    }
    if (o.root != c.rank && m.registered != received_is_registered(c, o)) {
        snprintf(c.control->why, sizeof(c.control->why),
                 "message from rank %d to rank %d: memory of one of them is registered", o.root,
                 c.rank);
        c.control->failure = ncclInvalidUsage;
        return false;
    }
    if (o.count) {
        const void *at = emulate_peer(&m.send);
        if (!at) {
            fail(c, ncclRemoteError, "memory of a rank is gone");
            return false;
        }
        memcpy(o.recv, at, recv_bytes(c, o));
    }
    from.taken = from.sent.load();
    return true;
}

/* One turn of all operations of a launch: collectives one after another, messages side by side but
 * in order with each peer.  Returns true when all are done. */
bool step_all(struct launch &l)
{
    communicator &c = *l.comm;
    bool busy_sending[MAX_RANKS] = {}, busy_receiving[MAX_RANKS] = {}, busy = false;
    std::vector<operation> left;

    for (operation &o : l.operations) {
        bool &before = o.kind == SEND   ? busy_sending[o.root]
                       : o.kind == RECV ? busy_receiving[o.root]
                                        : busy;
        if (!before && (o.kind == SEND   ? step_send(c, o)
                        : o.kind == RECV ? step_receive(c, o)
                                         : step_collective(c, o)))
            continue;
        before = true;
        left.push_back(std::move(o));
    }
    l.operations = std::move(left);
    return l.operations.empty();
}

int64_t now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* Is it time to look whether the others are alive? */
bool due(communicator &c)
{
    int64_t now = now_ns();

    if (now - c.looked_ns < LOOK_EVERY_NS)
        return false;
    c.looked_ns = now;
    return true;
}

/* A rank whose process died, or one that aborted; -1: none.  One that left first may end between
 * two looks at it: so whether it left is asked last. */
int gone(const communicator &c, bool aborted)
{
    for (int r = 0; r < c.ranks; r++) {
        const struct member &m = c.control->member[r];
        if (r != c.rank &&
            ((aborted && m.departure == ABORTED) || (!member_lives(m) && m.departure == HERE)))
            return r;
    }
    return -1;
}

enum emulate_status turn(struct launch &l)
{
    communicator &c = *l.comm;

    if (c.aborted)
        return EMULATE_DONE;
    if (c.state != ncclSuccess && c.state != ncclInProgress)
        return EMULATE_LATER; /* as kernels that wait for a peer: until it is aborted */
    if (c.finished != l.number)
        return EMULATE_LATER;
    if (!step_all(l)) {
        int missing = due(c) ? gone(c, true) : -1;
        if (missing < 0 || !step_all(l)) { /* it may have done its part before */
            if (missing >= 0)
                fail(c, ncclRemoteError, "rank " + std::to_string(missing) + " is gone");
            if (c.control->failure)
                fail(c, (ncclResult_t)c.control->failure.load(), c.control->why);
            return EMULATE_LATER;
        }
    }
    c.finished++;
    return EMULATE_DONE;
}

ncclResult_t check_memory(const communicator &c, const operation &o)
{
    uint64_t sent = send_bytes(c, o), received = recv_bytes(c, o);
    struct emulate_place place = {};

    if (sends(c, o) && !emulate_is_device(o.send, sent))
        return note(ncclInvalidArgument, "send buffer is not within an allocation of the device");
    if (receives(c, o) && !emulate_is_device(o.recv, received))
        return note(ncclInvalidArgument, "recv buffer is not within an allocation of the device");
    if (emulate_locate(sends(c, o) ? o.send : o.recv, &place) || place.device != c.device)
        return note(ncclInvalidUsage, "memory of another device");
    if ((sends(c, o) && (uintptr_t)o.send % type_bytes(o.type)) ||
        (receives(c, o) && (uintptr_t)o.recv % type_bytes(o.type)))
        return note(ncclInvalidArgument, "a buffer between two elements");
    if (collective(o) && sends(c, o) && receives(c, o) && !in_place(c, o) &&
        o.send < o.recv + received && o.recv < o.send + sent)
        return note(ncclInvalidUsage, "send and recv overlap, but not as in-place forms do");
    return ncclSuccess;
}

} // namespace

void look(communicator &c)
{
    if (!c.ready)
        return;
    if (c.control->failure)
        fail(c, (ncclResult_t)c.control->failure.load(), c.control->why);
    if (c.finished < c.issued || !due(c))
        return; /* its steps look themselves */
    int missing = gone(c, false);
    if (missing >= 0)
        fail(c, ncclRemoteError, "rank " + std::to_string(missing) + " is gone");
}

ncclResult_t check_operation(const communicator &c, const operation &o, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;

    if (!type_bytes(o.type) ||
        ((o.kind == REDUCE_SCATTER || o.kind == ALL_REDUCE || o.kind == REDUCE) &&
         !reduces(o.type, o.op)))
        return note(ncclInvalidArgument, "a type or operation the emulation does not have");
    if (o.root < 0 || o.root >= c.ranks)
        return note(ncclInvalidArgument, "no such root or peer");
    if (emulate_stream_device(stream) != c.device)
        return note(ncclInvalidUsage, "a stream of another device");
    if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone)
        return note(ncclInvalidUsage, "the emulation does not capture communication");
    return o.count ? check_memory(c, o) : ncclSuccess;
}

/* As NCCL_LAUNCH_ORDER_IMPLICIT asks: launches of all communicators of a GPU start in the order of
 * the calls.  The event of a GPU is where its last launch starts. */
static ncclResult_t start_in_order(const launch &l)
{
    static std::mutex lock;
    static std::map<int, cudaEvent_t> last;
    const char *asked = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");

    if (!asked || strcmp(asked, "1") != 0)
        return ncclSuccess;
    stream_wait_for_place(l.stream); /* not with the lock held */
    std::lock_guard<std::mutex> hold(lock);
    cudaEvent_t &event = last[l.comm->device];
    if ((event ? cudaStreamWaitEvent(l.stream, event, 0)
               : cudaEventCreateWithFlags(&event, cudaEventDisableTiming)) != cudaSuccess ||
        cudaEventRecord(event, l.stream) != cudaSuccess)
        return note(ncclUnhandledCudaError, "the stream took no event");
    return ncclSuccess;
}

/* Of what a stream holds, a launch takes two waits, a kernel and an event. */
enum { TRANSFER_PLACES = 4 };

ncclResult_t issue(const std::shared_ptr<launch> &l)
{
    if (ncclResult_t bad = start_in_order(*l))
        return bad;
    l->number = l->comm->issued++;
    auto step = [l] { return turn(*l); };
    if (emulate_enqueue_external(l->stream, step, EMULATE_TRANSFER) == cudaSuccess) {
        stream_take_places(l->stream, TRANSFER_PLACES - 1);
        return ncclSuccess;
    }
    return note(ncclUnhandledCudaError, "the stream took no work");
}

} // namespace emulate
