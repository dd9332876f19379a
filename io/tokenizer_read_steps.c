/* tokenizer_read_steps.c - "pre_tokenizer" of a tokenizer.json, as a list of steps.
 *
 * kinds[] has a row for each type of pre-tokenizer, with the function that appends its steps to
 * data->steps; such a function returns 0, or -1 with err set.  Finders find the matches at which a
 * step cuts; tokenizer_split.c cuts. */
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_read.h"

/* Finders: struct tokenizer_step.find */

static int find_pattern(const struct tokenizer_step *step, struct tokenizer_encoder *encoder,
                        const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                        struct error *err)
{
    return tokenizer_regex_find(step->regex, encoder->match, text, bytes, from, start, end, err);
}

static int find_literal(const struct tokenizer_step *step, struct tokenizer_encoder *encoder,
                        const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                        struct error *err)
{
    size_t length = strlen(step->literal);
    const char *at = memmem(text + from, bytes - from, step->literal, length);
    if (!at)
        return 0;
    *start = (size_t)(at - text);
    *end = *start + length;
    return 1;
}

/* Find a character of step->classes. */
static int find_class(const struct tokenizer_step *step, struct tokenizer_encoder *encoder,
                      const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                      struct error *err)
{
    for (size_t at = from, length; at < bytes; at += length)
        if (encoder->data->classes[tokenizer_code(text + at, &length)] & step->classes) {
            *start = at;
            *end = at + length;
            return 1;
        }
    return 0;
}

/* Returns the kind of the character at text, of *length bytes: 0: a space, 1: of a word, 2: any
 * other. */
static int kind_of_word(const uint16_t *classes, const char *text, size_t *length)
{
    unsigned class = classes[tokenizer_code(text, length)];
    return class & TOKENIZER_WORD ? 1 : class & TOKENIZER_SPACE ? 0 : 2;
}

/* Find a run of characters of one kind that are no spaces: \w+|[^\w\s]+ */
static int find_word(const struct tokenizer_step *step, struct tokenizer_encoder *encoder,
                     const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                     struct error *err)
{
    const uint16_t *classes = encoder->data->classes;
    size_t at = from, length;
    int kind = 0;
    while (at < bytes && !(kind = kind_of_word(classes, text + at, &length)))
        at += length;
    *start = at;
    while (at < bytes && kind_of_word(classes, text + at, &length) == kind)
        at += length;
    *end = at;
    return *start < bytes;
}

/* Kinds */

/* Append a step that cuts nothing yet.  Returns it, or NULL with err set. */
static struct tokenizer_step *add_step(struct tokenizer_data *data, struct error *err)
{
    if (data->is_byte_level) {
        error_set(err, "ByteLevel is not the last pre_tokenizer");
        return NULL;
    }
    if (data->step_count == TOKENIZER_MOST_STEPS) {
        error_set(err, "more than %d pre_tokenizers", TOKENIZER_MOST_STEPS);
        return NULL;
    }
    struct tokenizer_step *step = &data->steps[data->step_count++];
    step->behavior = TOKENIZER_ISOLATED;
    return step;
}

/* Append a step that cuts at characters of some classes.  Returns 0, or -1 with err set. */
static int add_class(struct tokenizer_data *data, unsigned classes,
                     enum tokenizer_behavior behavior, struct error *err)
{
    struct tokenizer_step *step = add_step(data, err);
    if (!step)
        return -1;
    step->find = find_class;
    step->classes = classes;
    step->behavior = behavior;
    return 0;
}

/* Read "behavior", or take `otherwise` where it is absent.  Returns 0, or -1 with err set. */
static int read_behavior(const struct js *part, enum tokenizer_behavior otherwise,
                         enum tokenizer_behavior *behavior, struct error *err)
{
    static const char *const names[] = {
        [TOKENIZER_REMOVED] = "Removed",
        [TOKENIZER_ISOLATED] = "Isolated",
        [TOKENIZER_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [TOKENIZER_MERGED_WITH_NEXT] = "MergedWithNext",
        [TOKENIZER_CONTIGUOUS] = "Contiguous",
    };
    const char *name;
    if (tokenizer_read_text(part, "behavior", names[otherwise], &name, err))
        return -1;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(names[i], name)) {
            *behavior = (enum tokenizer_behavior)i;
            return 0;
        }
    return error_set(err, "behavior \"%.100s\" is none that trireme has", name);
}

static int read_byte_level(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    int puts_space, has_pattern;
    struct tokenizer_step *step = add_step(data, err);
    if (!step || tokenizer_read_bool(part, "add_prefix_space", 1, &puts_space, err) ||
        tokenizer_read_bool(part, "use_regex", 1, &has_pattern, err))
        return -1;
    if (puts_space)
        step->prefix = array_text(" ");
    if (has_pattern)
        step->scan = tokenizer_scan_of(tokenizer_scan_gpt2);
    if (!puts_space && !has_pattern)
        data->step_count--;
    data->is_byte_level = 1;
    return 0;
}

static int read_split(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    const char *source;
    struct tokenizer_step *step = add_step(data, err);
    if (!step || tokenizer_read_pattern(part, &step->literal, &step->regex, &source, err) ||
        read_behavior(part, TOKENIZER_ISOLATED, &step->behavior, err) ||
        tokenizer_read_bool(part, "invert", 0, &step->invert, err))
        return -1;
    step->find = step->literal ? find_literal : find_pattern;
    step->scan = source ? tokenizer_scan_of(source) : NULL;
    return 0;
}

static int read_metaspace(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    const char *replacement, *scheme;
    int puts_space, splits;
    size_t length;
    struct tokenizer_step *step = add_step(data, err);
    if (!step || tokenizer_read_text(part, "replacement", "\xE2\x96\x81", &replacement, err) ||
        tokenizer_read_text(part, "prepend_scheme", "always", &scheme, err) ||
        tokenizer_read_bool(part, "add_prefix_space", 1, &puts_space, err) ||
        tokenizer_read_bool(part, "split", 1, &splits, err))
        return -1;
    if (!*replacement || (tokenizer_code(replacement, &length), replacement[length]))
        return error_set(err, "replacement \"%.100s\" of a Metaspace is not one character",
                         replacement);
    if (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never"))
        return error_set(err, "prepend_scheme \"%.100s\" is none of always, first, never", scheme);
    if (!puts_space && strcmp(scheme, "never"))
        return error_set(err, "add_prefix_space is false, and prepend_scheme is not \"never\"");
    step->space = array_text(replacement);
    if (strcmp(scheme, "never"))
        step->prefix = array_text(replacement);
    step->first_only = !strcmp(scheme, "first");
    step->literal = array_text(replacement);
    step->find = splits ? find_literal : NULL;
    step->behavior = TOKENIZER_MERGED_WITH_NEXT;
    return 0;
}

static int read_whitespace(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_step *step = add_step(data, err);
    if (!step)
        return -1;
    step->find = find_word;
    step->behavior = TOKENIZER_REMOVED;
    step->invert = 1;
    return 0;
}

static int read_whitespace_split(struct tokenizer_data *data, const struct js *part,
                                 struct error *err)
{
    return add_class(data, TOKENIZER_SPACE, TOKENIZER_REMOVED, err);
}

static int read_digits(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    int one_by_one;
    if (tokenizer_read_bool(part, "individual_digits", 0, &one_by_one, err))
        return -1;
    return add_class(data, TOKENIZER_NUMBER, one_by_one ? TOKENIZER_ISOLATED : TOKENIZER_CONTIGUOUS,
                     err);
}

static int read_punctuation(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    enum tokenizer_behavior behavior;
    if (read_behavior(part, TOKENIZER_ISOLATED, &behavior, err))
        return -1;
    return add_class(data, TOKENIZER_PUNCTUATION, behavior, err);
}

static int read_bert(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    return add_class(data, TOKENIZER_SPACE, TOKENIZER_REMOVED, err) ||
           add_class(data, TOKENIZER_PUNCTUATION, TOKENIZER_ISOLATED, err);
}

static int read_delimiter(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    const char *delimiter;
    struct tokenizer_step *step = add_step(data, err);
    if (!step || tokenizer_read_text(part, "delimiter", "", &delimiter, err))
        return -1;
    if (!*delimiter)
        return error_set(err, "a CharDelimiterSplit has no delimiter");
    step->literal = array_text(delimiter);
    step->find = find_literal;
    step->behavior = TOKENIZER_REMOVED;
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct tokenizer_data *data, const struct js *part, struct error *err);
} kinds[] = {
    {.name = "ByteLevel", .read = read_byte_level},
    {.name = "Split", .read = read_split},
    {.name = "Metaspace", .read = read_metaspace},
    {.name = "Whitespace", .read = read_whitespace},
    {.name = "WhitespaceSplit", .read = read_whitespace_split},
    {.name = "Digits", .read = read_digits},
    {.name = "Punctuation", .read = read_punctuation},
    {.name = "BertPreTokenizer", .read = read_bert},
    {.name = "CharDelimiterSplit", .read = read_delimiter},
};

static int read_step(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    int i = tokenizer_read_type(part, "pre_tokenizer", kinds, sizeof kinds / sizeof kinds[0],
                                sizeof kinds[0], err);
    return i < 0 || kinds[i].read(data, part, err) ? -1 : 0;
}

/* Returns where tokenizer_cut() may cut a text: between a word and the space after it, if a step
 * always cuts there, and no step has matches that depend on the text on both sides. */
static enum tokenizer_cuts find_cuts(const struct tokenizer_data *data)
{
    enum tokenizer_cuts cuts = TOKENIZER_CUT_NOWHERE;
    for (int i = 0; i < data->step_count; i++) {
        const struct tokenizer_step *step = &data->steps[i];
        int is_plain = step->behavior == TOKENIZER_ISOLATED && !step->invert;
        if ((step->find == find_pattern && !step->scan) || (step->scan && !is_plain))
            return TOKENIZER_CUT_NOWHERE;
        if (step->scan || step->find == find_word ||
            (step->find == find_class && (step->classes & TOKENIZER_SPACE)))
            cuts = TOKENIZER_CUT_BLANK;
        if (step->space && step->find && !cuts)
            cuts = TOKENIZER_CUT_SPACE;
        if (step->literal && !step->space)
            return TOKENIZER_CUT_NOWHERE;
    }
    return cuts;
}

int tokenizer_read_steps(struct tokenizer_data *data, const struct js *pre_tokenizer,
                         struct error *err)
{
    if (tokenizer_read_each(data, pre_tokenizer, "pretokenizers", "pre_tokenizer", read_step, err))
        return -1;
    data->cuts = find_cuts(data);
    return 0;
}
