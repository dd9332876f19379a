/* link_absent.c - link.h in a build without CUDA, where no device is a GPU. */
#include <stdio.h>

#include "comm/gpu/link.h"

int link_open(struct link **link, const struct link_request *request, struct error *err)
{
    *link = NULL;
    return error_set(err, "this trireme was built without CUDA");
}

void link_close(struct link *link)
{
}

int link_register(struct link *link, void *memory, size_t bytes)
{
    return 0;
}

void link_unregister(struct link *link, void *memory)
{
}

int link_poll(struct link *link, struct error *err)
{
    return 0;
}

void link_abandon(struct link *link)
{
}

const char *link_library(char text[96])
{
    snprintf(text, 96, "no NCCL");
    return text;
}

void link_share_gpu(const struct world *world)
{
}
