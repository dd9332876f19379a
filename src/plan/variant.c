/* variant.c - see variant.h. */
#include "plan/variant.h"

#include "config/schema.h"

int variant_is_hybrid(enum config_strategy strategy)
{
    return strategy == STRATEGY_HYBRID_SHARD || strategy == STRATEGY_HYBRID_SHARD_ZERO2;
}

int variant_stage(enum config_strategy strategy)
{
    static const int stages[VARIANTS] = {
        [STRATEGY_NO_SHARD] = 0,   [STRATEGY_SHARD_OPTIM] = 1,  [STRATEGY_SHARD_GRAD_OP] = 2,
        [STRATEGY_FULL_SHARD] = 3, [STRATEGY_HYBRID_SHARD] = 3, [STRATEGY_HYBRID_SHARD_ZERO2] = 2,
    };
    return stages[strategy];
}

const char *variant_name(enum config_strategy strategy, char text[CONFIG_TEXT])
{
    struct config config = {.parallel.strategy = strategy};
    return config_value(&config, "parallel.strategy", text);
}

int variant_strategy(struct config *config, enum config_strategy strategy, struct error *err)
{
    struct config_parallel *p = &config->parallel;
    if (p->strategy == strategy)
        return 0;
    if (!variant_is_hybrid(p->strategy) || !variant_is_hybrid(strategy))
        p->shard = p->replicate = 0;
    p->strategy = strategy;
    if (strategy == STRATEGY_NO_SHARD)
        p->persist_below = 0;
    return config_finish(config, err);
}
