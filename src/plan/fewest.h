/* fewest.h - the fewest ranks of a machine on which a run fits.
 *
 * Counts of ranks that are tried are 1, 2, ... up to a node's, then whole nodes.  State is sharded
 * over all ranks (FULL_SHARD).  Where the configuration has no tensor ranks, 1, 2, 4, ... up to a
 * node's are tried, and of degrees that need equally few ranks the smallest is taken; pipeline and
 * context degrees are the configuration's.  A count is enough if the run fits with recomputation of
 * everything and micro-batches of one sequence; on these ranks as little is then recomputed, and
 * micro-batches are made as large, as fits (fit.h).  All of this is done with all state on the
 * device, and again with more and more of it in the node's memory.
 */
#ifndef TRIREME_PLAN_FEWEST_H
#define TRIREME_PLAN_FEWEST_H

#include "plan/report.h"
#include "plan/settings.h"

enum { FEWEST_ROWS = 4, FEWEST_SETTINGS = SETTINGS_BYTES, FEWEST_RANKS_MOST = 4096 };

struct fewest_request {
    const struct config *config; /* checked; device cpu or cuda */
    const struct machine *machine;
    int threads;
    size_t node_bytes; /* memory of a node that ranks share; 0: without limit */
};

struct fewest_row {
    const char *kept; /* what the node's memory keeps: "nothing" */
    int found;        /* 1: the run fits on the ranks that follow */
    int ranks, nodes;
    char settings[FEWEST_SETTINGS]; /* "key=value key=value": what differs from the configuration */
    struct memory_limits takes;     /* memory that a rank needs */
    double step_s, tokens_per_s;
};

struct fewest {
    int64_t params;
    int rows;
    struct fewest_row row[FEWEST_ROWS]; /* on processors, which have one memory, the first alone */
};

/* Find the fewest ranks for each row.  Pure.  Returns 0, or -1 with err set: nothing fits on up to
 * FEWEST_RANKS_MOST ranks, or the configuration makes no plan. */
int fewest_find(struct fewest *fewest, const struct fewest_request *request, struct error *err);

/* Print the rows as a table. */
void fewest_print(const struct fewest *fewest, const struct fewest_request *request, FILE *out);
struct js *fewest_json(const struct fewest *fewest); /* js_free() it */

#endif
