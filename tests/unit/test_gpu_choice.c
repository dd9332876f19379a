/* test_gpu_choice.c - the ranks that would use one GPU are found: as by comparing each with each,
 * and in a list of very many ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "comm/gpu/gpu_choice.h"

static int find_each_with_each(const struct gpu_choice *all, int size, int ranks[2])
{
    for (int b = 1; b < size; b++)
        for (int a = 0; a < b; a++)
            if (all[a].node == all[b].node && !strcmp(all[a].gpu.uuid, all[b].gpu.uuid)) {
                ranks[0] = a;
                ranks[1] = b;
                return 1;
            }
    return 0;
}

static void set(struct gpu_choice *choice, int node, int gpu)
{
    choice->node = node;
    snprintf(choice->gpu.uuid, sizeof choice->gpu.uuid, "%032d", gpu);
}

/* Ranks with GPUs by chance, from all alike to hardly ever alike. */
static void as_each_with_each(void **state)
{
    enum { MOST = 23, LISTS = 4000 };
    int outcomes[2] = {0, 0};
    for (int list = 0; list < LISTS; list++) {
        struct gpu_choice all[MOST] = {{0}};
        int size = 1 + list % MOST, nodes = 1 + list / 7 % 5, gpus = 1 + list / 3 % 101;
        int wanted[2] = {-1, -1}, got[2] = {-1, -1};
        for (int r = 0; r < size; r++) {
            uint64_t bits = philox_u64((uint64_t)list, (uint64_t)r);
            set(&all[r], (int)(bits % (unsigned)nodes), (int)(bits / 64 % (unsigned)gpus));
        }
        int found = find_each_with_each(all, size, wanted);
        assert_int_equal(gpu_choice_find_shared(all, size, got), found);
        assert_int_equal(got[0], wanted[0]);
        assert_int_equal(got[1], wanted[1]);
        outcomes[found]++;
    }
    assert_true(outcomes[0] > LISTS / 10 && outcomes[1] > LISTS / 10);
}

/* 8192 nodes of eight GPUs, ranks placed node after node and in turn on all nodes. */
static void many_ranks(void **state)
{
    enum { NODES = 8192, GPUS = 8, SIZE = NODES * GPUS };
    struct gpu_choice *all = calloc(SIZE, sizeof *all);
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        int ranks[2], a = 40000, b = cyclic ? a + 3 * NODES : a + 3;
        for (int r = 0; r < SIZE; r++)
            set(&all[r], cyclic ? r % NODES : r / GPUS, cyclic ? r / NODES : r % GPUS);
        assert_int_equal(gpu_choice_find_shared(all, SIZE, ranks), 0);
        set(&all[b], all[a].node, cyclic ? a / NODES : a % GPUS);
        assert_int_equal(gpu_choice_find_shared(all, SIZE, ranks), 1);
        assert_int_equal(ranks[0], a);
        assert_int_equal(ranks[1], b);
    }
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_each_with_each),
        cmocka_unit_test(many_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
