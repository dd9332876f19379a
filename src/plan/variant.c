/* variant.c - see variant.h. */
#include "plan/variant.h"

#include <stdio.h>
#include <string.h>

#include "config/schema.h"

const char *variant_name(enum config_strategy strategy, char text[CONFIG_TEXT])
{
    struct config config = {.parallel.strategy = strategy};
    return config_value(&config, "parallel.strategy", text);
}

int variant_set(struct config *config, const char *settings)
{
    char text[VARIANT_SETTINGS], *rest = text, *one;
    snprintf(text, sizeof text, "%s", settings);
    while (text[0] && (one = strsep(&rest, " "))) {
        char *value = strchr(one, '=');
        *value++ = 0;
        if (config_set(config, one, value, NULL))
            return -1;
    }
    return config_finish(config, NULL);
}

int variant_strategy(struct config *config, enum config_strategy strategy, struct error *err)
{
    struct config_parallel *p = &config->parallel;
    if (p->strategy == strategy)
        return 0;
    if (!config_sharding[p->strategy].hybrid || !config_sharding[strategy].hybrid)
        p->shard = p->replicate = 0;
    p->strategy = strategy;
    if (strategy == STRATEGY_NO_SHARD)
        p->persist_below = 0;
    return config_finish(config, err);
}
