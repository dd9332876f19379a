/* nccl_newer.c - what is used of NCCL 2.28 and newer alone: names of communicators, and windows.
 *
 * A window is memory of the same size on all ranks of a communicator, which NCCL knows on all of
 * them; copy engines gather from window to window. */
#include "comm/gpu/nccl_call.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)

void nccl_config_newer(ncclConfig_t *config, const struct channel *c, int copies)
{
    config->commName = c->name; /* lives as long as the communicator */
    if (copies)
        config->CTAPolicy = NCCL_CTA_POLICY_ZERO;
}

ncclResult_t nccl_window_open(const struct channel *c, void *memory, size_t bytes, void **window)
{
    return ncclCommWindowRegister(comm_of(c), memory, bytes, (ncclWindow_t *)window,
                                  NCCL_WIN_COLL_SYMMETRIC);
}

void nccl_window_close(const struct channel *c, void *window)
{
    ncclCommWindowDeregister(comm_of(c), window);
}

#else

void nccl_config_newer(ncclConfig_t *config, const struct channel *c, int copies)
{
}

/* Never called: nccl_prepare() refuses copy engines with this version. */
ncclResult_t nccl_window_open(const struct channel *c, void *memory, size_t bytes, void **window)
{
    return ncclInvalidUsage;
}

void nccl_window_close(const struct channel *c, void *window)
{
}

#endif
