/* layout_advice.c - what to set where degrees do not make the ranks: only settings that pass the
 * check that failed are named. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/schema.h"
#include "program/layout.h"

enum { SETTING = 64, NAMED_MOST = 2, MOST_RANKS = 1 << 20 };

struct advice {
    const struct config *config;
    int ranks, per_node, named;
    enum device_kind device;
    char text[NAMED_MOST * SETTING + 8]; /* "A", or "A or B" */
};

/* Name "key=value" if the configuration works with it. */
static void try_setting(struct advice *a, const char *key, const char *value)
{
    struct layout layout;
    struct config config = *a->config;
    size_t used = strlen(a->text);
    if (a->named == NAMED_MOST)
        return;
    if (config.parallel.strategy != STRATEGY_NO_SHARD && config.parallel.replicate == 1)
        config.parallel.replicate = 0; /* follows from the strategy, nobody set it */
    if (config_set(&config, key, value, NULL) || config_finish(&config, NULL) ||
        layout_resolve(&layout, &config, a->ranks, a->per_node, a->device, NULL))
        return;
    layout_release(&layout);
    snprintf(a->text + used, sizeof a->text - used, "%s%s=%s", a->named++ ? " or " : "", key,
             value);
}

static void try_degree(struct advice *a, const char *key, int degree)
{
    char value[16];
    snprintf(value, sizeof value, "%d", degree);
    try_setting(a, key, value);
}

/* The next lower degree that works. */
static void try_below(struct advice *a, const char *key, int degree)
{
    int named = a->named;
    for (int below = degree - 1; below > 0 && a->named == named; below--)
        try_degree(a, key, below);
}

/* The next lower degree that works, and the next higher one. */
static void try_near(struct advice *a, const char *key, int degree)
{
    try_below(a, key, degree);
    int named = a->named;
    for (int above = degree + 1; above <= a->ranks && a->named == named; above++)
        try_degree(a, key, above);
}

/* Set all degrees above 1 to 1, and write the settings that do so to text: "key=1 key=1". */
static void drop_degrees(struct config *config, char *text, size_t size)
{
    struct config_parallel *p = &config->parallel;
    struct {
        const char *key;
        int64_t *degree;
    } axes[] = {{.key = "pipeline", .degree = &p->pipeline},
                {.key = "replicate", .degree = &p->replicate},
                {.key = "shard", .degree = &p->shard},
                {.key = "context", .degree = &p->context},
                {.key = "tensor", .degree = &p->tensor}};
    text[0] = 0;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        if (*axes[i].degree > 1) {
            *axes[i].degree = 1;
            text_append(text, size, "%sparallel.%s=1", *text ? " " : "", axes[i].key);
        }
}

/* Returns the product of all degrees, where 0 ("what is left") counts as 1; once it is above
 * MOST_RANKS the degrees that are left do not count. */
static int64_t ranks_of(const struct config_parallel *p)
{
    const int64_t degrees[] = {p->pipeline, p->replicate, p->shard, p->context, p->tensor};
    int64_t ranks = 1;
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0] && ranks <= MOST_RANKS; i++)
        ranks *= degrees[i] > 0 ? degrees[i] : 1;
    return ranks;
}

/* One rank, and degrees of more: name the ranks that they make, and the settings of a run on this
 * one, each if the configuration works with it.  Returns 1 where the ranks are named. */
static int advise_ranks(const struct config *config, enum device_kind device, struct error *err)
{
    const int64_t ranks = ranks_of(&config->parallel);
    struct config alone = *config;
    struct layout layout;
    char text[160];
    if (ranks < 2 || ranks > MOST_RANKS ||
        layout_resolve(&layout, config, (int)ranks, (int)ranks, device, NULL))
        return 0;
    layout_release(&layout);
    text_append(err->text, sizeof err->text,
                "; start %d ranks: mpirun -n %d trireme ..., or plan with --ranks %d", (int)ranks,
                (int)ranks, (int)ranks);
    drop_degrees(&alone, text, sizeof text);
    if (config_finish(&alone, NULL) || layout_resolve(&layout, &alone, 1, 1, device, NULL))
        return 1;
    layout_release(&layout);
    text_append(err->text, sizeof err->text, "; one rank needs %s", text);
    return 1;
}

/* For parallel.shard: replicas of it that make the ranks, and the nearest degrees that divide them.
 */
static void try_shard(struct advice *a, int shard)
{
    int below = shard - 1, above = shard + 1;
    if (a->ranks % shard == 0) {
        try_degree(a, "parallel.replicate", a->ranks / shard);
        try_setting(a, "parallel.strategy",
                    a->config->parallel.strategy == STRATEGY_SHARD_GRAD_OP ? "HYBRID_SHARD_ZERO2"
                                                                           : "HYBRID_SHARD");
    }
    while (below > 1 && a->ranks % below)
        below--;
    while (above < a->ranks && a->ranks % above)
        above++;
    try_degree(a, "parallel.shard", below);
    try_degree(a, "parallel.shard", above);
}

/* Try other values of the degrees that are set. */
static void try_degrees(struct advice *a)
{
    const struct config_parallel *p = &a->config->parallel;
    if (p->shard > 0)
        try_shard(a, (int)p->shard);
    if (p->context > 1)
        try_near(a, "parallel.context", (int)p->context);
    if (p->tensor > 1)
        try_near(a, "parallel.tensor", (int)p->tensor);
    if (p->pipeline > 1) /* not above it: these may be more than the model's units */
        try_below(a, "parallel.pipeline", (int)p->pipeline);
    if (p->replicate && !p->shard)
        try_degree(a, "parallel.replicate", a->ranks);
}

int layout_advise(const struct config *config, int ranks, int per_node, enum device_kind device,
                  struct error *err)
{
    struct advice a = {.config = config, .ranks = ranks, .per_node = per_node, .device = device};
    size_t used = err ? strlen(err->text) : 0;
    if (!err || (ranks == 1 && advise_ranks(config, device, err)))
        return -1;
    try_degrees(&a);
    if (a.named)
        snprintf(err->text + used, sizeof err->text - used, "; %s would", a.text);
    else if (ranks % ranks_of(&config->parallel))
        text_append(err->text, sizeof err->text, "; parallel.layout=auto finds degrees that do");
    return -1;
}
