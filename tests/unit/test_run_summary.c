/* test_run_summary.c - each node of a run is named once, however ranks are placed on nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "comm/transport.h"
#include "train/run_summary.h"

enum { RANKS = 12 };

static void nodes_are_named_once(void **state)
{
    static const struct {
        int nodes, node[RANKS];
        const char *text;
    } rows[] = {
        {1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "n0"},
        {2, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, "2 nodes (n0, n1)"},
        {2, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, "2 nodes (n0, n1)"},
        {3, {0, 1, 1, 2, 0, 1, 2, 0, 0, 1, 2, 2}, "3 nodes (n0, n1, n2)"},
        {4, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, "4 nodes (n0, n1, n2, n3)"},
        {5, {0, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4}, "5 nodes (n0, n1, n2, n3, ...)"},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        char hosts[RANKS][HOST_NAME], text[RUN_SUMMARY_NODES];
        int lowest[RANKS];
        struct world world = {.size = RANKS, .hosts = hosts, .lowest = lowest};
        for (int r = 0; r < RANKS; r++) {
            snprintf(hosts[r], HOST_NAME, "n%d", rows[k].node[r]);
            if (rows[k].node[r] == world.nodes)
                lowest[world.nodes++] = r;
        }
        assert_int_equal(world.nodes, rows[k].nodes);
        assert_string_equal(run_summary_nodes(&world, text), rows[k].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nodes_are_named_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
