/* hf_rope.c - rotary positions in config.json, in the two forms of transformers:
 *
 *     up to version 4   {"rope_theta": 5e5, "rope_scaling": {"rope_type": "yarn", ...}}
 *     version 5         {"rope_parameters": {"rope_theta": 5e5, "rope_type": "yarn", ...}}
 *
 * Old files have "type" in place of "rope_type".  Files are written in the first form. */
#include "config/hf_members.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* The types that change frequencies, as bits of rope_members. */
enum { LINEAR = 1, LLAMA3 = 2, YARN = 4 };
static const struct {
    const char *name;
    enum config_rope_scaling scaling;
    int bit;
} types[] = {
    {.name = "default", .scaling = ROPE_SCALING_NONE, .bit = 0},
    {.name = "linear", .scaling = ROPE_SCALING_LINEAR, .bit = LINEAR},
    {.name = "llama3", .scaling = ROPE_SCALING_LLAMA3, .bit = LLAMA3},
    {.name = "yarn", .scaling = ROPE_SCALING_YARN, .bit = YARN},
};
enum { TYPES = sizeof types / sizeof types[0] };

#define MEMBER(types, text, config_key, kind) \
    .of = types, .member.name = text, .member.key = config_key, .member.type = kind

/* The members of each type; those that must be there have no `otherwise`. */
static const struct rope_member {
    int of; /* bits of the types that have it */
    struct hf_member member;
} rope_members[] = {
    {MEMBER(LINEAR | LLAMA3 | YARN, "factor", "model.rope_factor", HF_REAL)},
    {MEMBER(LLAMA3, "low_freq_factor", "model.rope_low_freq_factor", HF_REAL)},
    {MEMBER(LLAMA3, "high_freq_factor", "model.rope_high_freq_factor", HF_REAL)},
    {MEMBER(YARN, "beta_fast", "model.rope_beta_fast", HF_REAL), .member.otherwise = "32"},
    {MEMBER(YARN, "beta_slow", "model.rope_beta_slow", HF_REAL), .member.otherwise = "1"},
    {MEMBER(YARN, "attention_factor", "model.rope_attention_factor", HF_REAL),
     .member.otherwise = "0"},
    {MEMBER(YARN, "mscale", "model.rope_mscale", HF_REAL), .member.otherwise = "0"},
    {MEMBER(YARN, "mscale_all_dim", "model.rope_mscale_all_dim", HF_REAL), .member.otherwise = "0"},
    {MEMBER(YARN, "truncate", "model.rope_truncate", HF_TRUTH), .member.otherwise = "true"},
};
enum { ROPE_MEMBERS = sizeof rope_members / sizeof rope_members[0] };

static int find_type(const char *name, int *type, struct error *err)
{
    for (*type = 0; *type < TYPES; ++*type)
        if (!strcmp(types[*type].name, name))
            return 0;
    char names[128] = "";
    for (int t = 0; t < TYPES; t++)
        text_join(names, sizeof names, ", ", "%s", types[t].name);
    return error_set(err, "rope type \"%.40s\" is not one that trireme has: %s", name, names);
}

static int is_known(const char *name)
{
    static const char *const others[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor",
                                         "original_max_position_embeddings"};
    for (int i = 0; i < ROPE_MEMBERS; i++)
        if (!strcmp(rope_members[i].member.name, name))
            return 1;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!strcmp(others[i], name))
            return 1;
    return 0;
}

/* Refuse members that trireme does not know: they may belong to a kind of positions that it does
 * not have. */
static int check_unknown(const struct js *rope, struct error *err)
{
    for (const char *name = js_next_key(rope, NULL); name; name = js_next_key(rope, name))
        if (!is_known(name) && hf_has_meaning(rope, name))
            return error_set(err,
                             "%.60s of the rotary positions is not a member that trireme knows, "
                             "and may change them",
                             name);
    double share = js_get_real(rope, "partial_rotary_factor", 1);
    return share == 1
               ? 0
               : error_set(err, "partial_rotary_factor is %g; trireme rotates whole heads", share);
}

/* Set the sequence length before stretching: of the model's own member, which transformers takes
 * first, else of rope's, else max_seq_len. */
static int set_original_len(struct config *config, const struct js *json, const struct js *rope,
                            struct error *err)
{
    static const struct hf_member row = {0, "original_max_position_embeddings",
                                         "model.rope_original_len", HF_NUMBER};
    char text[32];
    if (js_has(json, row.name))
        return hf_set_member(config, &row, json, err);
    if (js_has(rope, row.name))
        return hf_set_member(config, &row, rope, err);
    snprintf(text, sizeof text, "%lld", (long long)config->model.max_seq_len);
    return hf_set(config, row.key, text, err);
}

/* Check the JSON types of the members that rope_members does not have. */
static int check_kinds(const struct js *json, const struct js *rope, struct error *err)
{
    return js_check(json, "rope_theta", JS_NUMBER, err) ||
                   js_check(rope, "rope_theta", JS_NUMBER, err) ||
                   js_check(rope, "rope_type", JS_TEXT, err) ||
                   js_check(rope, "type", JS_TEXT, err) ||
                   js_check(rope, "partial_rotary_factor", JS_NUMBER, err)
               ? -1
               : 0;
}

/* Set the keys from one of the two objects; json: the whole config.json. */
static int read_rope(struct config *config, const struct js *json, const struct js *rope,
                     double otherwise, struct error *err)
{
    double theta = js_get_real(rope, "rope_theta", js_get_real(json, "rope_theta", otherwise));
    int type;
    if (check_kinds(json, rope, err) ||
        find_type(js_get_string(rope, "rope_type", js_get_string(rope, "type", "default")), &type,
                  err) ||
        check_unknown(rope, err) || hf_set_real(config, "model.rope_theta", theta, err) ||
        hf_set(config, "model.rope_scaling",
               types[type].scaling == ROPE_SCALING_NONE ? "none" : types[type].name, err))
        return -1;
    for (int i = 0; i < ROPE_MEMBERS; i++)
        if (rope_members[i].of & types[type].bit &&
            hf_set_member(config, &rope_members[i].member, rope, err))
            return -1;
    if (types[type].bit & YARN && js_has(rope, "attention_factor") &&
        !config->model.rope.yarn.attention_factor) /* 0 in a key is: not given */
        return error_set(err, "attention_factor is 0, with which all queries and keys are 0; leave "
                              "it out of the file, so that it follows from factor");
    return types[type].bit & (LLAMA3 | YARN) ? set_original_len(config, json, rope, err) : 0;
}

/* Where a file has both objects, transformers takes rope_scaling alone, even for rope_theta.  The
 * file is refused unless both say the same. */
int hf_read_rope(struct config *config, const struct js *json, double theta, struct error *err)
{
    const struct js *old = js_get(json, "rope_scaling"), *new = js_get(json, "rope_parameters");
    const struct config_rope before = config->model.rope;
    if (js_check(json, "rope_scaling", JS_OBJECT, err) ||
        js_check(json, "rope_parameters", JS_OBJECT, err) ||
        read_rope(config, json, js_next_key(new, NULL) ? new : old, theta, err))
        return -1;
    if (!js_next_key(new, NULL) || !js_next_key(old, NULL))
        return 0;
    const struct config_rope first = config->model.rope;
    config->model.rope = before;
    if (read_rope(config, json, old, theta, err))
        return -1;
    return memcmp(&first, &config->model.rope, sizeof first)
               ? error_set(err, "rope_scaling and rope_parameters say different positions, and "
                                "transformers takes rope_scaling alone; remove one of them")
               : 0;
}

static void add_yarn(const struct config_yarn *yarn, struct js *to)
{
    js_add_real(to, "beta_fast", yarn->beta_fast);
    js_add_real(to, "beta_slow", yarn->beta_slow);
    if (yarn->attention_factor > 0)
        js_add_real(to, "attention_factor", yarn->attention_factor);
    if (yarn->mscale > 0)
        js_add_real(to, "mscale", yarn->mscale);
    if (yarn->mscale_all_dim > 0)
        js_add_real(to, "mscale_all_dim", yarn->mscale_all_dim);
    if (!yarn->truncate)
        js_add_bool(to, "truncate", 0);
}

void hf_add_rope(const struct config_rope *rope, struct js *json)
{
    int type = 0;
    js_add_real(json, "rope_theta", rope->theta);
    if (rope->scaling == ROPE_SCALING_NONE)
        return;
    while (types[type].scaling != rope->scaling)
        type++;
    struct js *scaling = js_object();
    js_add_string(scaling, "rope_type", types[type].name);
    js_add_real(scaling, "factor", rope->factor);
    if (rope->scaling == ROPE_SCALING_LLAMA3) {
        js_add_real(scaling, "low_freq_factor", rope->low_freq_factor);
        js_add_real(scaling, "high_freq_factor", rope->high_freq_factor);
    }
    if (rope->scaling == ROPE_SCALING_YARN)
        add_yarn(&rope->yarn, scaling);
    if (rope->scaling != ROPE_SCALING_LINEAR)
        js_add_int(scaling, "original_max_position_embeddings", rope->original_len);
    js_add(json, "rope_scaling", scaling);
}
