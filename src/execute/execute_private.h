/* execute_private.h - what the files of the executor share. */
#ifndef TRIREME_STEP_EXECUTE_PRIVATE_H
#define TRIREME_STEP_EXECUTE_PRIVATE_H

#include <pthread.h>

#include "io/swap.h"
#include "execute/execute.h"

struct executor_mode;
struct tapes;

struct executor {
    const struct executor_mode *mode;
    struct device *device, *host; /* host: the CPU as a device, where UPDATE is there */
    struct mem *mem;
    struct mesh *mesh;
    struct group *group[GROUPS]; /* the mesh's */
    char *slab[POOL_COUNT];
    size_t slab_bytes[POOL_COUNT];
    struct comm_op *op;   /* per instruction */
    struct swap *swap;    /* what POOL_DISK is; NULL: nothing is there */
    struct swap_op *copy; /* per instruction */
    struct error failed;  /* of a file, in a copy_call(); under the lock */
    pthread_mutex_t lock;
    int64_t sent_bytes, moved_bytes[STREAMS]; /* of the step last started */
    double sums[SUM_COUNT];                   /* of the last step, where it is computed at once */
    int patience_s;
    struct tapes *tapes; /* of the mode that enqueues */
};

/* One execution. */
struct run_state {
    struct executor *x;
    const struct program *program;
    const struct step_input *input;
    struct trace *trace;
    struct step_pending *pending;
    int waited[STREAMS]; /* instructions of the stream up to here are complete */
    struct error *err;
};

/* How instructions of different streams get along: execute_sync.c for the CPU, whose calls
 * return when all is done, execute_async.c for devices with streams. */
struct executor_mode {
    int depth; /* steps in flight */
    /* after the slabs are there */
    int (*create)(struct executor *x, const struct program *const *programs, int count,
                  struct error *err);
    void (*destroy)(struct executor *x);
    int (*begin)(struct run_state *run);
    int (*load)(struct run_state *run, int micro, int32_t *tokens, int32_t *targets);
    int (*run)(struct run_state *run, int index);  /* a segment */
    int (*copy)(struct run_state *run, int index); /* FETCH and SPILL */
    int (*before)(struct run_state *run, int index);
    int (*after)(struct run_state *run, int index, int64_t start_ns);
    int (*end)(struct run_state *run);
    int (*finish)(struct executor *x, const struct step_pending *pending, struct error *err);
};

extern const struct executor_mode executor_at_once, executor_enqueued;

static inline int instr_is_transfer(const struct instr *instr)
{
    return instr->group >= 0;
}

static inline int instr_is_copy(const struct instr *instr)
{
    return instr->kind == INSTR_FETCH || instr->kind == INSTR_SPILL;
}

/* Is it a FETCH or SPILL between memory and POOL_DISK? */
static inline int instr_is_file(const struct instr *instr)
{
    return instr_is_copy(instr) && (instr->stream == STREAM_READ || instr->stream == STREAM_WRITE);
}

/* Begin a FETCH or SPILL between memory and POOL_DISK; wait for those of a stream up to one. */
int copy_begin(struct run_state *run, int index);
int copy_wait(struct run_state *run, enum stream stream, int until);

/* The same whole, for device_call(): the data it is given.  A failure is kept in the executor, and
 * those that follow do nothing; copy_check() tells of it. */
struct copy_call {
    struct executor *x;
    const struct program *program;
    int index;
};
void copy_call(void *call);
int copy_check(struct executor *x, struct error *err);

/* The segment a RUN of this program stands for. */

/* What follows on the compute stream is an instruction's work, or a wait for another stream: for
 * the step's breakdown, if one is wanted.  0, or -1 with err set. */
int run_enters_work(struct run_state *run, const struct instr *instr);
int run_enters_wait(struct run_state *run, enum stream stream);

/* Address of an operand, NULL if it is absent. */
void *run_operand(const struct run_state *run, const struct instr *instr, int slot);

/* The addresses a RUN binds to the spaces of its segment. */
void run_bases(const struct run_state *run, const struct instr *instr, void *base[SPACE_COUNT]);

/* Run or enqueue the ops of RUN instruction index; watch may be NULL. */
int run_segment(struct run_state *run, int index, struct segment_watch *watch);

/* What each kind of instruction does. */
extern int (*const run_action[INSTR_KINDS])(struct run_state *run, int index);

#endif
