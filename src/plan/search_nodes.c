/* search_nodes.c - see search_nodes.h. */
#include "plan/search_nodes.h"

#include "plan/show.h"

static void find(struct search_nodes_row *row, const struct search_request *request,
                 int first_ranks, enum search_keeps keeps)
{
    struct config config = *request->config;
    struct search_request one = *request;
    struct memory_limits limits = *request->limits;
    struct report node = {.config = config, .ranks = row->ranks, .nodes = row->nodes};
    report_set_node_memory(&node, limits.host_bytes);
    limits.host_bytes = node.limits.host_bytes;
    config.train.global_batch_tokens = 0;
    if (keeps == SEARCH_KEEPS_BATCH_PER_RANK)
        config.train.global_batch = config.train.global_batch * row->ranks / first_ranks;
    row->global_batch = config.train.global_batch;
    one.config = &config;
    one.given = request->config;
    one.limits = &limits;
    one.ranks = row->ranks;
    one.nodes = row->nodes;
    if (row->ranks < row->nodes)
        error_set(&row->why, "a node has at least one rank");
    else
        row->fits =
            !report_check_node(&node, &row->why) && !search_find(&row->search, &one, &row->why);
}

void search_nodes_find(struct search_nodes *found, const struct search_request *request, int least,
                       int most, enum search_keeps keeps)
{
    *found = (struct search_nodes){0};
    for (int nodes = least; found->rows < SEARCH_NODES;
         nodes = 2 * nodes < most ? 2 * nodes : most) {
        struct search_nodes_row *row = &found->row[found->rows++];
        row->nodes = nodes;
        row->ranks = request->ranks ? request->ranks : nodes * request->machine->per_node;
        find(row, request, found->row[0].ranks, keeps);
        if (nodes == most)
            return;
    }
}

/* The first row that fits, with which the others are compared; NULL: none does. */
static const struct search_nodes_row *first_of(const struct search_nodes *found)
{
    for (int i = 0; i < found->rows; i++)
        if (found->row[i].fits)
            return &found->row[i];
    return NULL;
}

static double per_rank(const struct search_nodes_row *row)
{
    return row->search.row[0].tokens_per_s / row->ranks;
}

void search_nodes_print(const struct search_nodes *found, const struct search_request *request,
                        FILE *out)
{
    const struct search_nodes_row *first = first_of(found);
    char time[32];
    fprintf(out,
            "the fastest layouts on %s; each rank's speed beside the first line's; rank-hours of "
            "10^9 tokens\n\n nodes  ranks   batch    a step   tokens/s  a rank's    MFU  "
            "rank-hours\n",
            request->machine->name);
    for (int i = 0; i < found->rows; i++) {
        const struct search_nodes_row *row = &found->row[i];
        const struct search_row *best = &row->search.row[0];
        fprintf(out, "%6d %6d %7lld ", row->nodes, row->ranks, (long long)row->global_batch);
        if (!row->fits) {
            fprintf(out, " ");
            show_wrapped(out, 23, 23, row->why.text);
            continue;
        }
        fprintf(out, "%9s %10.0f %7.0f %% %4.1f %% %11.1f\n    ", show_time(best->step_s, time),
                best->tokens_per_s, 100 * per_rank(row) / per_rank(first), 100 * best->mfu,
                row->ranks * 1e9 / best->tokens_per_s / 3600);
        show_wrapped(out, 4, 4, best->settings);
    }
}

struct js *search_nodes_json(const struct search_nodes *found)
{
    struct js *js = js_object(), *rows = js_array();
    for (int i = 0; i < found->rows; i++) {
        const struct search_nodes_row *row = &found->row[i];
        struct js *one = js_object();
        js_add_int(one, "nodes", row->nodes);
        js_add_int(one, "ranks", row->ranks);
        js_add_int(one, "global_batch", row->global_batch);
        if (row->fits)
            js_add(one, "search", search_json(&row->search));
        else
            js_add_string(one, "why", row->why.text);
        js_add(rows, NULL, one);
    }
    js_add(js, "nodes", rows);
    return js;
}
