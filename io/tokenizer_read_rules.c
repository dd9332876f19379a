/* tokenizer_read_rules.c - "normalizer" of a tokenizer.json, as a list of rules.
 *
 * kinds[] has a row for each type of normalizer, with the function that appends its rules to
 * data->rules; such a function returns 0, or -1 with err set. */
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_normalize.h"
#include "io/tokenizer_read.h"

/* Append a rule.  Returns it, or NULL with err set: there are too many. */
static struct tokenizer_rule *add_rule(struct tokenizer_data *data, tokenizer_apply *apply,
                                       struct error *err)
{
    if (data->rule_count == TOKENIZER_MOST_STEPS) {
        error_set(err, "more than %d normalizers", TOKENIZER_MOST_STEPS);
        return NULL;
    }
    struct tokenizer_rule *rule = &data->rules[data->rule_count++];
    rule->apply = apply;
    return rule;
}

static int add_form(struct tokenizer_data *data, enum tokenizer_form form, struct error *err)
{
    struct tokenizer_rule *rule = add_rule(data, tokenizer_rule_form, err);
    if (!rule)
        return -1;
    rule->form = form;
    tokenizer_unicode_add_form(data->classes, form);
    return 0;
}

static int read_nfc(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    return add_form(data, TOKENIZER_NFC, err);
}

static int read_nfd(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    return add_form(data, TOKENIZER_NFD, err);
}

static int read_nfkc(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    return add_form(data, TOKENIZER_NFKC, err);
}

static int read_nfkd(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    return add_form(data, TOKENIZER_NFKD, err);
}

static int read_lowercase(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    return add_rule(data, tokenizer_rule_lower, err) ? 0 : -1;
}

static int add_leave_out(struct tokenizer_data *data, unsigned classes, struct error *err)
{
    struct tokenizer_rule *rule = add_rule(data, tokenizer_rule_leave_out, err);
    if (!rule)
        return -1;
    rule->classes = classes;
    return 0;
}

static int read_strip_accents(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    return add_leave_out(data, TOKENIZER_COMBINING, err);
}

static int read_strip(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_rule *rule = add_rule(data, tokenizer_rule_strip, err);
    if (!rule)
        return -1;
    return tokenizer_read_bool(part, "strip_left", 1, &rule->left, err) ||
           tokenizer_read_bool(part, "strip_right", 1, &rule->right, err);
}

static int read_replace(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    const char *content, *source;
    struct tokenizer_rule *rule = add_rule(data, tokenizer_rule_replace_pattern, err);
    if (!rule || tokenizer_read_text(part, "content", "", &content, err) ||
        tokenizer_read_pattern(part, &rule->from, &rule->regex, &source, err))
        return -1;
    rule->to = array_text(content);
    if (rule->from)
        rule->apply = tokenizer_rule_replace_text;
    return 0;
}

static int read_prepend(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    const char *text;
    struct tokenizer_rule *rule = add_rule(data, tokenizer_rule_prepend, err);
    if (!rule || tokenizer_read_text(part, "prepend", "", &text, err))
        return -1;
    rule->to = array_text(text);
    return 0;
}

static int read_bert(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    int cleans, spaces_ideographs, strips, lowers;
    if (tokenizer_read_bool(part, "clean_text", 1, &cleans, err) ||
        tokenizer_read_bool(part, "handle_chinese_chars", 1, &spaces_ideographs, err) ||
        tokenizer_read_bool(part, "lowercase", 1, &lowers, err) ||
        tokenizer_read_bool(part, "strip_accents", lowers, &strips, err))
        return -1;
    if ((cleans && !add_rule(data, tokenizer_rule_clean, err)) ||
        (spaces_ideographs && !add_rule(data, tokenizer_rule_ideographs, err)) ||
        (strips &&
         (add_form(data, TOKENIZER_NFD, err) || add_leave_out(data, TOKENIZER_NONSPACING, err))) ||
        (lowers && !add_rule(data, tokenizer_rule_lower, err)))
        return -1;
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct tokenizer_data *data, const struct js *part, struct error *err);
} kinds[] = {
    {.name = "NFC", .read = read_nfc},
    {.name = "NFD", .read = read_nfd},
    {.name = "NFKC", .read = read_nfkc},
    {.name = "NFKD", .read = read_nfkd},
    {.name = "Lowercase", .read = read_lowercase},
    {.name = "StripAccents", .read = read_strip_accents},
    {.name = "Strip", .read = read_strip},
    {.name = "Replace", .read = read_replace},
    {.name = "Prepend", .read = read_prepend},
    {.name = "BertNormalizer", .read = read_bert},
};

static int read_rule(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    int i = tokenizer_read_type(part, "normalizer", kinds, sizeof kinds / sizeof kinds[0],
                                sizeof kinds[0], err);
    return i < 0 || kinds[i].read(data, part, err) ? -1 : 0;
}

int tokenizer_read_rules(struct tokenizer_data *data, const struct js *normalizer,
                         struct error *err)
{
    return tokenizer_read_each(data, normalizer, "normalizers", "normalizer", read_rule, err);
}
