/* nccl_state.h - one rank's half of an emulated communicator, and operations under way. */
#ifndef TRIREME_EMULATE_NCCL_STATE_H
#define TRIREME_EMULATE_NCCL_STATE_H

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "nccl_control.h"

namespace emulate
{

/* Memory of this rank that is registered with a communicator. */
struct registration {
    const char *at;
    size_t bytes;
    int times; /* how many times it was registered, and not yet deregistered */
};

/* A window: memory that all ranks of a communicator have registered together. */
struct window {
    const char *at; /* of this rank */
    size_t bytes;
    int flags;
    uintptr_t number;               /* the same on all ranks */
    const struct registration *own; /* of this rank's memory */
};

/* Lives as long as its handle, its operations and its helper threads. */
struct communicator {
    std::shared_ptr<struct control> control; /* NULL until the ranks have met */
    int rank, ranks, device;
    bool blocking;
    ncclConfig_t config;
    std::string bus, name;
    std::mutex windows_lock;
    std::vector<struct window> windows;
    std::list<struct registration> registrations; /* their addresses are handles */
    uintptr_t windows_made = 0;
    std::atomic<bool> ready{false};               /* control is not NULL */
    std::atomic<bool> aborted{false};             /* by this rank */
    std::atomic<int> state{ncclSuccess};          /* what ncclCommGetAsyncError() says */
    std::atomic<int> helpers{0};                  /* helper threads at work */
    std::atomic<int64_t> looked_ns{0};            /* when look() last looked */
    std::atomic<uint64_t> issued{0}, finished{0}; /* number of launches, which run in order */
    uint64_t collectives = 0; /* number of collectives so far; this and the next two are used by
                                 steps alone, which run on one thread */
    std::set<std::pair<int, int>> connected; /* connections: kind, and peer or -1 for a ring */
    int64_t held = 0;                        /* bytes of the GPU for these connections */
    uint64_t splits = 0;                     /* number of splits so far */
    bool finalized = false;
};

/* One call of an operation. */
struct operation {
    enum transfer kind;
    const char *send;
    char *recv;
    uint64_t count;
    int type, op, root; /* root is the peer of a message */

    /* Steps alone: */
    int phase = 0, idle = 0;
    uint64_t number = 0, checksum = 0;
    std::vector<char> kept; /* a result whose place others still read */
};

/* The operations that a group (ncclGroupStart() to ncclGroupEnd()) gives to one communicator; they
 * run as one piece. */
struct launch {
    std::shared_ptr<communicator> comm;
    cudaStream_t stream;
    uint64_t number;
    std::vector<operation> operations;
};

/* Keep a failure for ncclGetLastError().  Returns code. */
ncclResult_t note(ncclResult_t code, const std::string &why);

/* Fail the communicator: ncclCommGetAsyncError() returns code from now on. */
void fail(communicator &c, ncclResult_t code, const std::string &why);

/* Fail the communicator where its ranks disagree, or another rank has died or aborted. */
void look(communicator &c);

/* Is an operation a gather by copy engines, which takes no thread blocks?  Then m says where in its
 * window it writes. */
bool by_copy_engines(communicator &c, const operation &o, struct message *m);

/* Is all of this memory registered with the communicator? */
bool is_registered(communicator &c, const char *at, size_t bytes);

/* Check an operation's arguments. */
ncclResult_t check_operation(const communicator &c, const operation &o, cudaStream_t stream);

/* Put a launch on its stream. */
ncclResult_t issue(const std::shared_ptr<launch> &l);

} // namespace emulate

#endif
