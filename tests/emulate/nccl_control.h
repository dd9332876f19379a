/* nccl_control.h - a segment of memory that the ranks of an emulated communicator share.
 *
 * The segment is a memory file of the process that made it, which other processes open by process
 * number and descriptor, so that nothing is left behind when a process dies.  Each rank writes its
 * own member alone.
 */
#ifndef TRIREME_EMULATE_NCCL_CONTROL_H
#define TRIREME_EMULATE_NCCL_CONTROL_H

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <nccl.h>

#include "memory.h"

namespace emulate
{

enum { MAX_RANKS = 64 };

enum transfer { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, REDUCE, SEND, RECV };

enum departure { HERE, LEFT, ABORTED };

/* One rank's side of an operation, for the others to compare and read from. */
struct message {
    int32_t kind, type, op, root;
    uint64_t count;
    struct emulate_place send;
    uint64_t window_bytes, window_offset; /* of a gather by copy engines; 0 */
    int32_t registered;                   /* is the memory of a message? */
};

struct member {
    std::atomic<pid_t> pid;     /* 0: the rank is not there yet; written after the other members */
    uint64_t born, host;        /* start of the process; which machine its GPU is in */
    char bus[32];               /* of the GPU */
    std::atomic<int> accepted;  /* 1: the rank accepts the communicator; -1: it does not */
    std::atomic<int> departure; /* enum departure */
    std::atomic<uint64_t> posted, read; /* collectives begun; collectives read from all others */
    struct message collective;
    std::atomic<uint64_t> split_posted, split_made, split_read;
    int32_t color, key;
    pid_t child_pid; /* the segment of the new communicator, from its first rank */
    int32_t child_file;
};

/* Messages from one rank to another, one at a time. */
struct channel {
    std::atomic<uint64_t> sent, taken;
    struct message message;
};

struct control {
    std::atomic<int> ranks;
    std::atomic<int> failure; /* ncclResult_t all ranks get: they disagreed */
    char why[256];
    struct member member[MAX_RANKS];
    struct channel channel[MAX_RANKS][MAX_RANKS];
};

/* Make a segment; *file is its descriptor in this process.  NULL on failure. */
std::shared_ptr<control> control_make(int *file);

/* The segment that process pid has as descriptor file.  NULL when it is gone. */
std::shared_ptr<control> control_open(pid_t pid, int file);

/* Does the process of a member still run? */
bool member_lives(const struct member &m);

/* Wait until condition() holds.  Returns ncclSuccess, ncclRemoteError when a rank that is there
 * died or aborted, or ncclInvalidUsage when stop became true. */
ncclResult_t control_wait(const struct control &c, const std::atomic<bool> &stop,
                          const std::function<bool()> &condition);

/* Take place rank of ranks with the GPU at bus, and wait for the others.  Collective.  Fails with
 * ncclInvalidUsage and why when two ranks have the same GPU. */
ncclResult_t control_join(struct control &c, int rank, int ranks, const char *bus,
                          const std::atomic<bool> &stop, std::string *why);

} // namespace emulate

#endif
