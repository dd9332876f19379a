/* execute_private.h - what the files of the executor share. */
#ifndef TRIREME_EXECUTE_EXECUTE_PRIVATE_H
#define TRIREME_EXECUTE_EXECUTE_PRIVATE_H

#include <pthread.h>

#include "io/swap.h"
#include "program/memory.h"
#include "execute/execute.h"

struct executor_mode;
struct async;

struct executor {
    const struct executor_mode *mode;
    struct device *device, *host; /* host: the CPU as a device, where UPDATE is there */
    struct mem *mem;
    struct mesh *mesh;
    struct memory_need need; /* what memory_slabs() sets of it */
    char *slab[POOL_COUNT];  /* NULL: the programs have no buffer there, or it is the file */
    int transferred;         /* slabs that transfers read and write: see executor.c */
    struct comm_op *op;      /* per instruction: of transfers */
    struct swap *swap;       /* the file of POOL_DISK; NULL: no program has that pool */
    struct swap_op *copy; /* per instruction, where there is a swap: its read or write, if the host
                             waits for it */
    struct error failed;  /* first failure of a read or write in copy_call_*(); under the lock */
    pthread_mutex_t lock;
    int64_t sent_bytes, moved_bytes[STREAMS]; /* of the step last started */
    double *sums;                             /* synchronous: of the last step */
    int hang_seconds;                         /* of executor_watch(); 0: without end */
    struct async *async;                      /* asynchronous: its own */
};

/* One execution. */
struct step_run {
    struct executor *x;
    const struct program *program;
    const struct step_input *input;
    struct trace *trace;
    struct step_pending *pending;
    int waited[STREAMS]; /* synchronous: per stream, the last instruction known to be complete */
    int span;     /* asynchronous: the open span of the present instruction, in a traced step */
    int is_named; /* err says which instruction failed */
    struct error *err;
};

/* What is done with instruction `index` of the step's program.  0, or -1 with run->err set. */
typedef int step_action(struct step_run *run, int index);

/* How instructions are carried out, and how those of different streams wait for one another:
 * execute_sync.c for the CPU, whose calls return when all is done, execute_async.c for devices with
 * streams.  Functions that are NULL have nothing to do. */
struct executor_mode {
    step_action *action[INSTR_KINDS]; /* NULL: that of step_actions */
    /* Wait, or let its stream wait, for what an instruction waits for. */
    step_action *before;
    /* Note, after its action, that an instruction that began at start_ns (of a traced step; else
     * 0) has ended, or been enqueued. */
    int (*after)(struct step_run *run, int index, int64_t start_ns);
    /* Begin a step. */
    int (*begin)(struct step_run *run);
    /* End a step and its breakdown: the last instruction was given to its stream. */
    int (*end)(struct step_run *run);
    /* Wait until a step is done. */
    int (*finish)(struct executor *x, const struct step_pending *pending, struct error *err);
    /* Copy the logits of generation to the host's memory, where the buffer's are not there. */
    float *(*logits)(struct executor *x, const struct program_buffer *buffer, struct error *err);
    /* In executor_allocate(), after the slabs are there; then executor_note_products() and
     * executor_prepare(). */
    int (*create)(struct executor *x, int programs, struct error *err);
    int (*note_products)(struct executor *x, const struct program *const *programs, int count,
                         const struct optimizer_rule *rule, struct error *err);
    int (*prepare)(struct executor *x, const struct program *const *programs, int count,
                   const struct optimizer_rule *rule, struct error *err);
    void (*destroy)(struct executor *x);
};

extern const struct executor_mode executor_sync, executor_async;

/* What is done in both modes, by kind (execute_actions.c); of LOAD, RUN, FETCH and SPILL each mode
 * has its own. */
extern step_action *const step_actions[INSTR_KINDS];

/* Is it a FETCH or SPILL between memory and POOL_DISK? */
static inline int instr_is_file(const struct instr *instr)
{
    return instr_is_copy(instr) && (instr->stream == STREAM_READ || instr->stream == STREAM_WRITE);
}

/* What a stream of the program is when it runs. */
struct step_stream {
    enum breakdown_kind
        wait; /* what waiting for it counts as; BREAKDOWN_OTHER: not counted apart */
    int comm; /* 1 + the enum comm_stream of its transfers; 0: it has none */
    enum device_stream device; /* the device's stream */
};
extern const struct step_stream step_streams[STREAMS];

/* Count what a FETCH or SPILL moves; returns its bytes. */
size_t run_count_moved(struct step_run *run, const struct instr *instr);

/* Begin a FETCH or SPILL between memory and POOL_DISK (copy_begin), and wait for it (copy_end). */
step_action copy_begin, copy_end;

/* The same two as functions for device_call(), whose argument is the same struct copy_call.  The
 * first failure is kept in the executor, later copies do nothing, and copy_check() returns it. */
struct copy_call {
    struct executor *x;
    const struct program *program;
    int index;
    struct swap_op op;
    int is_under_way;
};
void copy_call_begin(void *call);
void copy_call_end(void *call);
int copy_check(struct executor *x, struct error *err);

/* For the step's breakdown, if one is wanted: from here on the compute stream does an instruction's
 * work, or waits for another stream.  0, or -1 with err set. */
int run_time_work(struct step_run *run, const struct instr *instr);
int run_time_wait(struct step_run *run, enum program_stream stream);

/* Add an instruction to the trace, if there is one. */
void run_trace(struct step_run *run, int index, int64_t start_ns, int64_t end_ns, int64_t bytes);

/* Add to the text of run->err the step and instruction in which it happened, unless they are there.
 * Returns -1. */
int run_name_failure(struct step_run *run, int index);

/* Have the caller fill what a LOAD loads, in memory of the host: by slot, NULL where it has none.
 * Positions and documents that ops cannot take are refused: 0, or -1 with run->err set. */
int run_load(struct step_run *run, const struct instr *instr, int32_t *const to[LOAD_SLOTS]);

/* Address of an operand, NULL if it is absent. */
void *run_operand(const struct step_run *run, const struct instr *instr, int slot);

/* The addresses a RUN binds to the spaces of its segment. */
void run_bases(const struct step_run *run, const struct instr *instr, void *base[SPACE_COUNT]);

/* Run or enqueue the ops of RUN instruction index; watch may be NULL. */
int run_segment(struct step_run *run, int index, struct segment_watch *watch);

#endif
