/* weights_node.h - weights of files that one rank of each node reads for all of its ranks. */
#ifndef TRIREME_TRAIN_WEIGHTS_NODE_H
#define TRIREME_TRAIN_WEIGHTS_NODE_H

#include "train/hf_tensors.h"
#include "train/weights_private.h"

/* A stored tensor, which holds one or several logical ones. */
struct weights_stored {
    int64_t number; /* which it is; stored tensors are read in the order of their numbers */
    enum dtype dtype;
};

/* Where the parameters of a rank come from.  own: name of a logical tensor; name: the same, and
 * which of its matrices where each is a stored tensor. */
struct weights_source {
    void *user; /* first argument of the functions */
    /* Fill a part of a tensor that is in no file. */
    weights_fill_part *fill;
    /* Is a tensor in the files?  Returns 1 and *place in its stored tensor (of several, in the
     * first), or 0.  The same on all ranks of a node, of which one has the files. */
    int (*place)(void *user, const char *own, struct model_place *place);
    /* Find the stored tensor, on the rank that has the files.  0, or -1 with err set. */
    int (*find)(void *user, struct hf_tensors_name name, struct weights_stored *stored,
                struct error *err);
    /* Read these ranges of the stored tensor, in its format: element i goes to
     * to + (i - from) * bytes of an element.  On the rank that has the files.  0, or -1 with err
     * set. */
    int (*read)(void *user, struct hf_tensors_name name, const struct hf_tensors_run *ranges,
                int count, int64_t from, char *to, struct error *err);
};

/* Is this the rank of its node that has the files: the first? */
int weights_node_reads(const struct session *session);

/* Copy the bytes at data from the reader of each node to the node's other ranks.  Collective over
 * the world. */
void weights_node_share(struct session *session, void *data, size_t bytes);

/* Do what weights_fill() does, to the same bits, with numbers that the first rank of each node
 * reads, each byte once that a rank of the node needs, and sends to the ranks that do.  Takes a few
 * MiB of host memory and, where parameters are not fp32 in memory of this process, that for the
 * largest part of a stored tensor that the rank has.  Collective over the world; what it returns is
 * the rank's own: 0, or -1 with err set.  *read_bytes: what this rank read. */
int weights_node_fill(struct session *session, const char *flats,
                      const struct weights_source *source, int64_t *read_bytes, struct error *err);

#endif
