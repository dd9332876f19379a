/* key.c - finding a key by name, describing it, and its value as text. */
#include "base/text.h"
#include "config/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/foreign.h"

const struct key *key_find(const char *name)
{
    const struct key *key;
    for (int i = 0; (key = key_at(i)) && strcmp(key->name, name) != 0; i++)
        ;
    return key;
}

static int is_in_group(const char *key, const char *group)
{
    size_t length = strlen(group);
    return !strncmp(key, group, length) && key[length] == '.';
}

int key_is_group(const char *name)
{
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++)
        if (is_in_group(key->name, name))
            return 1;
    return 0;
}

int key_opens_group(int i)
{
    const char *name = key_at(i)->name, *dot = strchr(name, '.');
    int length = dot ? (int)(dot - name) : 0;
    return i && !strncmp(name, key_at(i - 1)->name, (size_t)length + 1) ? 0 : length;
}

/* "lr" of "train.lr". */
static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Are two names the same but for dots and underscores: "eval.batches", "eval_batches"? */
static int has_same_words(const char *a, const char *b)
{
    for (; *a && (*a == *b || (*b && strchr("._", *a) && strchr("._", *b))); a++, b++)
        ;
    return *a == *b;
}

/* Where name is another program's word, set err to trireme's key for it and return -1; else return
 * 0. */
static int answer_foreign(const char *name, struct error *err)
{
    const struct foreign *f = foreign_find(name);
    if (!f)
        return 0;
    if (!f->here)
        return error_set(err, "unknown key \"%.80s\": %s", name, f->note);
    return error_set(err, "unknown key \"%.80s\"; here: %s%s%s%s", name, f->here,
                     f->note ? " (" : "", f->note ? f->note : "", f->note ? ")" : "");
}

/* Are two dotted names of one group?  Then their last parts alone say how near they are: the name
 * of the group would make any two of them alike. */
static int has_same_group(const char *a, const char *b)
{
    size_t length = (size_t)(last_part(a) - a);
    return length && length == (size_t)(last_part(b) - b) && !strncmp(a, b, length);
}

const char *key_meant(const char *name)
{
    const struct foreign *f = foreign_find(name);
    struct nearest whole = {name}, part = {last_part(name)};
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        if (has_same_words(name, key->name) || has_same_words(name, last_part(key->name)))
            return key->name;
        if (!has_same_group(name, key->name))
            nearest_try(&whole, key->name, key->name);
        nearest_try(&part, last_part(key->name), key->name);
    }
    if (part.name && part.distance == 0)
        return part.name;
    if (f && f->here)
        return f->here;
    return whole.name ? whole.name : part.name;
}

const struct key *key_spelt(const char *name)
{
    const struct key *key, *found = NULL;
    int parts = 0;
    for (int i = 0; (key = key_at(i)); i++) {
        if (has_same_words(name, key->name))
            return key;
        if (!is_in_group(key->name, "generate") && has_same_words(name, last_part(key->name))) {
            found = key;
            parts++;
        }
    }
    return parts == 1 ? found : NULL;
}

/* List the first keys of a group in the order of the table, as examples. */
static const char *first_of_group(const char *group, char *text, size_t size)
{
    enum { SHOWN = 5 };
    const struct key *key;
    text[0] = 0;
    for (int i = 0, shown = 0; (key = key_at(i)) && shown < SHOWN; i++)
        if (is_in_group(key->name, group)) {
            text_join(text, size, ", ", "%s", key->name);
            shown++;
        }
    return text;
}

int key_unknown(const char *name, struct error *err)
{
    char keys[256];
    if (key_is_group(name))
        return error_set(err,
                         "%s is a group of keys and takes no value of its own: set one of its "
                         "keys, such as %s (trireme config --show %s lists all)",
                         name, first_of_group(name, keys, sizeof keys), name);
    if (answer_foreign(name, err))
        return -1;
    const char *meant = key_meant(name);
    if (meant)
        return error_set(err, "unknown key \"%.80s\"; did you mean %s?", name, meant);
    return error_set(err, "unknown key \"%.80s\"; trireme config --show lists the keys", name);
}

/* Find the group that name nearly spells, or begins with ("training": train), as the first key of
 * this group; NULL: there is none. */
static const char *group_meant(const char *name)
{
    struct nearest nearest = {name};
    const struct key *key;
    const char *begun = NULL;
    for (int i = 0; (key = key_at(i)); i++) {
        char group[64];
        int length = key_opens_group(i);
        snprintf(group, sizeof group, "%.*s", length, key->name);
        if (length)
            nearest_try(&nearest, group, key->name);
        if (length && !strncmp(name, group, (size_t)length))
            begun = key->name;
    }
    return nearest.name ? nearest.name : begun;
}

int key_group_unknown(const char *name, struct error *err)
{
    const char *meant = foreign_find(name) ? NULL : group_meant(name);
    if (!meant)
        return key_unknown(name, err);
    return error_set(err, "unknown group \"%.80s\"; did you mean %.*s?", name,
                     (int)strcspn(meant, "."), meant);
}

void key_choices(const struct key_choice *choices, char *buffer, size_t bytes)
{
    buffer[0] = '\0';
    for (const struct key_choice *c = choices; c->name; c++)
        if (c->value != CHOICE_LATER)
            text_join(buffer, bytes, ", ", "%s", c->name);
}

/* Write a double with the fewest digits, at least 6, that read back to the same value. */
static const char *real_text(double value, char *buffer)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buffer, CONFIG_TEXT, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
    return buffer;
}

const char *key_text(const struct config *config, const struct key *key, char *buffer)
{
    const void *field = (const char *)config + key->offset;
    switch (key->type) {
    case KEY_INT:
        snprintf(buffer, CONFIG_TEXT, "%lld", (long long)*(const int64_t *)field);
        return buffer;
    case KEY_REAL: return real_text(*(const double *)field, buffer);
    case KEY_BOOL: return *(const int *)field ? "true" : "false";
    case KEY_TEXT: return field;
    case KEY_CHOICE:
        for (const struct key_choice *c = key->choices; c->name; c++)
            if (c->value == *(const int *)field)
                return c->name;
    }
    return "?";
}

void key_describe(const struct key *key, char *buffer, size_t bytes)
{
    if (key->choices)
        key_choices(key->choices, buffer, bytes);
    else if (key->type == KEY_INT && key->max == INT64_MAX)
        snprintf(buffer, bytes, "whole number, %lld or more", (long long)key->min);
    else if (key->type == KEY_INT)
        snprintf(buffer, bytes, "whole number, %lld to %lld", (long long)key->min,
                 (long long)key->max);
    else if (key->type == KEY_REAL)
        snprintf(buffer, bytes, "number, %g to %g", key->least, key->most);
    else
        snprintf(buffer, bytes, key->type == KEY_BOOL ? "true or false" : "text");
    if (key->or_file)
        text_append(buffer, bytes, ", FILE%s", key->or_file);
}
