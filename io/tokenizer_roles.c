/* tokenizer_roles.c - which tokens begin and end texts, pad them, and stand for the unknown.
 *
 * tokenizer.json does not say.  The files beside it do, each in its own way:
 *     tokenizer_config.json     "eos_token": "</s>", or {"content": "</s>", ...}, or null: none
 *     special_tokens_map.json   the same
 *     generation_config.json    "eos_token_id": 2, or a list, at all of which generation stops
 * For each role the first of these files that names a token of the tokenizer (or null) decides;
 * where none does, the role gets the first well-known name that is a token, but not the end of
 * texts where a file names one that the vocabulary lacks.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "io/tokenizer_file.h"

enum { MOST_NAMES = 6 };

static const struct {
    const char *text;              /* key of the first two files: the token's text */
    const char *id;                /* key of generation_config.json: its id; NULL: no key */
    const char *names[MOST_NAMES]; /* well-known names, NULL after the last */
} roles[TOKENIZER_ROLES] = {
    [TOKENIZER_BOS] = {.text = "bos_token",
                       .id = "bos_token_id",
                       .names = {"<s>", "<|begin_of_text|>", "<bos>", "[BOS]", "<|endoftext|>"}},
    [TOKENIZER_EOS] = {.text = "eos_token",
                       .id = "eos_token_id",
                       .names = {"</s>", "<|end_of_text|>", "<eos>", "[EOS]", "<|endoftext|>"}},
    [TOKENIZER_PAD] = {.text = "pad_token",
                       .id = "pad_token_id",
                       .names = {"<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"}},
    [TOKENIZER_UNK] = {.text = "unk_token", .names = {"<unk>", "[UNK]", "<|unk|>"}},
};

/* Well-known names of the token that ends documents. */
static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", NULL};

/* Return the path of a file beside tokenizer.json, for free(). */
static char *path_beside(const struct tokenizer *tokenizer, const char *name)
{
    const char *slash = strrchr(tokenizer->path, '/');
    int folder = slash ? (int)(slash - tokenizer->path + 1) : 0;
    return array_format("%.*s%s", folder, tokenizer->path, name);
}

/* Read a file beside tokenizer.json.  Returns 0 with its object, or with NULL where there is no
 * such file; -1 with err set where it is not JSON, or no object. */
static int read_beside(const struct tokenizer *tokenizer, const char *name, struct js **json,
                       struct error *err)
{
    char *path = path_beside(tokenizer, name);
    *json = NULL;
    int rc = access(path, F_OK) || (*json = js_read(path, err)) ? 0 : -1;
    if (*json && strcmp(js_kind(*json), "an object") != 0)
        rc = error_set(err, "%s is %s; an object is wanted", path, js_kind(*json));
    free(path);
    return rc;
}

/* Returns 1 if a file decides a role, by a token, whose id becomes *id, or by null (*id: -1). Where
 * the file names one that the vocabulary lacks, *lacking becomes that name. */
static int is_decided(const struct tokenizer *tokenizer, const struct js *file, int role,
                      int64_t *id, const char **lacking)
{
    const struct js *value = js_get(file, roles[role].text);
    const char *text = js_string(value);
    if (!text)
        text = js_get_string(value, "content", NULL);
    *id = text ? tokenizer_id(tokenizer, text) : -1;
    if (text && *id < 0)
        *lacking = text;
    return value && (!text || *id >= 0);
}

/* Returns the id that generation_config.json has for a role, or -1; notes one that no token has. */
static int64_t by_number(struct tokenizer *tokenizer, const struct js *generation, int role)
{
    const struct js *value = roles[role].id ? js_get(generation, roles[role].id) : NULL;
    int64_t id = js_int(value, js_at_int(value, 0, -1));
    if (tokenizer_text(tokenizer, id))
        return id;
    tokenizer->unknown_id[role] = id >= 0 ? id : -1;
    return -1;
}

/* Returns the id of the first of at most `most` names that is a token, or -1. */
static int64_t by_names(const struct tokenizer *tokenizer, const char *const *names, int most)
{
    int64_t id = -1;
    for (int i = 0; id < 0 && i < most && names[i]; i++)
        id = tokenizer_id(tokenizer, names[i]);
    return id;
}

/* If id is a token, let generation stop at it.  Returns 1 if it is one. */
static int stop_at(struct tokenizer *tokenizer, int64_t id)
{
    int is_token = tokenizer_text(tokenizer, id) != NULL;
    if (is_token)
        tokenizer->data->flags[id] |= TOKENIZER_IS_STOP;
    return is_token;
}

/* Let generation stop at an id of eos_token_id, and note one that no token has; one below 0 is
 * transformers' way to stop nowhere.  Returns 0, or -1 with err set: it is no id. */
static int stop_at_value(struct tokenizer *tokenizer, const struct js *value, struct error *err)
{
    int64_t id = js_int(value, INT64_MIN);
    char text[64] = "";
    if (id != INT64_MIN) {
        if (id >= 0 && !stop_at(tokenizer, id))
            tokenizer->unknown_id[TOKENIZER_EOS] = id;
        return 0;
    }
    if (js_string(value))
        snprintf(text, sizeof text, "\"%.40s\"", js_string(value));
    else
        snprintf(text, sizeof text, "%s",
                 strcmp(js_kind(value), "a number") ? js_kind(value) : "a real number");
    return error_set(err, "eos_token_id has %s, which is no token's id", text);
}

/* Let generation stop at each eos_token_id of generation_config.json: an id, a list, or null. */
static int add_stops(struct tokenizer *tokenizer, const struct js *generation, struct error *err)
{
    const struct js *stops = js_get(generation, "eos_token_id");
    int count = js_length(stops), rc = 0;
    if (!js_has(generation, "eos_token_id"))
        return 0;
    if (strcmp(js_kind(stops), "an array") != 0)
        return stop_at_value(tokenizer, stops, err);
    for (int i = 0; !rc && i < count; i++)
        rc = stop_at_value(tokenizer, js_at(stops, i), err);
    return rc;
}

static int find_roles(struct tokenizer *tokenizer, const struct js *config, const struct js *map,
                      const struct js *generation, struct error *err)
{
    for (int i = 0; i < TOKENIZER_ROLES; i++) {
        int64_t *id = &tokenizer->role[i];
        const char *lacking = NULL;
        int64_t numbered = by_number(tokenizer, generation, i);
        if (is_decided(tokenizer, config, i, id, &lacking) ||
            is_decided(tokenizer, map, i, id, &lacking))
            continue;
        *id = numbered;
        if (*id < 0 && lacking && i == TOKENIZER_EOS)
            return error_set(err,
                             "%s: the files beside it name \"%.60s\" as eos_token, which the "
                             "vocabulary lacks; mend tokenizer_config.json",
                             tokenizer->path, lacking);
        if (*id < 0)
            *id = by_names(tokenizer, roles[i].names, MOST_NAMES);
    }
    tokenizer->end_of_text = by_names(tokenizer, ends, 2);
    if (tokenizer->end_of_text < 0)
        tokenizer->end_of_text = tokenizer->role[TOKENIZER_EOS];
    if (tokenizer->end_of_text < 0)
        tokenizer->end_of_text = tokenizer_id(tokenizer, "[SEP]");
    stop_at(tokenizer, tokenizer->role[TOKENIZER_EOS]);
    stop_at(tokenizer, tokenizer->end_of_text);
    if (!add_stops(tokenizer, generation, err))
        return 0;
    char *path = path_beside(tokenizer, "generation_config.json");
    error_prefix(err, "%s", path);
    free(path);
    return -1;
}

int tokenizer_roles_read(struct tokenizer *tokenizer, struct error *err)
{
    struct js *config = NULL, *map = NULL, *generation = NULL;
    int rc = read_beside(tokenizer, "tokenizer_config.json", &config, err) ||
             read_beside(tokenizer, "special_tokens_map.json", &map, err) ||
             read_beside(tokenizer, "generation_config.json", &generation, err);
    rc = rc || find_roles(tokenizer, config, map, generation, err);
    js_free(config);
    js_free(map);
    js_free(generation);
    return rc ? -1 : 0;
}
