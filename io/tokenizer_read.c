/* tokenizer_read.c - see tokenizer_read.h. */
#include "io/tokenizer_read.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

int tokenizer_read_bool(const struct js *part, const char *key, int otherwise, int *value,
                        struct error *err)
{
    *value = js_get_bool(part, key, js_has(part, key) ? -1 : otherwise);
    return *value < 0 ? error_set(err, "%s is neither true nor false", key) : 0;
}

int tokenizer_read_int(const struct js *part, const char *key, int64_t otherwise, int64_t *value,
                       struct error *err)
{
    *value = js_get_int(part, key, js_has(part, key) ? -1 : otherwise);
    return *value < 0 ? error_set(err, "%s is not a whole number", key) : 0;
}

int tokenizer_read_text(const struct js *part, const char *key, const char *otherwise,
                        const char **value, struct error *err)
{
    int has = js_has(part, key);
    *value = js_get_string(part, key, has ? NULL : otherwise);
    return has && !*value ? error_set(err, "%s is not a text", key) : 0;
}

int tokenizer_read_type(const struct js *part, const char *what, const void *table, int rows,
                        size_t size, struct error *err)
{
    char names[512] = "";
    const char *type = js_get_string(part, "type", NULL);
    if (!type)
        return error_set(err, "a %s has no type", what);
    for (int i = 0; i < rows; i++) {
        const char *const *name = (const char *const *)((const char *)table + (size_t)i * size);
        if (!strcmp(*name, type))
            return i;
        text_join(names, sizeof names, ", ", "%s", *name);
    }
    return error_set(err, "%s \"%.100s\" is none that trireme has; there are: %s", what, type,
                     names);
}

int tokenizer_read_each(struct tokenizer_data *data, const struct js *part, const char *key,
                        const char *what,
                        int (*read)(struct tokenizer_data *data, const struct js *part,
                                    struct error *err),
                        struct error *err)
{
    if (strcmp(js_get_string(part, "type", ""), "Sequence"))
        return read(data, part, err);
    const struct js *list = js_get(part, key);
    if (!list)
        return error_set(err, "a Sequence of %ss has no %s", what, key);
    for (int i = 0; i < js_length(list); i++)
        if (tokenizer_read_each(data, js_at(list, i), key, what, read, err))
            return -1;
    return 0;
}

int tokenizer_read_pattern(const struct js *part, char **text, struct tokenizer_regex **regex,
                           const char **source, struct error *err)
{
    const struct js *pattern = js_get(part, "pattern");
    const char *literal = js_get_string(pattern, "String", NULL);
    *source = js_get_string(pattern, "Regex", NULL);
    if (literal && *literal) {
        *text = array_text(literal);
        return 0;
    }
    if (!*source)
        return error_set(err, "a pattern is neither {\"String\": text} nor {\"Regex\": pattern}");
    return tokenizer_regex_create(regex, *source, err)
               ? error_prefix(err, "pattern \"%.200s\"", *source)
               : 0;
}

int tokenizer_read_vocab(const struct js *model, struct tokenizer_vocab *vocab, struct error *err)
{
    const struct js *tokens = js_get(model, "vocab");
    for (const char *text = NULL; (text = js_next_key(tokens, text));) {
        int64_t id = js_get_int(tokens, text, -1);
        if (id < 0 || id >= TOKENIZER_MOST_IDS)
            return error_set(err, "token \"%.100s\" has no id from 0 to %d", text,
                             TOKENIZER_MOST_IDS - 1);
        if (tokenizer_vocab_add(vocab, text, strlen(text), (uint32_t)id))
            return error_set(err, "tokens \"%.100s\" and \"%.100s\" have one id, %lld", text,
                             tokenizer_vocab_text(vocab, id, &(size_t){0}), (long long)id);
    }
    return vocab->count ? 0 : error_set(err, "it has no vocab, or one without tokens");
}
