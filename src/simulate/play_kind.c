/* play_kind.c - to which kind the time of a compute stream in a step that is played goes, and the
 * names of kinds for people. */
#include "simulate/play.h"

const char *play_kind_name(enum play_kind kind)
{
    static const char *const names[] = {
        [PLAY_FORWARD] = "forward",
        [PLAY_BACKWARD] = "backward",
        [PLAY_UPDATE] = "update",
        [PLAY_GATHER] = "gather",
        [PLAY_REDUCE] = "reduce",
        [PLAY_ALL_REDUCE] = "all-reduce",
        [PLAY_ALL_TO_ALL] = "all-to-all",
        [PLAY_MESSAGE] = "message",
        [PLAY_COPY] = "copy",
        [PLAY_RANKS] = "other ranks",
    };
    return names[kind];
}

enum play_kind play_kind_of(const struct instr *instr)
{
    static const enum play_kind kinds[INSTR_KINDS] = {
        [INSTR_GATHER] = PLAY_GATHER,        [INSTR_REDUCE] = PLAY_REDUCE,
        [INSTR_ALLREDUCE] = PLAY_ALL_REDUCE, [INSTR_ALLTOALL] = PLAY_ALL_TO_ALL,
        [INSTR_SEND] = PLAY_MESSAGE,         [INSTR_RECV] = PLAY_MESSAGE,
        [INSTR_FETCH] = PLAY_COPY,           [INSTR_SPILL] = PLAY_COPY,
    };
    if (instr_is_of_phase(instr))
        return instr->phase == PHASE_FORWARD ? PLAY_FORWARD : PLAY_BACKWARD;
    return kinds[instr->kind] ? kinds[instr->kind] : PLAY_UPDATE;
}
