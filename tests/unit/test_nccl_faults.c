/* test_nccl_faults.c - which versions of NCCL are known to hang, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/gpu/nccl_faults.h"

static void versions_that_hang_are_named(void **state)
{
    static const struct {
        int version;
        unsigned uses;
        const char *says; /* or NULL */
    } row[] = {
        {22809, NCCL_USE_ARM_NODES, "2.29.3"},
        {22902, NCCL_USE_ARM_NODES, "2.29.3"},
        {22903, NCCL_USE_ARM_NODES, NULL},
        {22705, NCCL_USE_ARM_NODES, NULL},
        {22809, NCCL_USE_PAIR_COPIES, "2.31.2"},
        {23101, NCCL_USE_PAIR_COPIES, "2.31.2"},
        {23102, NCCL_USE_PAIR_COPIES, NULL},
        {22809, 0, NULL},
        {0, NCCL_USE_ARM_NODES | NCCL_USE_PAIR_COPIES, NULL},
        {23000, NCCL_USE_ARM_NODES | NCCL_USE_PAIR_COPIES, "2.31.2"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const char *text = nccl_fault(row[i].version, row[i].uses);
        if (!row[i].says)
            assert_null(text);
        else
            assert_non_null(strstr(text, row[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(versions_that_hang_are_named)};
    return cmocka_run_group_tests_name("faults of NCCL", tests, NULL, NULL);
}
