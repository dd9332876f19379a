/* faults.c - see faults.h. */
#include "tests/unit/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/divided.h"
#include "verify/verify.h"

static const struct {
    int ranks;
    const char *settings;
} layouts[] = {
    {2, FAULTS_SIZES "model.kv_heads=1 parallel.tensor=2 train.global_batch=2"},
    {4, FAULTS_SIZES "model.kv_heads=1 parallel.tensor=2 parallel.pipeline=2 train.global_batch=3 "
                     "model.tie_embeddings=true"},
    {8, FAULTS_SIZES "parallel.tensor=2 parallel.pipeline=2 parallel.strategy=FULL_SHARD "
                     "parallel.schedule=zb_h1 precision=bf16 train.global_batch=4"},
    {8,
     FAULTS_SIZES "model.family=gpt2 parallel.tensor=2 parallel.pipeline=2 parallel.schedule=gpipe "
                  "parallel.strategy=NO_SHARD parallel.reduce_bucket_bytes=0 train.global_batch=4 "
                  "model.tie_embeddings=true"},
    {4, FAULTS_SIZES
     "model.family=gpt2 parallel.tensor=2 parallel.strategy=SHARD_OPTIM precision=bf16 "
     "train.global_batch=4"},
};

struct faults_kept faults_keep(const struct program *program)
{
    size_t bytes = (size_t)program->instrs * sizeof *program->instr;
    struct faults_kept kept = {malloc(bytes), program->instrs};
    memcpy(kept.instr, program->instr, bytes);
    return kept;
}

void faults_restore(struct program *program, struct faults_kept *kept)
{
    memcpy(program->instr, kept->instr, (size_t)kept->instrs * sizeof *program->instr);
    program->instrs = kept->instrs;
    free(kept->instr);
}

static void assert_right(const struct program *program)
{
    struct error err = {0};
    if (verify_program(program, &err))
        fail_msg("%s", err.text);
}

void faults_refused(const struct program *program, const char *name, const char *other)
{
    struct error err = {0};
    if (!verify_values(program, &err))
        fail_msg("not noticed: %s", name);
    if (!strstr(err.text, name) && !(other && strstr(err.text, other)))
        fail_msg("%s is not named: \"%s\"", name, err.text);
    assert_int_equal(verify_program(program, &err), -1);
}

static int spoil_program(struct program *program, faults_fn *spoil)
{
    assert_right(program);
    int spoilt = spoil(program);
    assert_right(program);
    return spoilt;
}

void faults_everywhere(faults_fn *spoil, int least)
{
    int spoilt = 0;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct fleet fleet;
        struct config config = rig_config(layouts[i].settings);
        fleet_open(&fleet, &config, layouts[i].ranks, PROGRAM_TRAIN);
        struct error err = {0};
        if (verify_ranks((const struct program *const *)fleet.program, fleet.ranks, &err))
            fail_msg("%s", err.text);
        for (int r = 0; r < fleet.ranks; r++)
            spoilt += spoil_program(fleet.program[r], spoil);
        fleet_close(&fleet);
    }
    static const char *const whole[] = {"parallel.shard=2 parallel.strategy=FULL_SHARD",
                                        "parallel.shard=1 parallel.strategy=NO_SHARD"};
    for (int i = 0; i < 2; i++) {
        struct divided d;
        char text[256];
        snprintf(text, sizeof text, FAULTS_SIZES "data.seq_len=8 train.global_batch=4 %s",
                 whole[i]);
        divided_open(&d, text, 2);
        for (int r = 0; r < d.ranks; r++)
            spoilt += spoil_program(d.program[r], spoil);
        divided_close(&d);
    }
    print_message("%d places\n", spoilt);
    assert_true(spoilt >= least);
}

const char *faults_name(const struct program *program, int f)
{
    return program->units->flat[f].name;
}

int faults_use_written(const struct program *program, const struct instr *run, int f)
{
    const struct unit_flats *use = run->kind == INSTR_RUN ? &program->units->use[run->unit] : NULL;
    for (int k = 0; use && k < use->count; k++)
        if (use->flat[k] == f && run->writes >> (SPACE_GRAD + k) & 1)
            return k;
    return -1;
}

int faults_makes_gradient(const struct program *program, const struct instr *instr, int f)
{
    int sums = instr->kind == INSTR_REDUCE || instr->kind == INSTR_ALLREDUCE;
    return faults_use_written(program, instr, f) >= 0 || (sums && instr->flat == f);
}

void faults_leave_out(struct instr *instr)
{
    instr->kind = INSTR_RELEASE;
    instr->axes = 0;
    instr->piece = -1;
    instr->accumulate = 0;
    instr->reads = instr->writes = 0;
    memset(instr->buffer, -1, sizeof instr->buffer);
}

void faults_move(struct program *program, int from, int to)
{
    struct instr was = program->instr[from], *instr = program->instr;
    if (from < to)
        memmove(&instr[from], &instr[from + 1], (size_t)(to - from) * sizeof *instr);
    else
        memmove(&instr[to + 1], &instr[to], (size_t)(from - to) * sizeof *instr);
    instr[to] = was;
}

void faults_insert(struct program *program, int i, struct instr copy)
{
    *program_add_instr(program, INSTR_RELEASE, STREAM_COMPUTE) = copy;
    faults_move(program, program->instrs - 1, i);
}

int faults_each_flat(struct program *program, int (*spoil)(struct program *, int f))
{
    int spoilt = 0;
    for (int f = 0; f < program->units->flats; f++) {
        struct faults_kept kept = faults_keep(program);
        if (state_trains(program->state, f))
            spoilt += spoil(program, f);
        faults_restore(program, &kept);
    }
    return spoilt;
}

int faults_find(const struct program *program, enum instr_kind kind, int f)
{
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].kind == kind && program->instr[i].flat == f)
            return i;
    return -1;
}
