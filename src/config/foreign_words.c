/* foreign_words.c - reading keys of texts that no parser of theirs is here for.
 *
 * A key is a word before ':' or '=' that stands where keys do: first in its line or in a list's
 * item, or behind '{' or ','.  The map that it is in follows from braces and columns:
 *
 *     {"zero": {"stage": 3}}     stage is in two braces; zero, a map in one, is its map
 *     optimizer:                 a map, because what is below it begins farther right
 *       lr: 1e-4                 in optimizer
 *     [training]                 a table of TOML, column -1: all keys up to the next are in it
 *
 * Lists and values of many characters are keys without a value to show.  Of a shell script the
 * options are read, in whatever variable or command they stand.
 */
#include "config/foreign_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

enum { READ_BYTES = 65536 }; /* bytes of a text whose keys are read; no trainer's has more */

/* Find a key of a name, or one that ends with it behind a dot, that is not answered: with `map`
 * one in that map. */
static struct foreign_word *find_word(const struct foreign_words *w, const char *map,
                                      const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < w->count; i++) {
        struct foreign_word *word = &w->word[i];
        size_t before = strlen(word->name) - length;
        if (text_ends_with(word->name, name) && (!before || word->name[before - 1] == '.') &&
            !word->is_answered && (!map || !strcmp(word->map, map)))
            return word;
    }
    return NULL;
}

/* Find a map. */
static struct foreign_word *find_map(const struct foreign_words *w, const char *name)
{
    for (int i = 0; i < w->count; i++)
        if (w->word[i].is_map && !strcmp(w->word[i].name, name))
            return &w->word[i];
    return NULL;
}

/* The map in which a key is: the last one before it that is in fewer braces, or, as in YAML's
 * blocks, outside all braces and begins farther left. */
static const char *map_of(const struct foreign_words *w, const struct foreign_word *word)
{
    for (int i = w->count - 1; i >= 0; i--) {
        const struct foreign_word *map = &w->word[i];
        int is_outer = map->depth < word->depth || (!word->depth && map->column < word->column);
        if (map->is_map && is_outer)
            return map->name;
    }
    return "";
}

/* Add a key.  One that is there twice in maps of one name keeps a value that is the same in both.
 */
static void add_word(struct foreign_words *w, struct foreign_word word, const char *name,
                     size_t bytes, const char *value)
{
    word.has_value = !word.is_map;
    snprintf(word.name, sizeof word.name, "%.*s", (int)(bytes < FOREIGN_NAME ? bytes : 0), name);
    snprintf(word.value, sizeof word.value, "%s", value);
    snprintf(word.map, sizeof word.map, "%s", map_of(w, &word));
    if (!word.name[0])
        return;
    for (int i = 0; i < w->count; i++) {
        struct foreign_word *same = &w->word[i];
        if (strcmp(same->name, word.name) != 0 || strcmp(same->map, word.map) != 0)
            continue;
        if (strcmp(same->value, word.value) != 0)
            same->value[0] = 0;
        same->is_map |= word.is_map;
        same->has_value |= word.has_value;
        return;
    }
    w->word = array_grow(w->word, w->count, &w->capacity, sizeof *w->word);
    w->word[w->count++] = word;
}

static int column_of(const char *text, const char *at)
{
    const char *line = at;
    while (line > text && line[-1] != '\n')
        line--;
    return (int)(at - line);
}

/* Does a word begin where keys do: first in its line, also behind "- ", or behind '{' or ','? */
static int is_at_key(const char *keys, const char *begin)
{
    while (begin > keys && strchr(" \t\"'", begin[-1]))
        begin--;
    if (begin > keys && begin[-1] == '-') {
        begin--;
        return column_of(keys, begin) == (int)strspn(begin - column_of(keys, begin), " \t");
    }
    return begin == keys || strchr("\n{,", begin[-1]);
}

/* Read the value behind a key's ':' or '=' at `end`, "" where it is a list, a map, or longer than
 * what is shown; in `keys` comments are blank, in `text` nothing is.  Returns 0 where the key has
 * none, 1 where it has one, and 2 where that is a map. */
static int read_value(const char *text, const char *keys, int column, size_t end,
                      char value[FOREIGN_VALUE])
{
    const char *at = text + end + strspn(text + end, " \t"), *next = keys + (at - text);
    size_t bytes;
    value[0] = 0;
    if (*at == '{')
        return 2;
    if (*at == '"' || *at == '\'') {
        bytes = strcspn(at + 1, *at == '"' ? "\"\n" : "'\n");
        at++;
    } else if (!*at || strchr("#\r\n", *at)) { /* what is in the lines below it? */
        next += strspn(next, " \t\r\n");
        if (next[0] == '-' && isspace((unsigned char)next[1]))
            return 1;
        return *next && column_of(keys, next) > column ? 2 : 0;
    } else {
        bytes = strcspn(at, ",}#\r\n");
        while (bytes && isspace((unsigned char)at[bytes - 1]))
            bytes--;
    }
    if (bytes < FOREIGN_VALUE && *at != '[')
        snprintf(value, FOREIGN_VALUE, "%.*s", (int)bytes, at);
    return strcmp(value, "null") != 0 && strcmp(value, "~") != 0;
}

/* Add the parts of "[a.b]", a table of TOML, in which all keys below it are. */
static void add_table(struct foreign_words *w, const char *name)
{
    size_t length = strcspn(name, "]\n"), bytes;
    if (name[length] != ']')
        return;
    for (const char *part = name; part < name + length; part += bytes + 1)
        add_word(w, (struct foreign_word){.is_map = 1, .column = -1}, part,
                 bytes = strcspn(part, ".]"), "");
}

/* Collect the keys of a text. */
void foreign_words_read(struct foreign_words *w, const char *text, const char *keys)
{
    char value[FOREIGN_VALUE];
    int depth = 0;
    for (const char *at = keys; *at && at < keys + READ_BYTES; at++) {
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at == '[' && (at == keys || at[-1] == '\n'))
            add_table(w, at + 1);
        if ((*at != ':' && *at != '=') || at == keys)
            continue;
        const char *end = at, *begin;
        while (end > keys && strchr(" \t\"'", end[-1]))
            end--;
        for (begin = end;
             begin > keys && (isalnum((unsigned char)begin[-1]) || strchr("_.", begin[-1]));)
            begin--;
        if (*at == ':' && !isspace((unsigned char)at[1]) && at[1] && end == at)
            continue; /* "http://..." */
        if (begin == end || !is_at_key(keys, begin))
            continue;
        int column = column_of(keys, begin);
        int kind = read_value(text, keys, column, (size_t)(at + 1 - keys), value);
        if (kind)
            add_word(w,
                     (struct foreign_word){.is_map = kind == 2, .depth = depth, .column = column},
                     begin, (size_t)(end - begin), value);
    }
}

/* ---- options ---- */

/* The bytes of the option that begins at `at`, "--train-iters" or "-b"; 0: none does. */
static size_t option_bytes(const char *text, const char *at)
{
    int is_begin = at == text || strchr(" \t\n\"'(", at[-1]);
    size_t dashes = strspn(at, "-"), bytes = dashes;
    if (!is_begin || dashes < 1 || dashes > 2 || !isalpha((unsigned char)at[dashes]))
        return 0;
    while (isalnum((unsigned char)at[bytes]) || (at[bytes] && strchr("-_.", at[bytes])))
        bytes++;
    return dashes == 2 || bytes == 2 ? bytes : 0;
}

/* Read the value behind an option's name: "true" where none follows. */
static void read_option_value(const char *text, const char *at, char value[FOREIGN_VALUE])
{
    at += *at == '=' ? 1 : strspn(at, " \t");
    at += *at == '"' || *at == '\'';
    size_t bytes = strcspn(at, " \t\r\n\"'()\\;");
    snprintf(value, FOREIGN_VALUE, "%s", bytes ? "" : "true");
    if (option_bytes(text, at))
        snprintf(value, FOREIGN_VALUE, "true");
    else if (bytes && bytes < FOREIGN_VALUE)
        snprintf(value, FOREIGN_VALUE, "%.*s", (int)bytes, at);
}

void foreign_words_read_options(struct foreign_words *w, const char *text)
{
    char value[FOREIGN_VALUE], name[FOREIGN_NAME];
    for (const char *at = text; *at && at < text + READ_BYTES; at++) {
        if (*at == '#' && (at == text || strchr(" \t\n", at[-1])))
            at += strcspn(at, "\n");
        if (!*at)
            break;
        size_t bytes = option_bytes(text, at);
        if (!bytes)
            continue;
        int is_letter = at[1] != '-', used = 0;
        read_option_value(text, at + bytes, value);
        for (size_t i = is_letter ? 0 : 2; i < bytes && used < FOREIGN_NAME - 1; i++)
            name[used++] = at[i] == '-' && !is_letter ? '_' : at[i];
        add_word(w, (struct foreign_word){.is_map = 0}, name, (size_t)used, value);
        at += bytes - 1;
    }
}

struct foreign_word *foreign_words_take(struct foreign_words *w, const char *name)
{
    char parts[FOREIGN_NAME], *rest = parts, *part, map[FOREIGN_NAME] = "";
    struct foreign_word *word = find_word(w, NULL, name), *in;
    for (int pass = 0; !word && pass < 2; pass++) { /* are all maps there? then they are answered */
        snprintf(parts, sizeof parts, "%s", name);
        for (rest = parts; (part = strsep(&rest, ".")) && rest;) {
            if (!(in = find_map(w, part)))
                return NULL;
            in->is_answered |= pass;
            snprintf(map, sizeof map, "%s", part);
        }
        if (!map[0] || !(in = find_word(w, map, part)))
            return NULL;
        word = pass ? in : NULL;
    }
    if (word)
        word->is_answered = 1;
    return word;
}
