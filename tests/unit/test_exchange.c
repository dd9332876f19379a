/* test_exchange.c - lists of transfers between members, carried out here in place of MPI, and how
 * many ranks gather. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/transport.h"

enum { MOST = 130, PART = 3 };

static char value(int member, int i)
{
    return (char)(member * 5 + i);
}

/* Round by round: all members' messages leave before one arrives. */
static void carry_out(struct operation *op, int size, char *buffer)
{
    op[0].kind->plan(&op[0]);
    for (int64_t round = 0; round < op[0].total; round++) {
        char *before = malloc((size_t)size * MOST * PART);
        memcpy(before, buffer, (size_t)size * MOST * PART);
        for (int m = 0; m < size; m++) {
            struct transfer x = {0}, other = {0};
            op[m].retired = round;
            assert_int_equal(op[m].kind->limit(&op[m], round), round + 1);
            op[m].kind->transfer(&op[m], round, &x);
            assert_in_range(x.to, 0, size - 1);
            assert_in_range(x.source, 0, size - 1);
            op[x.source].kind->transfer(&op[x.source], round, &other);
            assert_int_equal(other.to, m);
            assert_int_equal(other.from_bytes, x.into_bytes);
            assert_true(x.into + x.into_bytes <= op[m].recv + (size_t)size * PART);
            memcpy(x.into, before + (other.from - buffer), (size_t)x.into_bytes);
        }
        free(before);
    }
}

/* Each member ends with all parts, its own first, after as many rounds as doubling takes. */
static void test_gather_by_doubling(void **state)
{
    for (int size = 2; size <= MOST; size++) {
        struct group *group = calloc((size_t)size, sizeof *group);
        struct operation *op = calloc((size_t)size, sizeof *op);
        char *buffer = calloc((size_t)size, MOST * PART);
        int rounds = 0;
        for (int m = 0; m < size; m++) {
            group[m] = (struct group){.rank = m, .size = size};
            op[m] = (struct operation){.group = &group[m],
                                       .kind = &kind_all_gather_doubling,
                                       .recv = buffer + (size_t)m * MOST * PART,
                                       .elems = PART,
                                       .dtype = DTYPE_U8};
            for (int i = 0; i < PART; i++)
                op[m].recv[i] = value(m, i);
        }
        carry_out(op, size, buffer);
        for (int m = 0; m < size; m++)
            for (int k = 0; k < size; k++)
                for (int i = 0; i < PART; i++)
                    assert_int_equal(op[m].recv[k * PART + i], value((m + k) % size, i));
        for (int reached = 1; reached < size; reached *= 2)
            rounds++;
        assert_int_equal(op[0].total, rounds);
        free(buffer);
        free(op);
        free(group);
    }
}

/* world_all_gather() of one rank, whose operations are done here for all.  The transport is one
 * that takes operations whole, so that no thread and no other rank is needed. */
enum { MOST_BYTES = 16 << 20 };

static struct {
    size_t first; /* of each rank's bytes, those gathered before */
    int in_rounds, direct;
} gathered;

static int gather_for_all(struct operation *op)
{
    int size = op->group->size, rank = op->group->rank;
    size_t bytes = (size_t)op->elems;
    if (op->kind != &kind_all_gather_doubling) {
        gathered.direct++;
        return GIVEN;
    }
    gathered.in_rounds++;
    assert_in_range(bytes * (size_t)size, 1, MOST_BYTES);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(op->recv[i], value(rank, (int)(gathered.first + i)));
    for (int m = 1; m < size; m++)
        for (size_t i = 0; i < bytes; i++)
            op->recv[(size_t)m * bytes + i] = value((rank + m) % size, (int)(gathered.first + i));
    gathered.first += bytes;
    return GIVEN;
}

static const struct transport transport_for_all = {.name = "one rank for all",
                                                   .enqueue = {[CALL_ALL_GATHER] = gather_for_all}};

/* However much they gather, many ranks do so in rounds. */
static void test_gather_of_many_ranks(void **state)
{
    static const struct {
        int size, rank;
        size_t bytes;
    } rows[] = {
        {33, 0, 5}, {33, 32, 600001}, {47, 11, 600001}, {4099, 4098, 208}, {80663, 77, 208}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        int size = rows[k].size, rank = rows[k].rank, wrong = 0;
        size_t bytes = rows[k].bytes, total = (size_t)size * bytes;
        struct group group = {.transport = &transport_for_all, .rank = rank, .size = size};
        struct world world = {.whole = &group, .rank = rank, .size = size};
        char *all = calloc(total, 1), *mine = calloc(bytes, 1);
        memset(&gathered, 0, sizeof gathered);
        for (size_t i = 0; i < bytes; i++)
            mine[i] = value(rank, (int)i);
        world_all_gather(&world, all, mine, bytes);
        assert_int_equal(gathered.direct, 0);
        assert_int_equal(gathered.in_rounds, (total + MOST_BYTES - 1) / MOST_BYTES);
        for (int m = 0; m < size; m++)
            for (size_t i = 0; i < bytes; i++)
                wrong += all[(size_t)m * bytes + i] != value(m, (int)i);
        assert_int_equal(wrong, 0);
        free(group.newest);
        free(mine);
        free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_by_doubling),
        cmocka_unit_test(test_gather_of_many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
