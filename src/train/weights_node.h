/* weights_node.h - weights of files that one rank of each node reads for all of its ranks. */
#ifndef TRIREME_TRAIN_WEIGHTS_NODE_H
#define TRIREME_TRAIN_WEIGHTS_NODE_H

#include "train/hf_tensors.h"
#include "train/weights_private.h"

/* Where a logical tensor is: alone or with others in a stored one, which the number stands for.
 * Stored tensors are read in the order of their numbers. */
struct weights_stored {
    int64_t number;
    enum dtype dtype;
};

/* What the parts of a rank are made of. */
struct weights_source {
    void *user;
    /* A part that is in no file. */
    weights_fill_part *fill;
    /* Is a tensor in the files, and where in the stored one?  1 with *place set, or 0.  The same on
     * all ranks of a node, of which one has the files. */
    int (*place)(void *user, const char *own, struct model_place *place);
    /* The stored tensor, on the rank that has the files.  0, or -1 with err set. */
    int (*find)(void *user, const char *own, struct weights_stored *stored, struct error *err);
    /* Read these elements of the stored tensor that a logical one is in, as they are stored;
     * element i goes to to + (i - from) * its bytes.  0, or -1 with err set. */
    int (*read)(void *user, const char *own, const struct hf_tensors_run *ranges, int count,
                int64_t from, char *to, struct error *err);
};

/* The rank of the node that has the files: the first. */
int weights_node_reads(const struct session *session);

/* Give all ranks of a node what its reader has there.  Collective over the world. */
void weights_node_share(struct session *session, void *data, size_t bytes);

/* What weights_fill() does, to the same bits, with numbers that the first rank of each node reads,
 * each byte once that a rank of the node needs, and sends to those that do.  Takes a few MiB of
 * host memory and, where parameters are not fp32 in memory of this process, that for the largest
 * part of a stored tensor that the rank has.  Collective over the world; what it returns is the
 * rank's own: 0, or -1 with err set.  *read_bytes: what this rank read. */
int weights_node_fill(struct session *session, const char *flats,
                      const struct weights_source *source, int64_t *read_bytes, struct error *err);

#endif
