/* faults.h - for test_history*.c: making faults in real programs of tensor ranks and stages, one at
 * a time, and mending them again. */
#ifndef TRIREME_TESTS_UNIT_FAULTS_H
#define TRIREME_TESTS_UNIT_FAULTS_H

#include "tests/unit/rig.h"

/* Llama and GPT-2, whose boundaries are own rows of each tensor rank, as the settings say. */
#define FAULTS_SIZES                                                                           \
    "model.layers=2 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 data.seq_len=7 " \
    "train.micro_batch=1 "

/* Spoil a program in every place where a fault is possible, one at a time: make the fault, call
 * faults_refused(), mend it.  Returns the number of places. */
typedef int faults_fn(struct program *program);

/* Spoil the training program of each rank of each layout, also of the models of
 * tests/unit/divided.h. All programs together must have at least `least` places, and are accepted
 * before and after. */
void faults_everywhere(faults_fn *spoil, int least);

/* Call spoil for each flat that the rank trains, and restore the list of instructions after each
 * call. Returns the sum of what spoil returned. */
int faults_each_flat(struct program *program, int (*spoil)(struct program *program, int flat));

/* Check that the program is refused for what it computes, with a text that has `name` in it, or
 * `other` (NULL: no other). */
void faults_refused(const struct program *program, const char *name, const char *other);

/* A copy of a program's list of instructions. */
struct faults_kept {
    struct instr *instr; /* [instrs] */
    int instrs;
};
/* Copy the list. */
struct faults_kept faults_keep(const struct program *program);
/* Put the copy back and free it. */
void faults_restore(struct program *program, struct faults_kept *kept);

/* Let an instruction do nothing. */
void faults_leave_out(struct instr *instr);
/* Move an instruction to place `to`; those between move by one. */
void faults_move(struct program *program, int from, int to);
/* Insert an instruction at place i. */
void faults_insert(struct program *program, int i, struct instr copy);

const char *faults_name(const struct program *program, int flat);

/* Find the first instruction of a kind that works on a flat (-1: on none).  Returns its index, or
 * -1: there is none. */
int faults_find(const struct program *program, enum instr_kind kind, int flat);

/* Return the number that a flat has among the flats of the unit of a RUN, if the RUN writes the
 * flat's gradient; else -1. */
int faults_use_written(const struct program *program, const struct instr *run, int flat);

/* Does an instruction make the gradient of a flat, sum it over ranks or add to it? */
int faults_makes_gradient(const struct program *program, const struct instr *instr, int flat);

#endif
