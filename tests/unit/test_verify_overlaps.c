/* test_verify_overlaps.c - does the verifier know which bytes of activations an instruction
 * touches?
 *
 * overlaps.c finds them from graphs and the places of operands.  Here they come from
 * segment_touch(), by which waits are made: for every instruction of real programs whose units
 * exchange rows in chunks, both must name the same instructions to come after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "program/access.h"
#include "tests/unit/programs.h"
#include "verify/overlaps.h"

static struct count {
    int64_t compared; /* pairs of an instruction and a buffer that it accesses */
    int64_t some;     /* instructions of other streams that these come after */
} count;

/* Add what the piece of RUN i touches of a slot's buffer, which begins at byte `from`. */
static void add_touches(const struct program *program, struct access_map *map, int i, int slot,
                        size_t from, int after[STREAMS])
{
    const struct instr *instr = &program->instr[i];
    const struct segment *segment = program_segment(program, instr->unit, instr->phase);
    const struct segment_piece *piece = &segment->piece[instr->piece];
    for (int s = piece->first; s < piece->end; s++)
        for (int k = 0; k < NODE_INS + NODE_OUTS; k++) {
            struct segment_touch touch = segment_touch(segment, &segment->step[s], k);
            struct access access = {.from = from + touch.from,
                                    .to = from + touch.to,
                                    .instr = i,
                                    .stream = instr->stream,
                                    .writes = touch.writes};
            if (touch.space == slot)
                access_map_add(map, access, after);
        }
}

static void add_slot(const struct program *program, struct access_map *map, int i, int slot,
                     int after[STREAMS])
{
    const struct instr *instr = &program->instr[i];
    const struct program_buffer *view = &program->buffer[instr->buffer[slot]];
    size_t from = view->whole < 0 ? 0 : view->from;
    struct access access = {.from = from,
                            .to = from + view->bytes,
                            .instr = i,
                            .stream = instr->stream,
                            .writes = (int)(instr->writes >> slot & 1)};
    if (instr->kind == INSTR_RUN && slot != SPACE_WORK)
        add_touches(program, map, i, slot, from, after);
    else
        access_map_add(map, access, after);
}

/* Is the slot the first of an instruction that names this buffer or a view of it? */
static int is_first_of(const struct program *program, const struct instr *instr, int slot, int b)
{
    for (int s = 0; s < slot; s++)
        if (instr->bound >> s & 1 && buffer_root(program, instr->buffer[s]) == b)
            return 0;
    return 1;
}

/* Compare what instruction i comes after by its accesses of buffer b. */
static void compare(const struct program *program, struct overlaps *overlaps,
                    struct access_map *map, int i, int b)
{
    const struct instr *instr = &program->instr[i];
    int want[STREAMS], got[STREAMS];
    memset(want, -1, sizeof want);
    for (uint64_t left = instr->bound; left; left &= left - 1)
        if (buffer_root(program, instr->buffer[__builtin_ctzll(left)]) == b)
            add_slot(program, map, i, __builtin_ctzll(left), want);
    overlaps_add(overlaps, i, b, got);
    if (memcmp(got, want, sizeof got))
        fail_msg("instruction %d, buffer %s", i, program->buffer[b].name);
    count.compared++;
    for (int s = 0; s < STREAMS; s++)
        count.some += want[s] >= 0;
}

static void check_program(struct program *program)
{
    struct overlaps *overlaps = overlaps_create(program);
    struct access_map **map = array_make((size_t)program->buffers, sizeof *map);
    for (int i = 0; i < program->instrs && overlaps; i++) {
        const struct instr *instr = &program->instr[i];
        for (uint64_t left = instr->bound; left; left &= left - 1) {
            int slot = __builtin_ctzll(left), b = buffer_root(program, instr->buffer[slot]);
            if (program->buffer[b].pool != POOL_ACTIVATIONS || b < program->state->buffers ||
                instr->kind == INSTR_RELEASE || !is_first_of(program, instr, slot, b))
                continue;
            if (!map[b])
                map[b] = access_map_create();
            compare(program, overlaps, map[b], i, b);
        }
    }
    for (int b = 0; b < program->buffers; b++)
        access_map_destroy(map[b]);
    free(map);
    overlaps_destroy(overlaps);
}

static void test_what_comes_after_what(void **state)
{
    programs_everywhere(check_program);
    print_message("%lld accesses compared, %lld after those of another stream\n",
                  (long long)count.compared, (long long)count.some);
    assert_true(count.compared > 1000 && count.some > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_comes_after_what)};
    return cmocka_run_group_tests_name("verify_overlaps", tests, NULL, NULL);
}
