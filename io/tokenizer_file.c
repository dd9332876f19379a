/* tokenizer_file.c - a tokenizer.json, and the files beside it.
 *
 * The file's parts are read in this order, because each needs the ones before it:
 *     normalizer, pre_tokenizer, decoder    lists of rules and steps (tokenizer_read_*.c, _undo.c)
 *     model                                 byte-level or not is known from pre_tokenizer
 *     added_tokens                          their texts are normalized, their ids checked against
 *                                           the model's
 *     post_processor                        its ids have to be tokens
 * All is checked here: an open tokenizer has no part that a later call finds to be wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"
#include "io/tokenizer_bpe.h"
#include "io/tokenizer_file.h"
#include "io/tokenizer_normalize.h"
#include "io/tokenizer_read.h"

enum { MOST_AROUND = 64 }; /* ids that one processor puts before a text, or after it */

/* Model */

static const struct tokenizer_model *const models[] = {&tokenizer_byte_bpe, &tokenizer_char_bpe,
                                                       &tokenizer_word_pieces};

enum { MODELS = sizeof models / sizeof models[0] };

/* Read the file's "model" by the row of models[] that has its type.  Returns 0, or -1 with err set.
 */
static int read_model(struct tokenizer_data *data, const struct js *file, struct error *err)
{
    const struct js *model = js_get(file, "model");
    const char *type = js_get_string(model, "type", NULL);
    if (!type) /* files of old versions have no type */
        type = js_get(model, "merges") ? "BPE" : "(none)";
    for (int i = 0; i < MODELS; i++)
        if (!strcmp(models[i]->type, type) && models[i]->byte_level == data->is_byte_level) {
            data->model = models[i];
            return models[i]->read(data, model, err) ||
                   tokenizer_read_vocab(model, &data->texts, err);
        }
    return error_set(err, "model \"%.100s\"%s is none that trireme has; there are: BPE, WordPiece",
                     type, data->is_byte_level ? " of bytes" : "");
}

/* Added tokens */

/* Add an added token to data->texts, which may have it already.  Returns 0, or -1 with err set:
 * impossible or contradictory ids. */
static int add_text(struct tokenizer_data *data, const char *text, int64_t id, struct error *err)
{
    if (id < 0 || id >= TOKENIZER_MOST_IDS)
        return error_set(err, "added token \"%.100s\" has no id from 0 to %d", text,
                         TOKENIZER_MOST_IDS - 1);
    switch (tokenizer_vocab_add(&data->texts, text, strlen(text), (uint32_t)id)) {
    case TOKENIZER_VOCAB_SAME_TEXT:
        return error_set(err, "added token \"%.100s\" has id %lld, and %lld elsewhere in the file",
                         text, (long long)id,
                         (long long)tokenizer_vocab_find(&data->texts, text, strlen(text)));
    case TOKENIZER_VOCAB_SAME_ID:
        return error_set(err, "added token \"%.100s\" has the id of \"%.100s\", %lld", text,
                         tokenizer_vocab_text(&data->texts, id, &(size_t){0}), (long long)id);
    default: return 0;
    }
}

/* Add a token to the set in which its text is looked for: if the token says so, normalized, to
 * added[1], else as it is to added[0].  Forbid cuts of texts (tokenizer_cut()) where the token
 * could lie across one.  Returns 0, or -1 with err set. */
static int add_to_set(struct tokenizer_data *data, struct tokenizer_encoder *encoder,
                      const struct js *part, struct tokenizer_added_token token, struct error *err)
{
    const char *text = js_get_string(part, "content", "");
    size_t bytes = strlen(text);
    int is_normalized;
    if (tokenizer_read_bool(part, "normalized", !token.special, &is_normalized, err))
        return -1;
    if (is_normalized &&
        tokenizer_normalize(encoder, text, bytes, TOKENIZER_FIRST, &text, &bytes, err))
        return -1;
    tokenizer_added_add(&data->added[is_normalized], text, bytes, token);
    for (size_t i = 0, length; i < bytes; i += length)
        if (data->classes[tokenizer_code(text + i, &length)] & TOKENIZER_SPACE)
            data->cuts = TOKENIZER_CUT_NOWHERE;
    if (token.right)
        data->cuts = TOKENIZER_CUT_NOWHERE;
    return 0;
}

/* Read a row of "added_tokens", if its "special" is wants_special.  Returns 0, or -1 with err set.
 */
static int add_added(struct tokenizer_data *data, struct tokenizer_encoder *encoder,
                     const struct js *part, int wants_special, struct error *err)
{
    struct tokenizer_added_token token;
    const char *text = js_get_string(part, "content", NULL);
    int64_t id = js_get_int(part, "id", -1);
    if (!text)
        return error_set(err, "an added token has no content");
    if (!*text)
        return 0;
    if (tokenizer_read_bool(part, "special", 0, &token.special, err) ||
        tokenizer_read_bool(part, "single_word", 0, &token.single_word, err) ||
        tokenizer_read_bool(part, "lstrip", 0, &token.left, err) ||
        tokenizer_read_bool(part, "rstrip", 0, &token.right, err))
        return -1;
    if (token.special != wants_special)
        return 0;
    token.id = (uint32_t)id;
    return add_text(data, text, id, err) || add_to_set(data, encoder, part, token, err);
}

/* Read "added_tokens", special ones first: of two tokens of a set with the same text the one added
 * first is found.  Returns 0, or -1 with err set. */
static int read_added(struct tokenizer *tokenizer, const struct js *file, struct error *err)
{
    const struct js *list = js_get(file, "added_tokens");
    struct tokenizer_encoder *encoder;
    if (tokenizer_encoder_create(&encoder, tokenizer, err))
        return -1;
    int rc = 0, count = js_length(list);
    for (int special = 1; special >= 0; special--)
        for (int i = 0; !rc && i < count; i++)
            rc = add_added(tokenizer->data, encoder, js_at(list, i), special, err);
    tokenizer_encoder_destroy(encoder);
    return rc;
}

/* Set the flags of added tokens. */
static void flag_added(struct tokenizer_data *data)
{
    for (int set = 0; set < 2; set++)
        for (int i = 0; i < data->added[set].count; i++) {
            const struct tokenizer_added_token *token = &data->added[set].tokens[i];
            data->flags[token->id] |=
                (uint8_t)(TOKENIZER_IS_ADDED | (token->special ? TOKENIZER_IS_SPECIAL : 0));
        }
}

/* Post-processor */

/* The ids that one processor puts before and after a text. */
struct around {
    uint32_t before[MOST_AROUND], after[MOST_AROUND];
    int before_count, after_count;
};

/* Append an id to ids, of *count so far.  Returns 0, or -1 with err set. */
static int add_id(const struct tokenizer_data *data, uint32_t *ids, int *count, int64_t id,
                  struct error *err)
{
    size_t bytes;
    if (*count == MOST_AROUND)
        return error_set(err, "a post_processor puts more than %d tokens around a text",
                         MOST_AROUND);
    if (!tokenizer_vocab_text(&data->texts, id, &bytes))
        return error_set(err, "a post_processor has id %lld, which no token has", (long long)id);
    ids[(*count)++] = (uint32_t)id;
    return 0;
}

/* TemplateProcessing: a list of special tokens around one sequence, the text.  Like the two below,
 * it returns 0, or -1 with err set. */
static int read_template(struct tokenizer_data *data, const struct js *part, struct around *around,
                         struct error *err)
{
    const struct js *pieces = js_get(part, "single"), *specials = js_get(part, "special_tokens");
    int sequences = 0;
    for (int i = 0; i < js_length(pieces); i++) {
        const char *name = js_get_string(js_get(js_at(pieces, i), "SpecialToken"), "id", NULL);
        const struct js *ids = name ? js_get(js_get(specials, name), "ids") : NULL;
        if (!name) {
            sequences++;
            continue;
        }
        if (!js_length(ids))
            return error_set(err, "a template has \"%.100s\", which is none of its special_tokens",
                             name);
        for (int k = 0; k < js_length(ids); k++)
            if (add_id(data, sequences ? around->after : around->before,
                       sequences ? &around->after_count : &around->before_count,
                       js_at_int(ids, k, -1), err))
                return -1;
    }
    return sequences == 1 ? 0
                          : error_set(err, "a template has not one sequence, but %d", sequences);
}

/* BertProcessing, RobertaProcessing: one token before a text, one after it. */
static int read_pair(struct tokenizer_data *data, const struct js *part, struct around *around,
                     struct error *err)
{
    return add_id(data, around->before, &around->before_count,
                  js_at_int(js_get(part, "cls"), 1, -1), err) ||
           add_id(data, around->after, &around->after_count, js_at_int(js_get(part, "sep"), 1, -1),
                  err);
}

/* ByteLevel: no tokens. */
static int read_nothing(struct tokenizer_data *data, const struct js *part, struct around *around,
                        struct error *err)
{
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct tokenizer_data *data, const struct js *part, struct around *around,
                struct error *err);
} processors[] = {
    {.name = "TemplateProcessing", .read = read_template},
    {.name = "BertProcessing", .read = read_pair},
    {.name = "RobertaProcessing", .read = read_pair},
    {.name = "ByteLevel", .read = read_nothing},
};

/* Read one processor.  The ids that it puts around a text go around those of the processors before
 * it. */
static int read_processor(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct around around = {.before_count = 0};
    int i =
        tokenizer_read_type(part, "post_processor", processors,
                            sizeof processors / sizeof processors[0], sizeof processors[0], err);
    if (i < 0 || processors[i].read(data, part, &around, err))
        return -1;
    int before = data->before_count + around.before_count;
    int after = data->after_count + around.after_count;
    uint32_t *ids = array_make((size_t)before + 1, sizeof *ids);
    memcpy(ids, around.before, (size_t)around.before_count * sizeof *ids);
    if (data->before_count)
        memcpy(ids + around.before_count, data->before, (size_t)data->before_count * sizeof *ids);
    free(data->before);
    data->before = ids;
    data->before_count = before;
    ids = array_make((size_t)after + 1, sizeof *ids);
    if (data->after_count)
        memcpy(ids, data->after, (size_t)data->after_count * sizeof *ids);
    memcpy(ids + data->after_count, around.after, (size_t)around.after_count * sizeof *ids);
    free(data->after);
    data->after = ids;
    data->after_count = after;
    return 0;
}

/* Identity */

/* Add a part of the file, or its absence (NULL), to a hash. */
static void add_part(struct hash *hash, const struct js *part)
{
    char *text = part ? js_text(part, JS_ONE_LINE, NULL) : NULL;
    if (text)
        hash_add(hash, text, strlen(text));
    hash_add(hash, "", 1);
    free(text);
}

/* Set tokenizer->name to its kind and a hash of what the ids of a text depend on: tokens, merges,
 * normalizer, pre_tokenizer.  The ids that are put around a text do not count. */
static void name_tokenizer(struct tokenizer *tokenizer, const struct js *file)
{
    const struct tokenizer_data *data = tokenizer->data;
    struct hash *hash = hash_create();
    size_t bytes;
    for (int64_t id = 0; id < data->texts.size; id++) {
        const char *text = tokenizer_vocab_text(&data->texts, id, &bytes);
        hash_add(hash, text ? text : "", text ? bytes + 1 : 1);
    }
    for (size_t i = 0; data->bpe && i < data->bpe->pair_slots; i++) {
        const struct tokenizer_pair *pair = &data->bpe->pairs[i];
        uint64_t numbers[] = {pair->key, pair->rank, pair->id};
        if (pair->key)
            hash_add(hash, numbers, sizeof numbers);
    }
    add_part(hash, js_get(file, "normalizer"));
    add_part(hash, js_get(file, "pre_tokenizer"));
    snprintf(tokenizer->name, sizeof tokenizer->name, "%s-%016llx", data->model->name,
             (unsigned long long)hash_finish(hash));
}

/* The file */

/* Forbid cuts of texts (tokenizer_cut()) where a rule of the normalizer may make, move or leave out
 * spaces. */
static void check_cuts(struct tokenizer_data *data)
{
    for (int i = 0; i < data->rule_count; i++) {
        const struct tokenizer_rule *rule = &data->rules[i];
        if (rule->apply == tokenizer_rule_replace_pattern || rule->apply == tokenizer_rule_strip ||
            (rule->from && strcmp(rule->from, " ") && strpbrk(rule->from, " \t\n\r\v\f")))
            data->cuts = TOKENIZER_CUT_NOWHERE;
    }
}

/* Read all parts of the file.  Returns 0, or -1 with err set. */
static int read_pipeline(struct tokenizer *tokenizer, const struct js *file, struct error *err)
{
    struct tokenizer_data *data = tokenizer->data;
    data->joins = !js_has(file, "decoder");
    if ((js_has(file, "normalizer") &&
         tokenizer_read_rules(data, js_get(file, "normalizer"), err)) ||
        (js_has(file, "pre_tokenizer") &&
         tokenizer_read_steps(data, js_get(file, "pre_tokenizer"), err)) ||
        (!data->joins && tokenizer_read_undos(data, js_get(file, "decoder"), err)) ||
        read_model(data, file, err))
        return -1;
    check_cuts(data);
    return read_added(tokenizer, file, err) ||
                   (js_has(file, "post_processor") &&
                    tokenizer_read_each(data, js_get(file, "post_processor"), "processors",
                                        "post_processor", read_processor, err))
               ? -1
               : 0;
}

/* Returns the path of the tokenizer.json that path is, or that the folder path holds; to be
 * free()d. */
static char *find_file(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode) ? array_format("%s/tokenizer.json", path)
                                                       : array_text(path);
}

/* Replace err, which says why path cannot be read, where path is a tokenizer of another program or
 * a folder that holds one.  Returns -1. */
static int refuse_other_kinds(const char *path, struct error *err)
{
    static const char *const endings[] = {".model", ".tiktoken"};
    char *inside = array_format("%s/tokenizer.model", path);
    int is_other = !access(inside, F_OK);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        is_other |= text_ends_with(path, endings[i]) && !access(path, F_OK);
    if (is_other)
        error_set(err,
                  "%s is SentencePiece's or tiktoken's, which is not read; take the tokenizer.json "
                  "that the hub has beside it, or convert it with transformers: "
                  "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                  !access(inside, F_OK) ? inside : path);
    free(inside);
    return -1;
}

int tokenizer_file_open(struct tokenizer *tokenizer, const char *path, struct error *err)
{
    tokenizer->path = find_file(path);
    struct js *file = js_read(tokenizer->path, err);
    if (!file)
        return access(tokenizer->path, F_OK) || !strcmp(path, tokenizer->path)
                   ? refuse_other_kinds(path, err)
                   : -1;
    tokenizer->data->classes = tokenizer_unicode_classes();
    int rc = read_pipeline(tokenizer, file, err);
    if (rc) {
        error_prefix(err, "%s", tokenizer->path);
    } else {
        name_tokenizer(tokenizer, file);
        tokenizer->vocab = tokenizer->data->texts.size;
        tokenizer->data->flags = array_make((size_t)tokenizer->vocab, 1);
        flag_added(tokenizer->data);
    }
    js_free(file);
    return rc ? -1 : tokenizer_roles_read(tokenizer, err);
}
