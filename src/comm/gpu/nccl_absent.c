/* nccl_absent.c - the functions of nccl.h in a build without NCCL.
 *
 * Such a build can use GPUs only where no group needs NCCL: a job of one rank, or one whose ranks
 * are all replicas and sum by MPI. */
#include <stdio.h>

#include "comm/gpu/nccl.h"

const struct transport transport_nccl = {.name = "a build without NCCL"};

int nccl_start(struct link *link, struct error *err)
{
    return error_set(err,
                     "this trireme was built without NCCL, by which GPUs exchange data: install "
                     "NCCL 2 with its headers (Debian: libnccl-dev), configure --with-nccl="
                     "DIR and build again; a job of one rank works without");
}

void nccl_stop(struct link *link)
{
}

int nccl_poll(struct link *link, struct error *err)
{
    return 0;
}

void nccl_abandon(struct link *link)
{
}

void *nccl_alloc(size_t bytes)
{
    return NULL;
}

void nccl_free(void *block)
{
}

int nccl_register(struct link *l, void *memory, size_t bytes, struct error *err)
{
    return 0;
}

void nccl_unregister(struct link *l, void *memory)
{
}

const char *mesh_gpu_library(char text[96])
{
    snprintf(text, 96, "none");
    return text;
}

const char *mesh_gpu_library_fault(void)
{
    return NULL;
}

void link_share_gpu(const struct world *world)
{
}
