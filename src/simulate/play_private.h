/* play_private.h - what play.c and the files of its parts share. */
#ifndef TRIREME_SIMULATE_PLAY_PRIVATE_H
#define TRIREME_SIMULATE_PLAY_PRIVATE_H

#include "simulate/play.h"

enum { ACTIVITIES_MOST = STREAMS }; /* of a rank */

struct play_member {
    int rank, instr;
};

struct play_activity {
    int members, capacity;
    struct play_member *member; /* of a transfer the ranks that came to it; else one */
    enum play_link link;
    double beside;  /* share of its speed that it keeps beside compute */
    int only_waits; /* 1: beside compute it only waits for a processor, so that compute is not
                       slower */
    int is_compute; /* 1: it takes the compute units of its rank */
    double start_s, since_s, left_s, rate; /* left_s: at full speed, from since_s on */
    double end_s;
    int at; /* in engine.running */
};

struct play_stream {
    int next;    /* the instruction to start next; instrs: none */
    int current; /* the one last started */
    int open;    /* 1: `current` has not ended */
    int awaits;  /* the rank at the other end, where `current` is a message that waits for it; else
                    -1 */
    int done;    /* the last that has ended, with all before it; -1 */
    double started; /* when `done` started: of a transfer, when all members had come */
    double ended;   /* when `done` ended */
    double came;    /* when `done` had all that it waited for on its own rank */
    int held_by; /* the instruction of its own rank for which `done` waited last; -1: none but the
                    one before it */
    int worked;  /* the last that has ended and took time; -1 */
    int took;    /* `done`, or where that took no time what held it; -1 */
    int starts_after;    /* the transfer of another stream that `next` waited for to start; -1 */
    double current_came; /* `came` of `current` */
    int current_held_by;
};

struct play_progress {
    const struct program *program;
    int *next_on_stream; /* per instruction: the next one on its stream; instrs: none */
    int global;          /* the number of this rank in the job */
    int issued;          /* the host has issued what is before this */
    int host_runs;       /* 1: the host is at work on instruction `issued` */
    int unstarted;       /* transfers before this have started, to their last kernel */
    struct play_stream stream[STREAMS];
    struct play_activity *active[ACTIVITIES_MOST];
    int actives;
    int computes;                  /* activities of the compute units */
    double idle_since;             /* of the compute stream */
    double busy_before_s[STREAMS]; /* of each stream: what busy_s was at idle_since */
    int waits_for;                 /* the instruction that it was last seen to wait for; -1 */
};

struct play_engine {
    const struct play_request *request;
    struct play *play;
    struct play_progress *rank;
    int *of_global; /* the simulated rank of a rank of the job, or -1 */
    int world;
    int *arrived[MESH_SETS]; /* per set of axes, rank that is first in its group and stream: members
                                that have come; NULL where no instruction has these axes */
    int *first[MESH_SETS], *present[MESH_SETS]; /* per rank: the first of its group that is
                                                   simulated, and how many are */
    struct play_activity **running;
    int count, capacity;
    struct play_activity **spare; /* that have ended */
    int spares, spare_capacity;
    struct play_member *ended; /* of the activity that ends */
    int ended_capacity;
    double now;
};

static inline const struct instr *play_instr_of(const struct play_engine *e, int rank, int i)
{
    return &e->rank[rank].program->instr[i];
}

static inline struct play_cost play_cost_of(const struct play_engine *e, int rank, int i)
{
    return e->request->cost(e->request->user, rank, i);
}

/* Does the host do what is on a stream itself? */
static inline int play_is_hosts(const struct play_engine *e, enum program_stream stream)
{
    return stream == STREAM_HOST || (e->request->host_is_compute && stream == STREAM_COMPUTE);
}

/* Does what is on a stream take the time of the compute stream? */
static inline int play_takes_compute(const struct play_engine *e, enum program_stream stream)
{
    return stream == STREAM_COMPUTE || (e->request->host_is_compute && stream == STREAM_HOST);
}

/* Fill an engine whose request and play are set: its ranks, with nothing issued, and the groups of
 * all axes that their instructions use.  play_engine_free() frees what it and the step made. */
void play_engine_make(struct play_engine *e);
void play_engine_free(struct play_engine *e);

/* A rank has come to instruction i, a transfer, which is `current` on its stream.  Begin the
 * transfer where the rank is the last of those simulated that take part in it. */
void play_transfer_arrive(struct play_engine *e, int rank, int i);

/* May instruction i start, as to the order of transfers?  Those of a GPU are kernels of NCCL, which
 * starts them in the order of the list, on whatever streams.  If not, note in its stream the
 * transfer that must start first. */
int play_transfer_is_in_order(struct play_engine *e, int rank, int i);

/* Note what the compute stream of a rank has waited for from its last work until now. */
void play_account_wait(struct play_engine *e, int rank);

/* The same from its last work to the end of the step, which is now. */
void play_account_end(struct play_engine *e, int rank);

/* Begin an activity that has no rank yet: play_join() adds the ranks, each with its instruction. */
struct play_activity *play_begin(struct play_engine *e, struct play_cost cost, int is_compute);
void play_join(struct play_engine *e, struct play_activity *a, int rank, int instr);

/* Set the rates of what runs on a rank anew, because something began or ended there; of_members: on
 * all ranks of an activity. */
void play_set_rates(struct play_engine *e, int rank);
void play_set_rates_of_members(struct play_engine *e, const struct play_activity *a);

/* Take an activity from what runs.  It stays as it is until the next one begins. */
void play_end(struct play_engine *e, struct play_activity *a);
void play_activity_free(struct play_activity *a);

#endif
