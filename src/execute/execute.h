/* execute.h - run a program: the list, as it was planned and checked. */
#ifndef TRIREME_EXECUTE_EXECUTE_H
#define TRIREME_EXECUTE_EXECUTE_H

#include "base/mem.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "device/ops.h"
#include "execute/breakdown.h"
#include "segment/optimizer.h"
#include "program/program.h"
#include "program/trace.h"

struct executor;

/* A micro-batch of this rank, to be filled: arrays in host memory, NULL for what no segment reads.
 * All but samples have an int32 for each row, [batch, tokens of the sequence]. */
struct step_batch {
    int micro;                     /* number of the micro-batch in the step */
    int32_t *tokens[SEQUENCES];    /* token ids */
    int32_t *targets;              /* ids to be predicted, of the loss's sequence; -1: masked */
    int32_t *positions[SEQUENCES]; /* position of the row in its document */
    int32_t
        *documents[SEQUENCES];    /* position, in the row's sequence, of its document's first row */
    uint32_t *samples[SEQUENCES]; /* [batch, 2]: number of the sequence's sample, counted from the
                                     start of training: lower 32 bits, upper 32 bits */
};

/* What one step is given. */
struct step_input {
    /* Fill a micro-batch's tokens and targets.  Returns 0, or -1 with err set, which ends the step
     * on this rank alone. */
    int (*load)(void *user, const struct step_batch *batch, struct error *err);
    /* Of programs whose segments read positions, documents or samples: fill these.  NULL where
     * programs read none.  Returns as load. */
    int (*load_positions)(void *user, const struct step_batch *batch, struct error *err);
    void *user; /* first argument of both */
    /* The rule of the update that the program makes: by the gradients of this step or, in a
     * PROGRAM_TRAIN that updates first (program_updates_first()), of the step before. */
    struct optimizer_rule rule;
    uint64_t seed; /* of stochastic rounding, whose random numbers also depend on the step whose
                      gradients are used */
    int64_t step;  /* from 1; for PROGRAM_UPDATE the step whose gradients it uses; 0: none, in
                      programs that do not train */
    int decay_all; /* 1: weight decay on every tensor; 0: on matrices only */
    double clip;   /* of the gradient's norm; 0: none */
    double nominal_targets;      /* the count of targets by which gradients are divided until SCALE
                                    (layout_step_tokens()) */
    double loss_scale;           /* gradients are those of the loss times this; 0 stands for 1 */
    int stop_vote;               /* 1: this rank asks all to stop after the step */
    struct breakdown *breakdown; /* filled by step_finish(); the caller's; NULL: not wanted */
};

/* How evenly routers have divided a step's tokens among experts.  A router's largest load is the
 * tokens of its most loaded expert over the mean of its experts: 1 where all have equally many. */
struct step_experts {
    int routers;  /* whose tokens were counted: they are in training, where a router has a gradient
                   */
    double mean;  /* of the routers' largest loads */
    double most;  /* of them */
    int64_t idle; /* experts of all routers that had no token */
};

/* The results of one step; the same on all ranks. */
struct step_output {
    double loss;      /* mean over the targets of the global batch; NAN where there were none */
    double targets;   /* how many there were */
    double grad_norm; /* of the mean gradient, before clipping; training only */
    double votes;     /* ranks that asked to stop */
    int skipped;      /* 1: the norm was not finite, nothing was updated; on all ranks alike */
    struct step_experts experts; /* training only */
};

/* Make an executor of programs that run one at a time (same units, same state): allocate cleared
 * slabs, counted in mem, and make the file of POOL_DISK in swap_folder (NULL where programs have
 * none); on a device that only enqueues, also capture the segments, and load the kernels of all
 * instructions, each kind of which runs once on cleared slabs.  mesh may be NULL for one rank. rule
 * is that of a step that updates, for its number of products; NULL where no program updates.
 * device, mesh, mem and programs stay the caller's and must outlive the executor.  Not collective.
 * Returns 0, or -1 with err set.  For tests: a session calls executor_allocate() and
 * executor_prepare() itself. */
int executor_create(struct executor **executor, struct device *device, struct mesh *mesh,
                    struct mem *mem, const struct program *const *programs, int count,
                    const struct optimizer_rule *rule, const char *swap_folder, struct error *err);

/* executor_create() in two: executor_allocate() allocates memory, executor_prepare() makes what the
 * first step needs besides.  Between them, and not later, executor_note_products() may be called:
 * the device notes the matrix products of all segments and of Muon (device/product.h); the other
 * ops of these run once.  The algorithms that are chosen for the products are then captured.  The
 * programs and the rule are the same in all calls.  Each returns 0, or -1 with err set;
 * executor_allocate() then frees what it made, the others leave that to executor_destroy(). */
int executor_allocate(struct executor **executor, struct device *device, struct mesh *mesh,
                      struct mem *mem, const struct program *const *programs, int count,
                      const char *swap_folder, struct error *err);
int executor_note_products(struct executor *executor, const struct program *const *programs,
                           int count, const struct optimizer_rule *rule, struct error *err);
int executor_prepare(struct executor *executor, const struct program *const *programs, int count,
                     const struct optimizer_rule *rule, struct error *err);
void executor_destroy(struct executor *executor); /* NULL allowed; waits for the device */

/* Register the memory that transfers read and write (mesh_register()).  Collective over the mesh's
 * world.  Returns 0, or -1 on all ranks with err set. */
int executor_register(struct executor *executor, struct error *err);

/* Let a step fail with EXIT_HANG, naming the transfer, when nothing of it has ended for `seconds`;
 * 0, as at the start: never.  For devices that only enqueue, and for reads and writes of the file;
 * on CPUs world_watch() watches the transfers. */
void executor_watch(struct executor *executor, int seconds);

/* Fill use with the counters of the file of POOL_DISK since it was opened; zeros where there is
 * none. */
struct swap_use;
void executor_measure(const struct executor *executor, struct swap_use *use);

/* The address of a buffer of a program, or of one of the state that outlives the step; NULL for one
 * in a file. */
void *executor_buffer(const struct executor *executor, const struct program_buffer *buffer);

/* Return the logits of a program of generation that was executed, on a rank that has them
 * (program->logits): fp32 [texts, the model's vocabulary] in memory of the host, where the caller
 * may change them until a program is executed again.  NULL with err set if they cannot be copied
 * there.
 */
float *executor_logits(struct executor *executor, const struct program *program, struct error *err);

/* The device whose ops work on the host's memory: the same on the CPU, else one beside it. */
struct device *executor_host(const struct executor *executor);

/* Copy bytes of a buffer, wherever it lies, from its byte `from` on, to or from host memory.
 * Between steps.  Return 0, or -1 with err set. */
int executor_read(struct executor *executor, const struct program_buffer *buffer, size_t from,
                  void *to, size_t bytes, struct error *err);
int executor_write(struct executor *executor, const struct program_buffer *buffer, size_t from,
                   const void *data, size_t bytes, struct error *err);

/* A step under way; private. */
struct step_pending {
    const struct program *program;
    const double *sums;        /* enum SUM_...: in the host's memory once the step is done */
    struct device_event *done; /* of an asynchronous device: after the step */
    struct trace *trace;
    struct step_input input;
    int slot; /* of an asynchronous device: slot of the double buffer for what the step loads, and
                 its sums */
};

/* Run all instructions of a program.  step_start() begins; on an asynchronous device it only
 * enqueues them, and two steps (MEMORY_STEPS) may be under way; elsewhere the step has ended when
 * it returns. step_finish() waits for the end and fills output (NULL allowed) and trace (NULL
 * allowed); steps are finished in the order of their start.  Collective over the executor's mesh.
 * Both return 0, or -1 with err naming the instruction: on this rank alone, while the others wait
 * for it, so that the job has to be ended at once (world_end_job_if_failed()). */
int step_start(struct executor *executor, const struct program *program,
               const struct step_input *input, struct trace *trace, struct step_pending *pending,
               struct error *err);
int step_finish(struct executor *executor, const struct step_pending *pending,
                struct step_output *output, struct error *err);

/* step_start() and step_finish(); output may be NULL. */
int executor_run_step(struct executor *executor, const struct program *program,
                      const struct step_input *input, struct step_output *output,
                      struct trace *trace, struct error *err);

/* Payload bytes sent to other ranks by the step last started; for tests. */
int64_t executor_sent_bytes(const struct executor *executor);

/* Bytes of offloaded state that this step moves on STREAM_FETCH, _SPILL, _READ or _WRITE; for
 * tests.
 */
int64_t executor_moved_bytes(const struct executor *executor, enum program_stream stream);

#endif
