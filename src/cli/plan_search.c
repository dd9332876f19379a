/* plan_search.c - see plan_search.h. */
#include "cli/plan_search.h"

#include <stdio.h>

#include "plan/fewest.h"
#include "plan/search.h"
#include "plan/search_nodes.h"
#include "plan/show.h"

/* Make the request of a search.  *limits is set, belongs to the caller, and has to outlive the
 * request. */
static struct search_request request_of(const struct config *config, const struct plan_options *o,
                                        struct report *limits)
{
    *limits = (struct report){.config = *config, .ranks = (int)o->ranks, .nodes = (int)o->nodes};
    plan_options_judge(o, limits);
    return (struct search_request){.config = config,
                                   .ranks = (int)o->ranks,
                                   .nodes = (int)o->nodes,
                                   .threads = (int)o->threads,
                                   .machine = &o->machine,
                                   .limits = &limits->limits};
}

int plan_search_auto(struct config *config, const struct plan_options *o, struct error *err)
{
    struct report limits;
    struct search search;
    const struct search_request request = request_of(config, o, &limits);
    if (!o->as_machine)
        return error_set(err, "parallel.layout auto: which layout training takes depends on the "
                              "machine.  Name it with --machine");
    if (report_check_node(&limits, err) || search_find(&search, &request, err))
        return error_prefix(err, "parallel.layout auto");
    printf("parallel.layout auto takes\n    ");
    show_wrapped(stdout, 4, 4, search.row[0].settings);
    printf("\n");
    *config = search.best;
    return 0;
}

/* End the printing, and write js, which is freed, where --json asks for it. */
static int finish(const struct plan_options *o, const char *what, struct js *js, struct error *err)
{
    int rc = fflush(stdout) || ferror(stdout) ? error_errno(err, "%s cannot be written", what) : 0;
    if (!rc && o->json)
        rc = js_write(js, JS_INDENTED, WHOLE_FILE_REPORT, o->json, err);
    js_free(js);
    return rc;
}

int plan_search_layout(const struct config *config, const struct plan_options *o, struct error *err)
{
    struct report limits;
    struct search search;
    const struct search_request request = request_of(config, o, &limits);
    if (report_check_node(&limits, err) || search_find(&search, &request, err))
        return -1;
    search.best.parallel.layout = PARALLEL_LAYOUT_GIVEN;
    plan_options_show_notes(o);
    search_print(&search, &request, stdout);
    if (finish(o, "the layouts", search_json(&search), err))
        return -1;
    return o->yaml ? config_write(&search.best, CONFIG_FOR_USER, o->yaml, err) : 0;
}

int plan_search_nodes(const struct config *config, const struct plan_options *o, struct error *err)
{
    struct report limits = {.config = *config, .ranks = 1, .nodes = 1};
    struct search_nodes found;
    plan_options_judge(o, &limits);
    limits.limits.host_bytes = plan_options_node_bytes(o); /* each row shares it by its ranks */
    const struct search_request request = {.config = config,
                                           .ranks = (int)o->ranks,
                                           .threads = (int)o->threads,
                                           .machine = &o->machine,
                                           .limits = &limits.limits};
    search_nodes_find(&found, &request, (int)o->nodes, (int)o->most_nodes, o->keeps);
    plan_options_show_notes(o);
    search_nodes_print(&found, &request, stdout);
    return finish(o, "the layouts", search_nodes_json(&found), err);
}

int plan_search_fewest(const struct config *config, const struct plan_options *o, struct error *err)
{
    const struct fewest_request request = {.config = config,
                                           .machine = &o->machine,
                                           .threads = (int)o->threads,
                                           .node_bytes = (size_t)(o->node_gib * (1 << 30))};
    struct fewest fewest;
    if (fewest_find(&fewest, &request, err))
        return -1;
    plan_options_show_notes(o);
    fewest_print(&fewest, &request, stdout);
    return finish(o, "the ranks", fewest_json(&fewest), err);
}
