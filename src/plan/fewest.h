/* fewest.h - the fewest ranks of a machine on which a run fits.
 *
 * Counts that are tried are 1, 2, ... up to a node's ranks, then whole nodes.  State is sharded
 * over all ranks (FULL_SHARD), within tensor ranks of 1, 2, 4, ... up to a node where the
 * configuration has none; pipeline and context degrees are the configuration's.  Of degrees that
 * need as few ranks the smallest is taken.  On these ranks, which hold the run with recomputation
 * of everything and micro-batches of one sequence, as little is recomputed and micro-batches are as
 * large as fits (fit.h).  That once with all state on the device, and with more and more of it in
 * the node's memory.
 */
#ifndef TRIREME_PLAN_FEWEST_H
#define TRIREME_PLAN_FEWEST_H

#include "plan/report.h"
#include "plan/variant.h"

enum { FEWEST_ROWS = 4, FEWEST_SETTINGS = VARIANT_SETTINGS, FEWEST_RANKS_MOST = 4096 };

struct fewest_request {
    const struct config *config; /* checked; device cpu or cuda */
    const struct machine *machine;
    int threads;
    size_t node_bytes; /* memory of a node that ranks share; 0: without limit */
};

struct fewest_row {
    const char *kept; /* what the node's memory keeps: "nothing" */
    int found;
    int ranks, nodes;
    char settings[FEWEST_SETTINGS]; /* "key=value key=value": what the configuration has not */
    struct memory_limits takes;     /* of a rank */
    double step_s, tokens_per_s;
};

struct fewest {
    int64_t params;
    int rows;
    struct fewest_row row[FEWEST_ROWS]; /* on processors, which have one memory, the first alone */
};

/* Pure.  Returns 0, or -1 with err set: nothing fits on up to FEWEST_RANKS_MOST ranks, or the
 * configuration makes no plan. */
int fewest_find(struct fewest *fewest, const struct fewest_request *request, struct error *err);

void fewest_print(const struct fewest *fewest, const struct fewest_request *request, FILE *out);
struct js *fewest_json(const struct fewest *fewest); /* js_free() it */

#endif
