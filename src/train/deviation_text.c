/* deviation_text.c - a deviation as one line; see deviation.h.  begin() writes how long the step
 * takes, a describe_*() for each cause what measured and forecast times have to do with it, and for
 * some of them, what may be the reason. */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "plan/show.h"
#include "train/deviation.h"

enum { PART = 400 };

/* Below this share of a core a thread that computes was kept from it. */
static const double whole_core = 0.85;

static const char *rate_text(double bytes_per_s, char text[32])
{
    static const struct {
        double from;
        const char *name;
    } units[] = {
        {.from = 1e9, .name = "GB/s"}, {.from = 1e6, .name = "MB/s"}, {.from = 0, .name = "kB/s"}};
    int i = 0;
    while (bytes_per_s < units[i].from)
        i++;
    snprintf(text, 32, "%.3g %s", bytes_per_s / (units[i].from > 0 ? units[i].from : 1e3),
             units[i].name);
    return text;
}

static const char *host_of(const struct deviation_names *names, int node)
{
    return names->host(names->user, node);
}

static const char crowd[] = "there are more ranks than cores";

/* Why a rank, or with rank below 0 all of them, may be slow. */
static void add_reason(const struct deviation_facts *facts, int rank,
                       const struct deviation_names *names, char *text)
{
    double share = 0;
    int is_crowded = 0;
    for (int r = 0; r < facts->ranks; r++) {
        if (r == rank || (rank < 0 && facts->rank[r].core_share > share))
            share = facts->rank[r].core_share;
        is_crowded |= (r == rank || rank < 0) && facts->rank[r].is_crowded;
    }
    if (names->on_gpu)
        text_append(text, PART,
                    "; likely clocks, heat or another program on the GPU "
                    "(nvidia-smi -q -d PERFORMANCE there)");
    else if (is_crowded)
        text_append(text, PART, "; %s", crowd);
    else if (share > 0 && share < whole_core)
        text_append(text, PART, "; likely other programs: %s a core for %.0f %% of that time",
                    rank < 0 ? "none had" : "it had", 100 * share);
    else
        text_append(text, PART, "; likely clocks, heat or other programs");
}

/* "computes 2.9 times as long as the others (3.2 s, median 1.1 s)" */
static void add_times(const struct deviation *d, char *text)
{
    char own[32], other[32];
    text_append(text, PART, "computes %.1f times as long as the others (%s, median %s)",
                d->measured / d->expected, show_time(d->measured, own),
                show_time(d->expected, other));
}

static void describe_rank(const struct deviation_facts *facts, const struct deviation *d,
                          const struct deviation_names *names, char *text)
{
    if (d->cause == DEVIATION_NODE)
        text_append(text, PART, "node %s ", host_of(names, d->node));
    else
        text_append(text, PART, "rank %d on node %s ", d->rank, host_of(names, d->node));
    add_times(d, text);
    add_reason(facts, d->rank, names, text);
}

static void describe_computing(const struct deviation_facts *facts, const struct deviation *d,
                               const struct deviation_names *names, char *text)
{
    char own[32], planned[32];
    text_append(text, PART, "all ranks compute at %.0f %% of the speed of %s (%s, planned %s)",
                100 * d->expected / d->measured, facts->forecast->machine,
                show_time(d->measured, own), show_time(d->expected, planned));
    add_reason(facts, -1, names, text);
    text_append(text, PART, ", or this is not such a machine");
}

static void describe_transfer(const struct deviation_facts *facts, const struct deviation *d,
                              const struct deviation_names *names, char *text)
{
    static const char *const kinds[MACHINE_TRANSFERS] = {[MACHINE_GATHER] = "gathers",
                                                         [MACHINE_REDUCE] = "reduce-scatters",
                                                         [MACHINE_ALL_REDUCE] = "all-reduces",
                                                         [MACHINE_ALL_TO_ALL] = "all-to-alls",
                                                         [MACHINE_MESSAGE] = "messages"};
    const struct deviation_link *link = &facts->link[d->link];
    const char *first = host_of(names, link->first_node), *last = host_of(names, link->last_node);
    char own[32], other[32];
    text_append(text, PART, "%s ", kinds[link->kind]);
    if (link->way == FORECAST_WITHIN)
        text_append(text, PART, "within node %s", first);
    else if (link->nodes == 2)
        text_append(text, PART, "between nodes %s and %s", first, last);
    else
        text_append(text, PART, "between %d nodes (%s ... %s)", link->nodes, first, last);
    text_append(text, PART, " move %s, %s %s", rate_text(d->measured, own),
                facts->forecast ? "planned" : "others", rate_text(d->expected, other));
    if (link->way == FORECAST_BETWEEN && names->network[0])
        text_append(text, PART, "; %s", names->network);
    else if (link->way == FORECAST_WITHIN && names->on_gpu)
        text_append(text, PART, "; nvidia-smi topo -m there shows how its GPUs are connected");
}

static void describe_cores(const struct deviation_facts *facts, const struct deviation *d,
                           const struct deviation_names *names, char *text)
{
    char own[32], other[32];
    int is_crowded = 0;
    for (int r = 0; r < facts->ranks; r++)
        is_crowded |= (d->node < 0 || facts->rank[r].node == d->node) && facts->rank[r].is_crowded;
    /* Each is a median of its own: a rank may wait longer than the step of the line takes. */
    show_time(fmin(d->measured, facts->step_s), own);
    if (d->rank >= 0)
        text_append(text, PART, "rank %d on node %s waits", d->rank, host_of(names, d->node));
    else if (d->node >= 0)
        text_append(text, PART, "ranks on node %s wait", host_of(names, d->node));
    else
        text_append(text, PART, "all ranks wait");
    text_append(text, PART, " %s of it for a core", own);
    if (d->node >= 0)
        text_append(text, PART, " (the others %s)", show_time(d->expected, other));
    if (is_crowded)
        text_append(text, PART, "; %s", crowd);
    else
        text_append(text, PART, "; likely other programs there%s",
                    d->node < 0 ? ", or more threads than cores" : "");
}

/* Means of the ranks. */
static void describe_rest(const struct deviation_facts *facts, const struct deviation *d,
                          const struct deviation_names *names, char *text)
{
    double computing_s = 0, waiting_s = 0, moving_s = 0;
    char own[32], waits[32], moves[32];
    for (int r = 0; r < facts->ranks; r++) {
        const struct deviation_rank *rank = &facts->rank[r];
        computing_s += (rank->run_s + rank->update_s) / facts->ranks;
        waiting_s += rank->wait_s / facts->ranks;
    }
    for (int i = 0; i < facts->links; i++)
        moving_s += facts->link[i].seconds * facts->link[i].members / facts->ranks;
    text_append(text, PART,
                "neither computing (%s a rank) nor transfers (%s) explain it; ranks wait %s, for "
                "one another or the host (run.trace=STEP shows a step)",
                show_time(computing_s, own), show_time(moving_s, moves),
                show_time(waiting_s, waits));
}

static void describe_bytes(const struct deviation_facts *facts, const struct deviation *d,
                           const struct deviation_names *names, char *text)
{
    text_append(text, PART,
                "rank %d on node %s sent %.0f bytes, and its plan has %.0f: a fault of trireme's",
                d->rank, host_of(names, d->node), d->measured, d->expected);
}

static void describe_data(const struct deviation_facts *facts, const struct deviation *d,
                          const struct deviation_names *names, char *text)
{
    char own[32];
    text_append(text, PART,
                "rank %d on node %s waits %s for tokens; likely the file system of data.train",
                d->rank, host_of(names, d->node), show_time(d->measured, own));
}

static void describe_copies(const struct deviation_facts *facts, const struct deviation *d,
                            const struct deviation_names *names, char *text)
{
    char own[32], other[32];
    text_append(text, PART, "copies of offloaded state take rank %d on node %s %s, planned %s",
                d->rank, host_of(names, d->node), show_time(d->measured, own),
                show_time(d->expected, other));
}

static void describe_faster(const struct deviation_facts *facts, const struct deviation *d,
                            const struct deviation_names *names, char *text)
{
    text_append(text, PART, "faster than machine %s is described to be", facts->forecast->machine);
}

/* The causes: their names in metrics.jsonl, and what writes the part of a line that is of one. */
static const struct {
    const char *name;
    void (*describe)(const struct deviation_facts *facts, const struct deviation *d,
                     const struct deviation_names *names, char *text); /* NULL: nothing is off */
} causes[DEVIATION_CAUSES] = {
    [DEVIATION_NONE] = {.name = "none"},
    [DEVIATION_BYTES] = {.name = "bytes", .describe = describe_bytes},
    [DEVIATION_RANK] = {.name = "rank", .describe = describe_rank},
    [DEVIATION_NODE] = {.name = "node", .describe = describe_rank},
    [DEVIATION_COMPUTE] = {.name = "compute", .describe = describe_computing},
    [DEVIATION_CORES] = {.name = "cores", .describe = describe_cores},
    [DEVIATION_TRANSFER] = {.name = "transfer", .describe = describe_transfer},
    [DEVIATION_DATA] = {.name = "data", .describe = describe_data},
    [DEVIATION_COPIES] = {.name = "copies", .describe = describe_copies},
    [DEVIATION_FASTER] = {.name = "faster", .describe = describe_faster},
    [DEVIATION_UNKNOWN] = {.name = "unknown", .describe = describe_rest},
};

const char *deviation_cause_name(enum deviation_cause cause)
{
    return causes[cause].name;
}

/* "step takes 2.31 s, forecast 1.20 s (+92 %)" */
static void begin(const struct deviation_facts *facts, const struct deviation *d, char *text,
                  size_t size)
{
    char own[32], planned[32];
    snprintf(text, size, "step takes %s", show_time(facts->step_s, own));
    if (!facts->forecast) {
        if (d->cause == DEVIATION_NONE)
            text_append(text, size, ", and no rank is slower than the others");
        return;
    }
    show_time(facts->forecast->step_s, planned);
    if (d->cause == DEVIATION_NONE)
        text_append(text, size, ", as forecast (%s)", planned);
    else
        text_append(text, size, ", forecast %s (%+.0f %%)", planned,
                    100 * (facts->step_s / facts->forecast->step_s - 1));
}

const char *deviation_text(const struct deviation_facts *facts, const struct deviation *d,
                           const struct deviation_names *names, char *text, size_t size)
{
    char part[PART] = "";
    begin(facts, d, text, size);
    if (!causes[d->cause].describe)
        return text;
    causes[d->cause].describe(facts, d, names, part);
    return text_append(text, size, ": %s", part);
}
