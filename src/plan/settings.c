/* settings.c - see settings.h. */
#include "plan/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/schema.h"

const char *settings_strategy_name(enum config_strategy strategy, char text[CONFIG_TEXT])
{
    struct config config = {.parallel.strategy = strategy};
    return config_value(&config, "parallel.strategy", text);
}

/* Unset the keys for which the configuration, with its settings as they are now, has no use. */
static void drop_unused(struct config *config)
{
    const struct key *bucket = key_find("parallel.reduce_bucket_bytes");
    struct config_parallel *p = &config->parallel;
    int stage = config_sharding[p->strategy].stage;
    if (stage == 0)
        p->persist_below = 0;
    if (!config_has_buckets(p))
        key_set(config, bucket, bucket->initial, NULL);
    if (stage == 0 || (!p->forward_prefetch && p->backward_prefetch == PREFETCH_NONE))
        p->prefetch_units = 1;
    if (stage < 3 || p->pipeline == 1)
        p->pipeline_reshard = 0;
}

static int set_keys(struct config *config, const char *settings)
{
    char text[SETTINGS_BYTES], *rest = text, *one;
    snprintf(text, sizeof text, "%s", settings);
    while (text[0] && (one = strsep(&rest, " "))) {
        char *value = strchr(one, '=');
        *value++ = 0;
        if (config_set(config, one, value, NULL))
            return -1;
    }
    return 0;
}

int settings_set(struct config *config, const char *settings)
{
    if (set_keys(config, settings))
        return -1;
    drop_unused(config);
    return config_finish(config, NULL);
}

/* The configuration without the degrees that nobody has set. */
static struct config as_given(const struct config *config)
{
    struct config given = *config;
    struct config_parallel *p = &given.parallel;
    p->shard = p->shard_follows ? 0 : p->shard;
    p->replicate = p->replicate_follows ? 0 : p->replicate;
    return given;
}

void settings_complete(char text[SETTINGS_BYTES], const struct config *base,
                       const struct config *config)
{
    struct config reached = as_given(base), wanted = as_given(config);
    char reached_text[CONFIG_TEXT], wanted_text[CONFIG_TEXT];
    const char *key;
    set_keys(&reached, text);
    for (int i = 0; (key = config_key_name(i)); i++) {
        const char *value = config_value(&wanted, key, wanted_text);
        if (strcmp(config_value(&reached, key, reached_text), value) != 0)
            text_join(text, SETTINGS_BYTES, " ", "%s=%s", key, value);
    }
}

int settings_strategy(struct config *config, enum config_strategy strategy, struct error *err)
{
    struct config_parallel *p = &config->parallel;
    if (p->strategy == strategy)
        return 0;
    if (!config_sharding[p->strategy].hybrid || !config_sharding[strategy].hybrid)
        p->shard = p->replicate = 0;
    p->strategy = strategy;
    drop_unused(config);
    return config_finish(config, err);
}

int settings_add(struct settings *settings, const char *key, const char *fmt, ...)
{
    char value[CONFIG_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    text_join(settings->text, sizeof settings->text, " ", "%s=%s", key, value);
    return config_set(&settings->config, key, value, NULL);
}

enum config_offload_to settings_level_keeps(int level, enum settings_part part)
{
    enum { HOST = OFFLOAD_HOST, DISK = OFFLOAD_DISK };
    static const unsigned char levels[SETTINGS_LEVELS][SETTINGS_PARTS] = {
        {0},
        {[PART_OPTIMIZER] = HOST},
        {[PART_OPTIMIZER] = HOST, [PART_GRADIENTS] = HOST},
        {[PART_OPTIMIZER] = HOST, [PART_GRADIENTS] = HOST, [PART_PARAMS] = HOST},
        {[PART_OPTIMIZER] = DISK, [PART_GRADIENTS] = HOST, [PART_PARAMS] = HOST},
        {[PART_OPTIMIZER] = DISK, [PART_GRADIENTS] = DISK, [PART_PARAMS] = HOST},
        {[PART_OPTIMIZER] = DISK, [PART_GRADIENTS] = DISK, [PART_PARAMS] = DISK},
    };
    return levels[level][part];
}

enum config_offload_to settings_keeps(const struct config *config, enum settings_part part)
{
    const struct config_offload *o = &config->offload;
    return part == PART_OPTIMIZER   ? o->optimizer
           : part == PART_GRADIENTS ? o->gradients
                                    : o->params;
}

int settings_move(struct settings *settings, enum settings_part part, enum config_offload_to to)
{
    static const char *const keys[SETTINGS_PARTS] = {[PART_OPTIMIZER] = "offload.optimizer",
                                                     [PART_GRADIENTS] = "offload.gradients",
                                                     [PART_PARAMS] = "offload.params"};
    static const char *const names[] = {
        [OFFLOAD_NONE] = "none", [OFFLOAD_HOST] = "host", [OFFLOAD_DISK] = "disk"};
    return settings_keeps(&settings->config, part) == to
               ? 0
               : settings_add(settings, keys[part], "%s", names[to]);
}

int settings_move_to_level(struct settings *settings, int level)
{
    for (enum settings_part part = 0; part < SETTINGS_PARTS; part++)
        if (settings_move(settings, part, settings_level_keeps(level, part)))
            return -1;
    return 0;
}
