/* plan_search.h - trireme plan where it finds a layout, or how many ranks.  All return 0, or -1
 * with err set. */
#ifndef TRIREME_CLI_PLAN_SEARCH_H
#define TRIREME_CLI_PLAN_SEARCH_H

#include "cli/plan_options.h"

/* With parallel.layout=auto, replace the configuration by the one that training would choose on the
 * machine. */
int plan_search_auto(struct config *config, const struct plan_options *o, struct error *err);

/* --search: find and print the fastest layouts.  In the configuration that is written
 * parallel.layout is given, as it has the layout's keys. */
int plan_search_layout(const struct config *config, const struct plan_options *o,
                       struct error *err);

/* --search --nodes N-M: find and print the fastest layout for each of several numbers of nodes. */
int plan_search_nodes(const struct config *config, const struct plan_options *o, struct error *err);

/* --fewest: find and print the fewest ranks that hold the run. */
int plan_search_fewest(const struct config *config, const struct plan_options *o,
                       struct error *err);

#endif
