/* rig.h - what tests of the whole path share: a session of one rank without a world, steps with
 * the numbers of a configuration, tensors of the state by name, programs of many ranks. */
#ifndef TRIREME_TESTS_UNIT_RIG_H
#define TRIREME_TESTS_UNIT_RIG_H

#include "train/session.h"

/* The configuration of "key=value key=value ...", checked; ends the program if it is wrong. */
struct config rig_config(const char *settings);

/* Open a session of one rank, without world and mesh, for session_close().  It trains, and
 * evaluates if data.valid is set.  generates: number of texts that it continues at a time, with a
 * context of data.seq_len; 0: no programs of generation.  level: CPU level of the kernels; NULL:
 * the machine's best.  It has run.threads threads, 1 if that is not set, and runs on the CPU, or on
 * the first GPU when config says device=cuda.  mem stays the caller's.  A failure ends the program.
 */
struct session *rig_open(struct mem *mem, const struct config *config, const char *level,
                         int generates);

/* Open a session as rig_open() does, of a model of the test's own, which the session owns from now
 * on. world NULL: of one rank; else of this rank of the world, with a mesh.  Collective over world.
 */
struct session *rig_open_model(struct mem *mem, const struct config *config, struct model *model,
                               struct world *world, const char *level, int generates);

/* Compute the logits behind row `row` of a sequence of `count` tokens, at most data.seq_len, by the
 * programs of generation of a session that continues one text at a time.  Returns fp32 [model's
 * vocabulary] in memory of the session. */
const float *rig_logits(const struct session *session, const int32_t *tokens, int64_t count,
                        int64_t row);

/* Return the request that compiles a model's units.  The model's second sequence, where it has one,
 * is five tokens longer than its first. */
struct units_request rig_units(const struct layout *layout, const struct config *config,
                               const struct model *model);

/* Set the state with which a run begins, from the seed. */
void rig_init(struct session *session);

/* Return a step's numbers (learning rate, ...) as the trainer sets them, without data. */
struct step_input rig_input(const struct session *session, int64_t step);

/* Sequences in memory as input of a step: micro-batch m is rows [m * batch, (m + 1) * batch). */
struct rig_data {
    int64_t batch, seq;
    const int32_t *tokens, *targets;
};
int rig_load(void *user, const struct step_batch *batch, struct error *err);

/* A step of a session as its input: each step has other tokens, so that steps in flight have their
 * own; every seventh target is masked. */
struct rig_step {
    const struct session *session;
    int step;
};
int rig_load_step(void *user, const struct step_batch *batch, struct error *err);

/* Find a logical tensor by name in the session's flats.  Returns the tensor, and in *flat the
 * number of its flat; NULL: there is none. */
const struct flat_tensor *rig_tensor(const struct session *session, const char *name, int *flat);

/* Copy a buffer of the training program to the host; for free(). */
void *rig_download(const struct session *session, int buffer);

/* Return the fp32 state of this rank's shard of flat number `flat`, in memory of the session.  On
 * the CPU alone. */
enum rig_state { RIG_MASTER, RIG_GRAD, RIG_FIRST, RIG_SECOND };
float *rig_state(const struct session *session, int flat, enum rig_state which);

/* Set the parameters that are computed with from the masters, after a test has written masters. */
void rig_refresh(const struct session *session);

/* Return a hash of this rank's parameters, masters and moments. */
uint64_t rig_hash(const struct session *session);

/* The states and programs of all ranks of a layout, compiled in this one process.  They are checked
 * and measured, not run. */
struct fleet {
    struct layout layout;
    struct device *device;
    struct model *model;
    struct units *units;    /* of rank 0 */
    struct units **variant; /* per variant of units (layout_variants()) */
    int ranks;
    struct state **state;     /* [ranks] */
    struct program **program; /* [ranks] */
};

/* Compile the programs of this kind of all ranks, for fleet_close().  A failure ends the program.
 */
void fleet_open(struct fleet *fleet, const struct config *config, int ranks,
                enum program_kind kind);
/* Do the same with a model of the test's own, which the fleet owns from now on. */
void fleet_open_model(struct fleet *fleet, const struct config *config, struct model *model,
                      int ranks, enum program_kind kind);
/* Do the same for the training program of one rank alone, with coordinate tensor_rank on a
 * tensor axis of `tensors` ranks. */
void fleet_open_tensor_rank(struct fleet *fleet, const struct config *config, struct model *model,
                            int tensors, int tensor_rank);
void fleet_close(struct fleet *fleet);

/* Count the floating point operations of all pieces of a segment. */
double rig_flops(const struct segment *segment);

/* Return the bytes of a GPU's memory, of a machine that every build knows by name. */
size_t rig_machine_bytes(const char *name);

/* Whether fewer settings and steps will do: tests/check.sh sets CHECK_SHORT=1, because an emulated
 * GPU takes minutes for what a GPU does at once, and ranks on few cores wait for each other; make
 * check-long and check-whole try all. */
int rig_is_short(void);

#endif
