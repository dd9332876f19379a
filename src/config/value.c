/* value.c - checking the text of a value and putting it into its field of struct config. */
#include "base/text.h"
#include "config/schema.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int spells(const struct key_choice *choice, const char *value)
{
    if (!strcasecmp(choice->name, value))
        return 1;
    size_t length = strlen(value);
    for (const char *alias = choice->aliases; alias && length; alias = strchr(alias, '|')) {
        alias += *alias == '|';
        if (!strncasecmp(alias, value, length) && (alias[length] == '|' || !alias[length]))
            return 1;
    }
    return 0;
}

static const struct key_choice *find_choice(const struct key *key, const char *value,
                                            struct error *err)
{
    char names[512];
    struct nearest nearest = {value};
    key_choices(key->choices, names, sizeof names);
    if (key->or_file)
        text_append(names, sizeof names, ", or a file %s", key->or_file);
    for (const struct key_choice *c = key->choices; c->name; c++) {
        if (spells(c, value) && c->value != CHOICE_LATER)
            return c;
        if (spells(c, value)) {
            error_set(err, "%s: %s is not in this version of trireme, which has %s", key->name,
                      c->name, c->instead ? c->instead : names);
            return NULL;
        }
        if (c->value != CHOICE_LATER)
            nearest_try(&nearest, c->name, c->name);
    }
    error_set(err, "%s: unknown value \"%.80s\"%s%s%s allowed: %s", key->name, value,
              nearest.name ? "; did you mean " : "", nearest.name ? nearest.name : "",
              nearest.name ? "?" : ";", names);
    return NULL;
}

enum { DIGITS_MOST = 40 };

/* Copy value into text without the underscores between its digits, "1_000".  Returns 0, or -1 where
 * an underscore stands elsewhere or the value is empty or too long for a number. */
static int drop_underscores(const char *value, char text[DIGITS_MOST])
{
    int used = 0;
    for (const char *c = value; *c; c++) {
        int between = c > value && isdigit((unsigned char)c[-1]) && isdigit((unsigned char)c[1]);
        if (used == DIGITS_MOST - 1 || (*c == '_' && !between))
            return -1;
        if (*c != '_')
            text[used++] = *c;
    }
    text[used] = 0;
    return used ? 0 : -1;
}

/* Read a whole number as people and Python write it: 1000, 1_000, 1e3.  Returns 0 and the number,
 * or -1 where it is none.  errno is ERANGE where it is beyond 64 bits, or, with a fraction or an
 * exponent, beyond 2^53; else 0. */
static int parse_whole(const char *value, long long *number)
{
    static const double exact = 9007199254740992; /* 2^53: every whole number up to it */
    char text[DIGITS_MOST], *end;
    if (drop_underscores(value, text))
        return -1;
    errno = 0;
    *number = strtoll(text, &end, 10);
    if (end > text && !*end)
        return 0;
    double real = strtod(text, &end);
    if (*end || strspn(text, "0123456789+-.eE") != strlen(text) || real != rint(real))
        return -1;
    errno = fabs(real) > exact ? ERANGE : 0;
    *number = errno ? 0 : (long long)real;
    return 0;
}

static int set_int(const struct key *key, void *field, const char *value, struct error *err)
{
    long long number;
    if (isspace((unsigned char)*value) || parse_whole(value, &number))
        return error_set(err, "%s: \"%.80s\" is not a whole number", key->name, value);
    if (key->later && !errno && number > key->max)
        return error_set(err, "%s: %s is not in this version of trireme; leave it at %lld",
                         key->name, key->later, (long long)key->max);
    if (errno || number < key->min || number > key->max)
        return error_set(err, "%s: %.80s is out of range, allowed is %lld to %lld", key->name,
                         value, (long long)key->min, (long long)key->max);
    *(int64_t *)field = number;
    return 0;
}

static int set_real(const struct key *key, void *field, const char *value, struct error *err)
{
    char *end = NULL;
    double number = strtod(value, &end);
    if (!*value || *end || strspn(value, "0123456789+-.eE") != strlen(value))
        return error_set(err, "%s: \"%.80s\" is not a number", key->name, value);
    if (!(number >= key->least && number <= key->most))
        return error_set(err, "%s: %.80s is out of range, allowed is %g to %g", key->name, value,
                         key->least, key->most);
    *(double *)field = number;
    return 0;
}

static int set_bool(const struct key *key, void *field, const char *value, struct error *err)
{
    static const struct key_choice words[] = {
        {.name = "true", .value = 1, .aliases = "yes|on|1"},
        {.name = "false", .value = 0, .aliases = "no|off|0"},
        {0},
    };
    for (const struct key_choice *c = words; c->name; c++)
        if (spells(c, value)) {
            *(int *)field = c->value;
            return 0;
        }
    return error_set(err, "%s: \"%.80s\" is neither true nor false", key->name, value);
}

/* Return the bytes of the UTF-8 character at s; 0: it is none, or one that YAML cannot hold. */
static int character(const unsigned char *s)
{
    static const unsigned least[] = {0, 0x20, 0xa0, 0x800, 0x10000};
    int bytes = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (bytes == 0 || s[0] > 0xf4)
        return 0;
    unsigned code = bytes == 1 ? s[0] : s[0] & (0x7fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    int surrogate = code >= 0xd800 && code <= 0xdfff;
    int special = code == 0x7f || code == 0xfeff || code == 0xfffe || code == 0xffff;
    return code < least[bytes] || code > 0x10ffff || surrogate || special ? 0 : bytes;
}

/* Is a text the name of a file that the key takes, one that ends in key->or_file? */
static int is_file(const struct key *key, const char *value)
{
    return key->or_file && strcmp(value, key->or_file) != 0 && text_ends_with(value, key->or_file);
}

/* Find a variable as a shell writes it, $NAME or ${NAME}, in the first `length` bytes of text.
 * Returns its "$" and sets *bytes, or NULL. */
static const char *find_variable(const char *text, int length, int *bytes)
{
    for (const char *at = text; (at = memchr(at, '$', (size_t)(text + length - at))); at++) {
        int braces = at[1] == '{', end = 1 + braces;
        while (at + end < text + length && (isalnum((unsigned char)at[end]) || at[end] == '_'))
            end++;
        if (end > 1 + braces && !isdigit((unsigned char)at[1 + braces]) &&
            (!braces || at[end] == '}')) {
            *bytes = end + braces;
            return at;
        }
    }
    return NULL;
}

/* A shell expands "~" at the beginning of a word, which in run.dir=~/runs it is not, and variables,
 * which it does not see in a file.  Only paths begin with "~" or "~/". */
int key_refuse_shell(const struct key *key, const char *value, struct error *err)
{
    if (key->type != KEY_TEXT)
        return 0;
    for (const char *item = value; item; item = key->list ? strchr(item, ',') : NULL) {
        item += strspn(item, key->list ? ", ['\"" : "");
        int length = (int)strcspn(item, key->list ? "," : ""), bytes;
        int shown = length < 80 ? length : 80;
        const char *variable = find_variable(item, length, &bytes);
        if (*item == '~' && (length == 1 || item[1] == '/'))
            return error_set(err,
                             "%s: \"%.*s\": ~ is not expanded here; write the whole path, or "
                             "$HOME%.*s on a command line (a folder that is named ~ is ./~)",
                             key->name, shown, item, shown - 1, item + 1);
        if (variable)
            return error_set(err,
                             "%s: \"%.*s\": %.*s is not expanded here; write what it stands for, "
                             "or set the key on a command line, where the shell expands it: "
                             "%s=\"%.*s\"",
                             key->name, shown, item, bytes < 40 ? bytes : 40, variable, key->name,
                             shown, item);
    }
    return 0;
}

/* Copy one item of a list, `length` bytes, without blanks and, where the list has brackets, quotes
 * around it.  Returns the bytes that are copied. */
static size_t copy_item(char *to, const char *item, size_t length, int has_brackets)
{
    while (length && *item == ' ') {
        item++;
        length--;
    }
    while (length && item[length - 1] == ' ')
        length--;
    if (has_brackets && length > 1 && strchr("'\"", *item) && item[length - 1] == *item) {
        item++;
        length -= 2;
    }
    memcpy(to, item, length);
    return length;
}

/* Copy a list, "a, b" or, as files of YAML, JSON and Python have it, "['a', 'b']", as "a,b".  `to`
 * is cleared, and as long as the list at least. */
static void copy_list(char *to, const char *list)
{
    size_t length = strlen(list);
    int has_brackets = length > 1 && list[0] == '[' && list[length - 1] == ']';
    const char *end = list + length - has_brackets;
    for (const char *item = list + has_brackets;; item++) {
        const char *comma = memchr(item, ',', (size_t)(end - item));
        const char *last = comma ? comma : end;
        to += copy_item(to, item, (size_t)(last - item), has_brackets);
        if (!comma)
            return;
        *to++ = ',';
        item = comma;
    }
}

static int set_text(const struct key *key, char *field, const char *value, struct error *err)
{
    if (key->choices && !is_file(key, value)) {
        const struct key_choice *choice = find_choice(key, value, err);
        if (!choice)
            return -1;
        value = choice->name;
    }
    if (strlen(value) >= key->bytes)
        return error_set(err, "%s: the text is longer than %zu bytes: \"%.40s...\"", key->name,
                         key->bytes - 1, value);
    for (int at = 0, bytes; value[at]; at += bytes)
        if (!(bytes = character((const unsigned char *)value + at)))
            return error_set(err, "%s: byte %d of the text is no printable UTF-8", key->name,
                             at + 1);
    if (key->list && *value && !value[strspn(value, ", []'\"")])
        return error_set(err, "%s: the list \"%.40s\" names nothing; leave the key out", key->name,
                         value);
    memset(field, 0, key->bytes);
    if (key->list)
        copy_list(field, value);
    else
        memcpy(field, value, strlen(value));
    return 0;
}

/* Set err for a value of model.preset that is the name of a model on Hugging Face's hub,
 * "meta-llama/Llama-3-8B", or a path; model: its last part.  Returns -1. */
static int unknown_repository(const char *value, const char *model, struct error *err)
{
    const struct config_model *preset = preset_within(model);
    return error_set(
        err,
        "model.preset: \"%.80s\" is the name of a model with weights; to begin with them: "
        "model.path=%.80s; %s%s",
        value, value,
        preset ? "the same model from scratch: model.preset="
               : "the models that are trained from scratch: trireme config --show model.preset",
        preset ? preset->preset : "");
}

static int set_preset(struct config *config, const char *value, struct error *err)
{
    struct nearest nearest = {value};
    char names[1024] = "";
    const struct config_model *preset = preset_find(value);
    if (preset) {
        config->model = *preset;
        if (preset->kv_heads == preset->heads)
            config->model.kv_heads = 0; /* as many as heads, also where a key changes heads */
        return 0;
    }
    const char *slash = strrchr(value, '/');
    if (slash)
        return unknown_repository(value, slash + 1, err);
    for (int i = 0; i < config_preset_count; i++) {
        const char *name = config_presets[i].preset;
        nearest_try(&nearest, name, name);
        text_join(names, sizeof names, ", ", "%s", name);
    }
    return error_set(err, "model.preset: unknown model \"%.80s\"%s%s%s known: %s", value,
                     nearest.name ? "; did you mean " : "", nearest.name ? nearest.name : "",
                     nearest.name ? "?" : ";", names);
}

int key_set(struct config *config, const struct key *key, const char *value, struct error *err)
{
    void *field = (char *)config + key->offset;
    const struct key_choice *choice;
    if (field == config->model.preset && *value)
        return set_preset(config, value, err);
    switch (key->type) {
    case KEY_INT: return set_int(key, field, value, err);
    case KEY_REAL: return set_real(key, field, value, err);
    case KEY_BOOL: return set_bool(key, field, value, err);
    case KEY_TEXT: return set_text(key, field, value, err);
    case KEY_CHOICE:
        choice = find_choice(key, value, err);
        if (!choice)
            return -1;
        *(int *)field = choice->value;
        return 0;
    }
    return error_set(err, "%s: has no type", key->name);
}

const char *config_first_set(const struct config *config, const void *part, size_t bytes)
{
    size_t from = (size_t)((const char *)part - (const char *)config);
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        struct config initial;
        if (key->offset >= from && key->offset < from + bytes &&
            !key_set(&initial, key, key->initial, NULL) &&
            memcmp((const char *)config + key->offset, (const char *)&initial + key->offset,
                   key->bytes) != 0)
            return key->name;
    }
    return NULL;
}
