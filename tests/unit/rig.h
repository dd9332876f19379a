/* rig.h - what tests of the whole path share: a session of one rank without a world, steps with
 * the numbers of a configuration, tensors of the state by name, programs of many ranks. */
#ifndef TRIREME_TESTS_UNIT_RIG_H
#define TRIREME_TESTS_UNIT_RIG_H

#include "train/session.h"

/* The configuration of "key=value key=value ...", checked; ends the program if it is wrong. */
struct config rig_config(const char *settings);

/* A session that trains, without world and mesh, and evaluates if data.valid is set; generates:
 * texts that it continues at a time, with programs of generation whose context is data.seq_len; 0:
 * none. level NULL: the machine's best.  With run.threads threads, 1 if it is not set.  On the CPU,
 * or the first GPU when config says device=cuda. mem is the caller's.  Ends the program if it
 * cannot. Close with session_close(). */
struct session *rig_open(struct mem *mem, const struct config *config, const char *level,
                         int generates);

/* The same of a model, which it then owns, that no family's name stands for; world NULL: one rank,
 * else a session of one of its ranks, with a mesh.  Collective. */
struct session *rig_open_model(struct mem *mem, const struct config *config, struct model *model,
                               struct world *world, const char *level, int generates);

/* The logits that follow from row `row` of a sequence of count tokens, data.seq_len at most, fp32
 * [the model's vocabulary], in the session, which continues one text at a time. */
const float *rig_logits(const struct session *session, const int32_t *tokens, int64_t count,
                        int64_t row);

/* What to compile for a model: its second sequence, where it has one, is five tokens longer than
 * the first. */
struct units_request rig_units(const struct layout *layout, const struct config *config,
                               const struct model *model);

/* The state a run begins with, from the seed. */
void rig_init(struct session *session);

/* A step's numbers as the trainer sets them, without data. */
struct step_input rig_input(const struct session *session, int64_t step);

/* Sequences in memory as input of a step: micro-batch m is rows [m * batch, (m + 1) * batch). */
struct rig_data {
    int64_t batch, seq;
    const int32_t *tokens, *targets;
};
int rig_load(void *user, const struct step_batch *batch, struct error *err);

/* A logical tensor inside the whole flat parameter of *unit; NULL if there is none. */
const struct flat_tensor *rig_tensor(const struct session *session, const char *name, int *unit);

/* What a buffer of the training program holds, in memory to be free()d. */
void *rig_download(const struct session *session, int buffer);

/* The rank's fp32 state of a unit, on the CPU. */
enum rig_state { RIG_MASTER, RIG_GRAD, RIG_FIRST, RIG_SECOND };
float *rig_state(const struct session *session, int unit, enum rig_state which);

/* After masters were written: what is computed with follows them. */
void rig_refresh(const struct session *session);

/* A hash of all that persists: parameters, masters and moments of this rank. */
uint64_t rig_hash(const struct session *session);

/* The programs of all ranks of a layout, without ranks. */
struct fleet {
    struct layout layout;
    struct device *device;
    struct model *model;
    struct units *units, **place; /* of the first rank; of each place: layout_variants() */
    int ranks;
    struct state **state;
    struct program **program;
};

void fleet_open(struct fleet *fleet, const struct config *config, int ranks,
                enum program_kind kind);
/* The same of a model, which it then owns. */
void fleet_open_model(struct fleet *fleet, const struct config *config, struct model *model,
                      int ranks, enum program_kind kind);
/* The same, in training, of one rank: at a place of a tensor axis of so many ranks. */
void fleet_open_place(struct fleet *fleet, const struct config *config, struct model *model,
                      int tensors, int place);
void fleet_close(struct fleet *fleet);

/* Floating point operations of all pieces of a segment. */
double rig_flops(const struct segment *segment);

/* Memory of a GPU of a machine that every build knows. */
size_t rig_machine_bytes(const char *name);

/* Whether fewer settings and steps will do: tests/check.sh sets CHECK_SHORT=1, because an emulated
 * GPU takes minutes for what a GPU does at once, and ranks on few cores wait for each other; make
 * check-long and check-whole try all. */
int rig_is_short(void);

#endif
