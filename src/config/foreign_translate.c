/* foreign_translate.c - another program's configuration as a file of trireme's keys.
 *
 * Every key of the text that has a value is looked up, and none is passed over:
 *
 *     gradient_clipping: 1.0    foreign.c has it            train.clip: 1.0  # gradient_clipping
 *     stage: 3                  with a table of values      parallel.strategy: FULL_SHARD  # stage:
 * 3 warmup_ratio: 0.1         with a note alone           # warmup_ratio: 0.1 is train.warmup_steps
 *                                                           #   here (in steps, not a share of
 * them) lora_alpha: 64            trireme has it, spelt so    lora.alpha: 64  # lora_alpha
 *     liger_rope: true          neither                     # Without an answer: liger_rope
 *
 * A line without '#' is one that trireme reads.  It is written where trireme takes the value as it
 * is, or where the row has a table of values; names of files and modules are the user's to write.
 * Maps ("optimizer:" with keys below it) count where foreign.c has them; else the keys in them do.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/text.h"
#include "config/foreign.h"
#include "config/foreign_words.h"
#include "config/schema.h"

enum {
    LINE_CHARS = 1024, /* of what is said of one row */
    COLUMNS = 100,     /* of a line of the file */
    VALUE_COLUMN = 40  /* where the comment behind a value begins */
};

/* What is said of a row: a setting, or what words are that are none. */
struct item {
    int at;          /* place in the text of the first word that it is of */
    const char *key; /* a setting's; NULL: none is made */
    char value[FOREIGN_VALUE], from[FOREIGN_NAME + FOREIGN_VALUE + 4]; /* its, and whence */
    char words[LINE_CHARS / 2];                                        /* "a: 1, b: 2" */
    const char *here, *note;                                           /* the row's */
};

struct translation {
    struct foreign_words words;
    struct item *item;
    int count, capacity;
    struct config *scratch; /* for key_set() */
};

/* ---- what the keys of the text are here ---- */

static int is_set(const struct translation *t, const char *key)
{
    for (int i = 0; i < t->count; i++)
        if (t->item[i].key && !strcmp(t->item[i].key, key))
            return 1;
    return 0;
}

static struct item *add_item(struct translation *t, int at)
{
    t->item = array_grow(t->item, t->count, &t->capacity, sizeof *t->item);
    t->item[t->count] = (struct item){.at = at};
    return &t->item[t->count++];
}

/* Find what stands for a value in "theirs=ours|theirs=ours", or "" for none. */
static void find_value(const char *values, const char *theirs, char ours[FOREIGN_VALUE])
{
    size_t length = strlen(theirs);
    ours[0] = 0;
    for (const char *v = values; v; v = strchr(v, '|')) {
        v += *v == '|';
        if (!strncasecmp(v, theirs, length) && v[length] == '=')
            snprintf(ours, FOREIGN_VALUE, "%.*s", (int)strcspn(v + length + 1, "|"),
                     v + length + 1);
    }
}

/* May a text stand in YAML without quotes? */
static int is_plain(const char *text)
{
    int begins = isalnum((unsigned char)*text) || (*text && strchr("_./", *text));
    while (isalnum((unsigned char)*text) || (*text && strchr("_-./@", *text)))
        text++;
    return begins && !*text;
}

/* Find the value that a key of trireme's gets from a word.  Returns 1, or 0 where the user has to
 * choose one. */
static int find_setting(const struct translation *t, const struct key *key,
                        const struct foreign *row, const struct foreign_word *word,
                        char value[FOREIGN_VALUE])
{
    const char *values = row ? row->values : NULL;
    int is_same = values ? !strcmp(values, "*") : !row || !row->note;
    snprintf(value, FOREIGN_VALUE, "%s", is_same ? word->value : "");
    if (values && !is_same)
        find_value(values, word->value, value);
    return (key->type != KEY_TEXT || (values && is_plain(value))) && value[0] &&
           !key_set(t->scratch, key, value, NULL);
}

/* "NAME: VALUE", or "NAME" where the value is not shown. */
static void name_word(char *text, size_t size, const char *name, const struct foreign_word *word)
{
    snprintf(text, size, "%s%s%s", name, word->value[0] ? ": " : "", word->value);
}

/* Make a word a setting of trireme's.  Returns 0 where it cannot be one, or the key is set. */
static int add_setting(struct translation *t, const struct key *key, const struct foreign *row,
                       const char *name, const struct foreign_word *word)
{
    char value[FOREIGN_VALUE];
    if (!key || is_set(t, key->name) || !find_setting(t, key, row, word, value))
        return 0;
    struct item *item = add_item(t, (int)(word - t->words.word));
    item->key = key->name;
    snprintf(item->value, sizeof item->value, "%s", value);
    if (strcmp(value, word->value) != 0)
        name_word(item->from, sizeof item->from, name, word);
    else
        snprintf(item->from, sizeof item->from, "%s", name);
    return 1;
}

/* Note words that are no settings. */
static void add_words(struct translation *t, int at, const char *words, const char *here,
                      const char *note)
{
    struct item *item = add_item(t, at);
    snprintf(item->words, sizeof item->words, "%s", words);
    item->here = here;
    item->note = note;
}

/* Answer a row of foreign.c by each of its names that the text has; a map only where no other name
 * of the row is there. */
static void answer_row(struct translation *t, const struct foreign *row)
{
    char name[FOREIGN_NAME], one[2 * FOREIGN_NAME], words[LINE_CHARS / 2] = "";
    const struct key *key = row->here ? key_find(row->here) : NULL;
    const struct foreign_word *word;
    int first = -1, is_found = 0;
    for (const char *n = row->names; n; n = strchr(n, '|')) {
        n += *n == '|';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(n, "|"), n);
        while ((word = foreign_words_take(&t->words, name))) {
            if (is_found && !word->has_value)
                continue;
            is_found = 1;
            if (add_setting(t, key, row, name, word))
                continue;
            name_word(one, sizeof one, name, word);
            text_join(words, sizeof words, ", ", "%s", one);
            first = first < 0 ? (int)(word - t->words.word) : first;
        }
    }
    if (words[0])
        add_words(t, first, words, row->here, row->note);
}

/* Answer what is left by the keys of trireme's of the same name. */
static void answer_others(struct translation *t)
{
    char value[FOREIGN_VALUE], text[2 * FOREIGN_NAME];
    for (int i = 0; i < t->words.count; i++) {
        struct foreign_word *word = &t->words.word[i];
        const struct key *key =
            word->is_answered || !word->has_value ? NULL : key_spelt(word->name);
        if (!key || (key->type == KEY_CHOICE && !find_setting(t, key, NULL, word, value)))
            continue;
        word->is_answered = 1;
        name_word(text, sizeof text, word->name, word);
        if (!add_setting(t, key, NULL, word->name, word))
            add_words(t, i, text, key->name, NULL);
    }
}

static int in_order(const void *a, const void *b)
{
    return ((const struct item *)a)->at - ((const struct item *)b)->at;
}

/* ---- the file ---- */

/* Write a sentence as lines that begin with "# ". */
static void write_comment(FILE *out, const char *text)
{
    const char *indent = "# ";
    while (*text) {
        size_t bytes = strlen(text), most = COLUMNS - strlen(indent);
        if (bytes > most)
            for (bytes = most; bytes > most / 2 && text[bytes] != ' ';)
                bytes--;
        fprintf(out, "%s%.*s\n", indent, (int)bytes, text);
        text += bytes + strspn(text + bytes, " ");
        indent = "#   ";
    }
}

/* Append the keys of the text that have no answer. */
static void write_unanswered(FILE *out, const struct translation *t)
{
    char *text = array_text("");
    for (int i = 0; i < t->words.count; i++) {
        const struct foreign_word *word = &t->words.word[i];
        if (word->is_answered || !word->has_value)
            continue;
        char *longer =
            array_format("%s%s%s", text, text[0] ? ", " : "Without an answer: ", word->name);
        free(text);
        text = longer;
    }
    write_comment(out, text);
    free(text);
}

/* Append the keys "a|b" that the text leaves out, with trireme's defaults.  Keys of adapters count
 * as set where there are none. */
static void write_defaults(FILE *out, const struct translation *t, const char *keys,
                           const char *program)
{
    char name[FOREIGN_NAME];
    int count = 0;
    for (const char *n = keys; n; n = strchr(n, '|')) {
        n += *n == '|';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(n, "|"), n);
        int is_of_adapter = !strncmp(name, "lora.", strlen("lora."));
        if (is_set(t, name) || (is_of_adapter && !is_set(t, "lora.r")))
            continue;
        if (!count++)
            fprintf(out, "# Not set above, and usually another value in %s:\n", program);
        fprintf(out, "%s: %s\n", name, key_find(name)->initial);
    }
}

static void write_setting(FILE *out, const struct item *item)
{
    int written = fprintf(out, "%s: %s", item->key, item->value);
    fprintf(out, "%*s # %s\n", written < VALUE_COLUMN ? VALUE_COLUMN - written : 0, "", item->from);
}

/* Say what words are here. */
static void write_words(FILE *out, const struct translation *t, const struct item *item)
{
    char text[LINE_CHARS];
    const char *note = item->note, *here = item->here;
    if (here)
        snprintf(text, sizeof text, "%s is %s here%s%s%s%s", item->words, here,
                 is_set(t, here) ? ", which another line sets" : "", note ? " (" : "",
                 note ? note : "", note ? ")" : "");
    else
        snprintf(text, sizeof text, "%s - %s", item->words, note);
    write_comment(out, text);
}

void foreign_write(FILE *out, const struct foreign_source *source)
{
    struct translation t = {.scratch = array_make(1, sizeof *t.scratch)};
    if (source->is_script)
        foreign_words_read_options(&t.words, source->text);
    else
        foreign_words_read(&t.words, source->text, source->keys);
    for (int i = 0; i < foreign_count; i++)
        answer_row(&t, &foreign_names[i]);
    answer_others(&t);
    if (t.count)
        qsort(t.item, (size_t)t.count, sizeof *t.item, in_order);
    fprintf(out, "# %s, a configuration of %s, by trireme's keys.\n", source->name,
            source->program);
    for (int i = 0; i < t.count; i++)
        if (t.item[i].key)
            write_setting(out, &t.item[i]);
        else
            write_words(out, &t, &t.item[i]);
    write_unanswered(out, &t);
    write_defaults(out, &t, source->defaults, source->program);
    free(t.words.word);
    free(t.item);
    free(t.scratch);
}
