/* test_exchange.c - lists of transfers between members, carried out here in place of MPI. */
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
            assert_int_equal(op[m].kind->limit(&op[m]), round + 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_by_doubling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
