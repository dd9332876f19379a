/* faults.h - what test_history.c and test_history_order.c share: real programs of tensor ranks and
 * stages, in which faults are made one at a time, and put right again. */
#ifndef TRIREME_TESTS_UNIT_FAULTS_H
#define TRIREME_TESTS_UNIT_FAULTS_H

#include "tests/unit/rig.h"

/* Llama and GPT-2, whose boundaries are own rows of each tensor rank, as the settings say. */
#define FAULTS_SIZES                                                                           \
    "model.layers=2 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 data.seq_len=7 " \
    "train.micro_batch=1 "

/* Spoil a program in every place, each time faults_refused() and put right again; returns in how
 * many. */
typedef int faults_fn(struct program *program);

/* In each rank's training program of each layout, those of tests/unit/divided.h with whole
 * boundaries too: in `least` places at least.  Before and after, all are accepted. */
void faults_everywhere(faults_fn *spoil, int least);

/* The same of each flat that the rank trains; the list is put right after each. */
int faults_each_flat(struct program *program, int (*spoil)(struct program *program, int flat));

/* Refused, for what it computes, with a text that has `name` in it, or `other` (NULL: no other). */
void faults_refused(const struct program *program, const char *name, const char *other);

/* A list as it is, to be put back; what keeps it is free()d by that. */
struct faults_kept {
    struct instr *instr;
    int instrs;
};
struct faults_kept faults_keep(const struct program *program);
void faults_restore(struct program *program, struct faults_kept *kept);

/* Let an instruction do nothing; move one to place `to`, and those between by one; put a copy of
 * one in place i. */
void faults_leave_out(struct instr *instr);
void faults_move(struct program *program, int from, int to);
void faults_insert(struct program *program, int i, struct instr copy);

const char *faults_name(const struct program *program, int flat);

/* The first instruction of a kind that works on a flat (-1: on none); -1: there is none. */
int faults_find(const struct program *program, enum instr_kind kind, int flat);

/* The number of a flat among those that the unit of a RUN uses and whose gradient it writes; -1. */
int faults_use_written(const struct program *program, const struct instr *run, int flat);

/* Does an instruction make the gradient of a flat, sum it over ranks or add to it? */
int faults_makes_gradient(const struct program *program, const struct instr *instr, int flat);

#endif
