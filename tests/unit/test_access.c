/* test_access.c - does access.h say of random accesses what is known of each byte alone, and
 * does that order each behind all that it conflicts with? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/philox.h"
#include "program/access.h"

enum { CASES = 400, ACCESSES = 150, BYTES = 60, STEPS = 2 };

/* What is known of one byte; -1: nobody. */
struct byte {
    int wrote, stream, read[STREAMS];
};

struct random {
    uint64_t key, next;
};

static int pick(struct random *r, size_t count)
{
    return (int)(philox_u64(r->key, r->next++) % count);
}

/* Of the instruction of the access before, or of another one; one in 30 has no bytes, one in 30
 * goes on behind the last byte. */
static struct access any_access(struct random *r, const struct access *before, size_t bytes,
                                size_t streams)
{
    size_t from = (size_t)pick(r, bytes), to = from + 1 + (size_t)pick(r, bytes - from);
    struct access access = {from, to, .instr = before->instr, .stream = before->stream};
    int rare = pick(r, 30);
    access.to = rare == 0 ? from : rare == 1 ? SIZE_MAX : to;
    access.writes = pick(r, 3) == 0;
    if (pick(r, 3)) {
        access.instr += 1 + pick(r, STEPS);
        access.stream = (enum program_stream)pick(r, streams);
    }
    return access;
}

static void raise_to(int after[STREAMS], int stream, int own, int instr)
{
    if (stream >= 0 && stream != own && instr > after[stream])
        after[stream] = instr;
}

/* What access_map_add() says, byte by byte; the last one stands for all behind. */
static void add_by_bytes(struct byte byte[BYTES + 1], const struct access *access,
                         int after[STREAMS])
{
    int own = (int)access->stream;
    for (size_t b = access->from; b < access->to && b <= BYTES; b++) {
        raise_to(after, byte[b].stream, own, byte[b].wrote);
        for (int s = 0; s < STREAMS && access->writes; s++)
            raise_to(after, s, own, byte[b].read[s]);
        if (access->writes) {
            memset(&byte[b], -1, sizeof byte[b]);
            byte[b].wrote = access->instr;
            byte[b].stream = own;
        } else {
            byte[b].read[own] = access->instr;
        }
    }
}

static int count_intervals(const struct byte byte[BYTES + 1])
{
    int count = 1;
    for (int b = 1; b <= BYTES; b++)
        count += memcmp(&byte[b - 1], &byte[b], sizeof byte[b]) != 0;
    return count;
}

/* known: per instruction, how far each stream is complete when it ends, if it comes after `after`
 * only; last: of each stream the last instruction. */
static void know(int (*known)[STREAMS], int last[STREAMS], const struct access *access,
                 const int after[STREAMS])
{
    int *own = known[access->instr];
    for (int s = 0; s < STREAMS; s++) {
        int at = s == (int)access->stream ? last[s] : after[s];
        for (int t = 0; at >= 0 && t < STREAMS; t++)
            own[t] = known[at][t] > own[t] ? known[at][t] : own[t];
    }
    own[access->stream] = last[access->stream] = access->instr;
}

/* All before it that conflict with an access are known to be complete. */
static void check_order(const struct access *list, int count, const int known[STREAMS])
{
    const struct access *now = &list[count];
    for (int k = 0; k < count; k++)
        if (list[k].from < now->to && now->from < list[k].to && now->from < now->to &&
            list[k].from < list[k].to && (list[k].writes || now->writes))
            assert_true(known[list[k].stream] >= list[k].instr);
}

static void check_case(struct random *r, size_t bytes, size_t streams)
{
    struct access list[ACCESSES], before = {0};
    struct byte byte[BYTES + 1];
    int last[STREAMS];
    int(*known)[STREAMS] = array_make((ACCESSES + 1) * STEPS, sizeof *known);
    struct access_map *map = access_map_create();
    memset(byte, -1, sizeof byte);
    memset(last, -1, sizeof last);
    memset(known, -1, (ACCESSES + 1) * STEPS * sizeof *known);
    for (int k = 0; k < ACCESSES; k++) {
        int after[STREAMS], by_bytes[STREAMS];
        memset(after, -1, sizeof after);
        memset(by_bytes, -1, sizeof by_bytes);
        list[k] = before = any_access(r, &before, bytes, streams);
        access_map_add(map, list[k], after);
        add_by_bytes(byte, &list[k], by_bytes);
        assert_memory_equal(after, by_bytes, sizeof after);
        assert_int_equal(access_map_intervals(map), count_intervals(byte));
        know(known, last, &list[k], after);
        check_order(list, k, known[list[k].instr]);
    }
    access_map_destroy(map);
    free(known);
}

static void test_random(void **state)
{
    for (int i = 0; i < CASES; i++) {
        struct random r = {.key = philox_key((uint64_t)i, "access")};
        size_t bytes = 1 + (size_t)pick(&r, BYTES), streams = 1 + (size_t)pick(&r, STREAMS);
        check_case(&r, bytes, streams);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests_name("access", tests, NULL, NULL);
}
