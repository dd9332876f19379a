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

/* The path of rank 0's text on every rank, for free(); NULL on all with err set. */
char *checkpoint_share_path(struct world *world, const char *path, struct error *err);

/* Open and verify on all ranks, each its part; -1 on all, and *checkpoint NULL. */
int checkpoint_open_verified(struct checkpoint **checkpoint, struct world *world, const char *path,
                             struct error *err);

/* Whether a name is "step-00001000", or with suffix: what was renamed while it was replaced or
 * written; *step gets the number. */
int checkpoint_parse_name(const char *name, const char *suffix, int64_t *step);

/* world_*(), for a world that may be NULL. */
int checkpoint_agree(struct world *world, int rc, struct error *err);
int checkpoint_rank(const struct world *world);
int checkpoint_size(const struct world *world);
void checkpoint_broadcast(struct world *world, void *data, size_t bytes);
int checkpoint_gather(struct world *world, char **all, size_t *sizes, const void *mine,
                      size_t bytes, struct error *err);

#endif
