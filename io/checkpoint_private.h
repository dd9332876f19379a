/* checkpoint_private.h - what the files of checkpoint_*.c share. */
#ifndef TRIREME_IO_CHECKPOINT_PRIVATE_H
#define TRIREME_IO_CHECKPOINT_PRIVATE_H

#include "io/catalog.h"
#include "io/checkpoint.h"

enum { CHECKPOINT_FORMAT = 1 };

struct checkpoint {
    char *path;
    struct catalog catalog;
    struct js *meta;
    int64_t bytes;
};

/* The sizes of all shard files are right, or -1 with err naming one that is not. */
int checkpoint_sizes(const struct checkpoint *checkpoint, struct error *err);

/* world_*(), for a world that may be NULL. */
int checkpoint_agree(struct world *world, int rc, struct error *err);
int checkpoint_rank(const struct world *world);
int checkpoint_size(const struct world *world);
void checkpoint_broadcast(struct world *world, void *data, size_t bytes);
int checkpoint_gather(struct world *world, char **all, size_t *sizes, const void *mine,
                      size_t bytes, struct error *err);

#endif
