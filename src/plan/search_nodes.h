/* search_nodes.h - the fastest layout for each of several numbers of nodes. */
#ifndef TRIREME_PLAN_SEARCH_NODES_H
#define TRIREME_PLAN_SEARCH_NODES_H

#include "plan/search.h"

/* What stays as it is while ranks are added. */
enum search_keeps {
    SEARCH_KEEPS_GLOBAL_BATCH,  /* the same numbers on any ranks */
    SEARCH_KEEPS_BATCH_PER_RANK /* the configuration's global batch is that of the fewest nodes */
};

enum { SEARCH_NODES = 20 };

struct search_nodes_row {
    int ranks, nodes;
    int fits;             /* 1: search is set, else why */
    int64_t global_batch; /* sequences of a step */
    struct search search;
    struct error why;
};

struct search_nodes {
    int rows;
    struct search_nodes_row row[SEARCH_NODES];
};

/* Search with `least`, twice as many, four times as many nodes and so on, and with `most`.
 * request->ranks: of all these, or 0: as many as the machine has on each node; its limits are
 * of a rank's GPU and of a whole node, whose memory the ranks of a row on it share. */
void search_nodes_find(struct search_nodes *found, const struct search_request *request, int least,
                       int most, enum search_keeps keeps);

/* Print the rows as a table. */
void search_nodes_print(const struct search_nodes *found, const struct search_request *request,
                        FILE *out);
struct js *search_nodes_json(const struct search_nodes *found); /* js_free() it */

#endif
