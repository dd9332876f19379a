/* foreign_answer.c - trireme's keys for the keys of another program's file.
 *
 * Every key of the file that has a value is looked up, and none is passed over:
 *
 *     gradient_clipping: 1.0    foreign.c has it            "gradient_clipping is train.clip=1.0"
 *     lora_alpha: 64            trireme has it, spelt so    "lora_alpha is lora.alpha=64"
 *     liger_rope: true          neither                     "Not answered: liger_rope"
 *
 * A value is shown where trireme takes it as it is.  Keys of which foreign.c has a note alone, and
 * those that there is no more space for, are named for `trireme config KEY=VALUE`.  Maps
 * ("optimizer:" with keys below it) count where foreign.c has them; else the keys in them do.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "config/foreign.h"
#include "config/schema.h"

enum {
    NAME_CHARS = 128,  /* bytes of a name, its 0 included */
    VALUE_CHARS = 32,  /* the same of a value that is shown */
    ITEM_CHARS = 512,  /* and of what is said of one key */
    NAMES_CHARS = 512, /* and of a list of names */
    MORE_CHARS = 20,   /* bytes of " and 1000 more" */
    READ_BYTES = 65536 /* bytes of a file whose keys are read; no trainer's has more */
};

/* A key of the file. */
struct word {
    char name[NAME_CHARS], value[VALUE_CHARS]; /* value "": none that can be shown */
    int is_map, has_value, is_answered;        /* of several with one name: a map, and a value */
};

/* What is said of it; text "": that `trireme config` answers it. */
struct item {
    char name[NAME_CHARS], text[ITEM_CHARS];
    int has_note, is_shown;
};

struct answer {
    struct word *words;
    struct item *items;
    int word_count, word_capacity, item_count, item_capacity;
    struct config *scratch; /* for key_set() */
};

/* ---- the keys of the file ---- */

/* Find the key of a name, or one that ends with it behind a dot. */
static struct word *find_word(const struct answer *a, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < a->word_count; i++) {
        const char *word = a->words[i].name;
        size_t before = strlen(word) - length;
        if (text_ends_with(word, name) && (!before || word[before - 1] == '.'))
            return &a->words[i];
    }
    return NULL;
}

/* Add a key.  One that is there twice, in two maps, keeps a value that is the same in both. */
static void add_word(struct answer *a, const char *name, size_t bytes, const char *value,
                     int is_map)
{
    struct word word = {.is_map = is_map, .has_value = !is_map};
    snprintf(word.name, sizeof word.name, "%.*s", (int)(bytes < NAME_CHARS ? bytes : 0), name);
    snprintf(word.value, sizeof word.value, "%s", value);
    if (!word.name[0])
        return;
    for (int i = 0; i < a->word_count; i++) {
        struct word *same = &a->words[i];
        if (strcmp(same->name, word.name) != 0)
            continue;
        if (strcmp(same->value, word.value) != 0)
            same->value[0] = 0;
        same->is_map |= word.is_map;
        same->has_value |= word.has_value;
        return;
    }
    a->words = array_grow(a->words, a->word_count, &a->word_capacity, sizeof *a->words);
    a->words[a->word_count++] = word;
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
                      char value[VALUE_CHARS])
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
    if (bytes < VALUE_CHARS && *at != '[')
        snprintf(value, VALUE_CHARS, "%.*s", (int)bytes, at);
    return strcmp(value, "null") != 0 && strcmp(value, "~") != 0;
}

/* Add the parts of "[a.b]", a table of TOML. */
static void add_table(struct answer *a, const char *name)
{
    size_t length = strcspn(name, "]\n"), bytes;
    if (name[length] != ']')
        return;
    for (const char *part = name; part < name + length; part += bytes + 1)
        add_word(a, part, bytes = strcspn(part, ".]"), "", 1);
}

/* Collect the keys of a text. */
static void read_words(struct answer *a, const char *text, const char *keys)
{
    char value[VALUE_CHARS];
    for (const char *at = keys; *at && at < keys + READ_BYTES; at++) {
        if (*at == '[' && (at == keys || at[-1] == '\n'))
            add_table(a, at + 1);
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
        int kind = read_value(text, keys, column_of(keys, begin), (size_t)(at + 1 - keys), value);
        if (kind)
            add_word(a, begin, (size_t)(end - begin), value, kind == 2);
    }
}

/* ---- what they are here ---- */

/* Find the key of the file that a name of foreign.c stands for, and count it as answered.  Of
 * "optimizer.params.lr" the parts but the last are maps of the file.  NULL: the file has none that
 * is not answered yet. */
static const struct word *take_word(struct answer *a, const char *name)
{
    char parts[NAME_CHARS], *rest = parts, *part;
    struct word *word = find_word(a, name);
    if (word || !strchr(name, '.')) {
        if (!word || word->is_answered)
            return NULL;
        word->is_answered = 1;
        return word;
    }
    for (int pass = 0; pass < 2; pass++) { /* are all there? then they are answered */
        snprintf(parts, sizeof parts, "%s", name);
        for (rest = parts; (part = strsep(&rest, "."));) {
            if (!(word = find_word(a, part)) || (rest && !word->is_map))
                return NULL;
            word->is_answered |= pass;
        }
    }
    return word;
}

static void add_item(struct answer *a, const char *name, const char *text, int has_note)
{
    a->items = array_grow(a->items, a->item_count, &a->item_capacity, sizeof *a->items);
    struct item *item = &a->items[a->item_count++];
    snprintf(item->name, sizeof item->name, "%s", name);
    snprintf(item->text, sizeof item->text, "%s", text);
    item->has_note = has_note;
}

/* Does trireme's key take the value as it is?  Texts are names of files and modules, which others
 * write in another way. */
static int takes(const struct answer *a, const struct key *key, const struct word *word)
{
    return key->type != KEY_TEXT && word->value[0] && !key_set(a->scratch, key, word->value, NULL);
}

/* "lora_alpha is lora.alpha=64" */
static void add_key(struct answer *a, const char *name, const struct word *word,
                    const struct key *key, const char *note)
{
    char text[ITEM_CHARS];
    int has_value = !note && takes(a, key, word);
    snprintf(text, sizeof text, "%s is %s%s%s%s%s%s", name, key->name, has_value ? "=" : "",
             has_value ? word->value : "", note ? " (" : "", note ? note : "", note ? ")" : "");
    add_item(a, name, text, note != NULL);
}

/* Answer a row of foreign.c by the first of its names that the file has. */
static void answer_row(struct answer *a, const struct foreign *row)
{
    char name[NAME_CHARS], first[NAME_CHARS];
    const struct word *found = NULL;
    for (const char *n = row->names; n; n = strchr(n, '|')) {
        n += *n == '|';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(n, "|"), n);
        const struct word *word = take_word(a, name);
        if (word && !found) {
            found = word;
            snprintf(first, sizeof first, "%s", name);
        }
    }
    if (found && row->here)
        add_key(a, first, found, key_find(row->here), row->note);
    else if (found)
        add_item(a, first, "", 1);
}

/* Answer what is left by the keys of trireme's of the same name. */
static void answer_others(struct answer *a)
{
    for (int i = 0; i < a->word_count; i++) {
        struct word *word = &a->words[i];
        const struct key *key =
            word->is_answered || !word->has_value ? NULL : key_spelt(word->name);
        if (!key || (key->type == KEY_CHOICE && !takes(a, key, word)))
            continue;
        word->is_answered = 1;
        add_key(a, word->name, word, key, NULL);
    }
}

/* ---- the text ---- */

/* Append a name to a list of so many, or count it where the list is full. */
static void list_name(char *list, size_t size, int *more, const char *name)
{
    if (*more || strlen(list) + strlen(name) + MORE_CHARS > size)
        ++*more;
    else
        text_join(list, size, ", ", "%s", name);
}

static void list_end(char *list, size_t size, int more)
{
    if (more)
        text_append(list, size, " and %d more", more);
}

/* Write ". Not answered: a, b" to list. */
static void list_unanswered(const struct answer *a, char *list, size_t size)
{
    static const char head[] = ". Not answered: ";
    char names[NAMES_CHARS] = "";
    int more = 0;
    for (int i = 0; i < a->word_count; i++)
        if (!a->words[i].is_answered && a->words[i].has_value)
            list_name(names, size - sizeof head, &more, a->words[i].name);
    list_end(names, sizeof names, more);
    snprintf(list, size, "%s%s", names[0] ? head : "", names);
}

/* Is a key among those that the file sets?  Keys of adapters count as set where there are none. */
static int is_set(const struct answer *a, const char *key)
{
    int has_adapter = 0;
    for (int i = 0; i < a->item_count; i++) {
        has_adapter |= strstr(a->items[i].text, "lora.r=") != NULL;
        if (strstr(a->items[i].text, key))
            return 1;
    }
    return !strncmp(key, "lora.", strlen("lora.")) && !has_adapter;
}

/* Write ". What the file leaves out is here train.weight_decay=0.1, ..." to list, for keys "a|b".
 */
static void list_defaults(const struct answer *a, const char *keys, char *list, size_t size)
{
    char name[NAME_CHARS];
    list[0] = 0;
    for (const char *n = keys; n; n = strchr(n, '|')) {
        n += *n == '|';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(n, "|"), n);
        if (!is_set(a, name))
            text_append(list, size, "%s%s=%s",
                        list[0] ? ", " : ". What the file leaves out is here ", name,
                        key_find(name)->initial);
    }
}

/* Write all that is said to text.  Keys with their answers take what the lists leave, those
 * without a note first: these are short and many, and have the values. */
static void write_answer(struct answer *a, const char *defaults, char *text, size_t size)
{
    static const char ask[] = ". trireme config KEY=VALUE answers: ";
    char unanswered[NAMES_CHARS], left_out[NAMES_CHARS / 2], names[NAMES_CHARS] = "";
    int more = 0;
    list_unanswered(a, unanswered, size / 4); /* size is some 2000 at most */
    list_defaults(a, defaults, left_out, sizeof left_out);
    size_t taken = strlen(unanswered) + strlen(left_out) + size / 4 + sizeof ask;
    text[0] = 0;
    for (int k = 0; k < 2 * a->item_count; k++) {
        struct item *item = &a->items[k % a->item_count];
        size_t bytes = strlen(text) + strlen(item->text) + sizeof ". Here ";
        if (item->has_note != k / a->item_count || !item->text[0] || bytes + taken > size)
            continue;
        text_append(text, size, "%s%s", text[0] ? ", " : ". Here ", item->text);
        item->is_shown = 1;
    }
    for (int i = 0; i < a->item_count; i++)
        if (!a->items[i].is_shown)
            list_name(names, size / 4, &more, a->items[i].name);
    list_end(names, sizeof names, more);
    text_append(text, size, "%s%s%s%s", names[0] ? ask : "", names, unanswered, left_out);
}

void foreign_answer(const char *text, const char *keys, const char *defaults, char *answer,
                    size_t size)
{
    struct answer a = {.scratch = array_make(1, sizeof *a.scratch)};
    read_words(&a, text, keys);
    for (int i = 0; i < foreign_count; i++)
        answer_row(&a, &foreign_names[i]);
    answer_others(&a);
    write_answer(&a, defaults, answer, size);
    free(a.words);
    free(a.items);
    free(a.scratch);
}
