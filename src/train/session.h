/* session.h - one rank's part of a run, ready to execute: device, mesh, model, programs,
 * memory.  Commands that compute anything open one.
 */
#ifndef TRIREME_TRAIN_SESSION_H
#define TRIREME_TRAIN_SESSION_H

#include "base/log.h"
#include "base/mem.h"
#include "comm/world.h"
#include "config/config.h"
#include "execute/execute.h"
#include "program/layout.h"
#include "program/memory.h"
#include "train/product_table.h"

enum session_use { SESSION_TRAIN, SESSION_EVALUATE, SESSION_GENERATE };

enum { SESSION_PROGRAMS = 5 };

enum { WEIGHTS_HASH = 24 }; /* characters of a hash of a model's files (weights.h) */

struct session {
    struct world *world; /* the caller's, as are log and mem */
    struct log *log;
    struct mem *mem;
    struct config config; /* a copy, in which parallel.layout=auto has its layout */
    struct layout layout;
    struct device *device;
    struct model *model;
    struct mesh *mesh;
    struct units *units;
    struct state *state; /* of this rank, which its programs share */
    /* NULL where the use needs none; update: what train leaves to its next step, if it does. */
    struct program *train, *update, *evaluate, *prompt, *token;
    const struct program *programs[SESSION_PROGRAMS]; /* those of the five that are not NULL */
    int program_count;
    struct memory_need need;  /* what this rank has still to allocate */
    struct mesh_options comm; /* how its GPU communicates */
    struct executor *executor;
    struct product_table products;    /* the algorithms that its GPU was given */
    struct shape_check *wrong_shapes; /* those that were wrong on a rank, and are replaced on all */
    int wrong_shape_count;
    /* Of a model with adapters, on rank 0: hash of the files from which the frozen tensors were
     * read, "" before that. */
    char base_hash[WEIGHTS_HASH];
    int holds_frozen; /* 1: checkpoints hold the frozen tensors, because no files have them */
    int data_rank;    /* layout_data_rank() of this rank */
};

/* Compile, verify and allocate for a use.  A session for SESSION_GENERATE has the programs of
 * generation (generator.h) and no others; one that trains with generate.samples above 0 has them,
 * too.  world, log and mem stay the caller's and must outlive the session.  Collective over world.
 * Returns 0 and a session for session_close(), or -1 on all ranks with err set.  limits (NULL
 * allowed): after a failure for lack of memory what the rank that has least of it has; else all 0.
 */
int session_open(struct session **session, struct world *world, struct log *log, struct mem *mem,
                 const struct config *config, enum session_use use, struct memory_limits *limits,
                 struct error *err);
void session_close(struct session *session); /* NULL allowed; collective */

/* Warn, on rank 0, where layers are divided among ranks of several nodes. */
void session_warn_far_tensors(const struct session *session);

/* Warn, on rank 0, where the rows of a micro-batch cannot be cut into the parts that
 * parallel.tensor_overlap asks for. */
void session_warn_lost_overlap(const struct session *session);

/* Warn, on rank 0, where device=auto chose the CPU on a machine, or in a job, that has GPUs. */
void session_warn_unused_gpus(const struct session *session);

#endif
