/* play.h - discrete-event simulation of one step of several ranks: when each instruction starts and
 * ends.  To "play" a step is to simulate it.
 *
 * Events, one after another: whatever can start, starts; then time goes on to the next end.
 *
 *   - An instruction starts when its stream has ended what came before, when what it waits for has
 *     ended, and when the host has issued it.  On processors the host is the compute stream, as in
 *     execute_sync.c; a GPU's host runs ahead, but for its own work (STREAM_HOST), and its
 *     transfers start in the order of the list, as NCCL's kernels do.
 *   - A collective starts when all members have come to it, a message when both ends have.
 *   - What takes 10 ms by itself takes longer beside others: compute keeps a share of its speed
 *     beside a transfer and a transfer beside compute, and transfers of a rank that go through one
 *     link at the same time share it.  So do copies from and to the page cache.  A message may have
 *     a share of its own: the thread that communicates waits until the processor is its own, and
 *     the ranks meanwhile compute as fast as ever.
 *
 * The ranks need not be all of the job: a member of a group that is not among them is taken to come
 * when those come that are.  So of a symmetric job the first rank of each coordinate along the
 * pipeline stands for all.
 */
#ifndef TRIREME_SIMULATE_PLAY_H
#define TRIREME_SIMULATE_PLAY_H

#include "base/error.h"
#include "program/program.h"

/* What a rank's compute stream does, or waits for while it does nothing. */
enum play_kind {
    PLAY_FORWARD,
    PLAY_BACKWARD,
    PLAY_UPDATE, /* norms, updates, casts and all other work */
    PLAY_GATHER, /* waits, from here on: for a transfer while it moves, */
    PLAY_REDUCE,
    PLAY_ALL_REDUCE,
    PLAY_ALL_TO_ALL,
    PLAY_MESSAGE,
    PLAY_COPY,  /* of offloaded state */
    PLAY_RANKS, /* or for other ranks to come to it: the bubble of a pipeline, ranks that are slow
                 */
    PLAY_KINDS
};

const char *play_kind_name(enum play_kind kind);

/* What the compute stream does where it runs an instruction, or waits for where it waits for it. */
enum play_kind play_kind_of(const struct instr *instr);

/* Does the compute stream wait? */
static inline int play_kind_is_wait(enum play_kind kind)
{
    return kind >= PLAY_GATHER;
}

/* Through what a transfer goes: transfers of a rank through one link at the same time share it, and
 * so do copies of a rank from and to files that the page cache has. */
enum play_link { LINK_NONE, LINK_NODE, LINK_NETWORK, LINK_FILE };

/* An instruction with nothing beside it; the link of a transfer or copy. */
struct play_cost {
    double seconds;
    enum play_link link;
    double beside; /* share of its speed that a transfer keeps beside compute, as it waits for a
                      processor to itself; 0: the request's, and compute is slower too */
};

struct play_rank {
    double end_s;               /* when its last instruction ends */
    double seconds[PLAY_KINDS]; /* of its compute stream; all together the step's */
    double busy_s[STREAMS];     /* that something ran on each stream */
};

/* Called when an instruction has ended; zero-length ones are left out.  Times in seconds from the
 * start of the step. */
typedef void play_watch(void *user, int rank, int instr, double start_s, double end_s);

/* Called for each part of the time in which the compute stream of a rank waited for an instruction
 * of that rank.  kind: play_kind_of() the instruction while it worked, PLAY_RANKS while it waited
 * for other ranks.  Called too for the end of the step, where only other streams of the rank still
 * work. */
typedef void play_waited(void *user, int rank, int instr, enum play_kind kind, double seconds);

struct play_request {
    int ranks;
    const struct program *const *program;   /* of each, no two of the same coordinates */
    double beside_compute, beside_transfer; /* shares of their speed, above 0 */
    double beside_file_compute, beside_file;
    int host_is_compute; /* 1: on processors */
    double step_s;       /* of each step, beside its instructions */

    struct play_cost (*cost)(void *user, int rank, int instr);
    play_watch *watch;   /* or NULL */
    play_waited *waited; /* or NULL */
    void *user;          /* the caller's */
};

struct play {
    int ranks;
    double step_s; /* until the last rank's last instruction has ended */
    struct play_rank *rank;
};

/* Play one step.  Returns 0 and a play for play_free(), or -1 with err set where ranks wait for one
 * another for ever, which verify_ranks() would have refused.  Pure. */
int play_step(struct play *play, const struct play_request *request, struct error *err);
void play_free(struct play *play);

#endif
