/* names.c - see names.h. */
#include "model/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Match a name with a pattern in which %s stands for digits; these go into digits. */
static int matches(const char *name, const char *pattern, char digits[16])
{
    const char *star = strstr(pattern, "%s");
    size_t front = star ? (size_t)(star - pattern) : 0, length = 0;
    digits[0] = 0;
    if (!star)
        return !strcmp(name, pattern);
    if (strncmp(name, pattern, front))
        return 0;
    while (isdigit((unsigned char)name[front + length]) && length < 15)
        length++;
    snprintf(digits, 16, "%.*s", (int)length, name + front);
    return length && !strcmp(name + front + length, star + 2);
}

int model_hf_place(const struct model_family *family, const char *own, struct model_place *place)
{
    char digits[16];
    for (const struct model_name *row = family->names; row->own; row++) {
        if (!matches(own, row->own, digits))
            continue;
        const char *star = strstr(row->hf, "%s");
        int front = (int)(star ? (size_t)(star - row->hf) : strlen(row->hf));
        snprintf(place->name, sizeof place->name, "%.*s%s%s", front, row->hf, digits,
                 star ? star + 2 : "");
        place->part = row->part;
        place->parts = row->parts ? row->parts : 1;
        place->is_transposed = row->is_transposed;
        return 0;
    }
    return -1;
}

void model_hf_first(const struct model_family *family, const char *own, char first[HF_NAME])
{
    char digits[16], ignored[16];
    const struct model_name *row = family->names;
    snprintf(first, HF_NAME, "%s", own);
    while (row->own && !matches(own, row->own, digits))
        row++;
    for (const struct model_name *other = family->names; row->own && other->own; other++) {
        if (other->part || strcmp(other->hf, row->hf) != 0 || matches(own, other->own, ignored))
            continue;
        const char *star = strstr(other->own, "%s");
        int front = (int)(star ? (size_t)(star - other->own) : strlen(other->own));
        snprintf(first, HF_NAME, "%.*s%s%s", front, other->own, digits, star ? star + 2 : "");
        return;
    }
}

int model_hf_is_ignored(const struct config_model *config, const char *name)
{
    static const char *const ends[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (text_ends_with(name, ends[i]))
            return 1;
    return config->tie_embeddings && !strcmp(name, "lm_head.weight");
}
