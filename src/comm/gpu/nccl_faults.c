/* nccl_faults.c - known faults of versions of NCCL, as a table.
 *
 * NCCL's issues have the details: 2353 (a compare-and-swap that may fail without cause, as those of
 * ARM do, is taken for one that succeeded, so that entries of a list are lost until there are none)
 * and 2241 (the two GPUs do not wait for each other's multicast memory).
 */
#include "comm/gpu/nccl_faults.h"

#include <stddef.h>

static const struct {
    enum nccl_use use;
    int since, mended; /* the first version that has it, and the first one after it that has not */
    const char *text;
} faults[] = {
    {.use = NCCL_USE_ARM_NODES,
     .since = 22800,
     .mended = 22903,
     .text = "can hang after hours, without an error, where nodes with ARM processors exchange; "
             "2.29.3 does not"},
    {.use = NCCL_USE_PAIR_COPIES,
     .since = 22800,
     .mended = 23102,
     .text = "can hang at the first gather by copy engines between two GPUs, where NVLink SHARP "
             "(comm.nvls, NCCL_NVLS_ENABLE) is on; 2.31.2 does not"},
};

int nccl_is_arm(void)
{
#ifdef __aarch64__
    return 1;
#else
    return 0;
#endif
}

const char *nccl_fault(int version, unsigned uses)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (uses & faults[i].use && version >= faults[i].since && version < faults[i].mended)
            return faults[i].text;
    return NULL;
}
