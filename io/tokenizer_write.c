/* tokenizer_write.c - a trained vocabulary as a tokenizer.json that `tokenizers` reads. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/tokenizer_alphabet.h"
#include "io/tokenizer_train.h"
#include "io/tokenizer_train_private.h"

/* Append the letters of a token's bytes (tokenizer_alphabet.h) to text. */
static void spell(const struct tokenizer_trainer *trainer, uint32_t id,
                  struct tokenizer_buffer *text)
{
    size_t bytes;
    const char *token = tokenizer_vocab_text(&trainer->tokens, id, &bytes);
    char letter[4];
    for (size_t i = 0; i < bytes; i++)
        tokenizer_buffer_add(
            text, letter,
            tokenizer_put_code(letter, tokenizer_alphabet_code((unsigned char)token[i])));
}

/* Returns "vocab": an object with the id of each token. */
static struct js *list_tokens(const struct tokenizer_trainer *trainer)
{
    struct js *vocab = js_object();
    struct tokenizer_buffer text = {0};
    for (uint32_t id = 0; id < trainer->tokens.size; id++) {
        text.bytes = 0;
        spell(trainer, id, &text);
        js_add_int(vocab, text.text, id);
    }
    free(text.text);
    return vocab;
}

/* Returns "merges": a list of texts "left right", in the order of merging. */
static struct js *list_merges(const struct tokenizer_trainer *trainer)
{
    struct js *merges = js_array();
    struct tokenizer_buffer text = {0};
    for (int i = 0; i < trainer->merge_count; i++) {
        text.bytes = 0;
        spell(trainer, (uint32_t)(trainer->merges[i] >> 32), &text);
        tokenizer_buffer_add(&text, " ", 1);
        spell(trainer, (uint32_t)trainer->merges[i], &text);
        js_add_string(merges, NULL, text.text);
    }
    free(text.text);
    return merges;
}

static struct js *describe_model(const struct tokenizer_trainer *trainer)
{
    struct js *model = js_object();
    js_add_string(model, "type", "BPE");
    js_add_bool(model, "fuse_unk", 0);
    js_add_bool(model, "byte_fallback", 0);
    js_add_bool(model, "ignore_merges", 0);
    js_add(model, "vocab", list_tokens(trainer));
    js_add(model, "merges", list_merges(trainer));
    return model;
}

/* Returns "added_tokens": a list of the special tokens. */
static struct js *describe_specials(const struct tokenizer_trainer *trainer)
{
    static const char *const no[] = {"single_word", "lstrip", "rstrip", "normalized"};
    struct js *list = js_array();
    for (int id = 0; id < trainer->specials; id++) {
        size_t bytes;
        const char *text = tokenizer_vocab_text(&trainer->tokens, id, &bytes);
        struct js *token = js_object();
        js_add_int(token, "id", id);
        js_add_bytes(token, "content", text, bytes);
        for (int i = 0; i < 4; i++)
            js_add_bool(token, no[i], 0);
        js_add_bool(token, "special", 1);
        js_add(list, NULL, token);
    }
    return list;
}

/* Returns a part of type ByteLevel, as pre-tokenizer, post-processor and decoder have it. */
static struct js *describe_bytes(void)
{
    struct js *part = js_object();
    js_add_string(part, "type", "ByteLevel");
    js_add_bool(part, "add_prefix_space", 0);
    js_add_bool(part, "trim_offsets", 1);
    js_add_bool(part, "use_regex", 1);
    return part;
}

int tokenizer_trainer_write(struct tokenizer_trainer *trainer, int64_t tokens, const char *path,
                            int64_t *made, struct error *err)
{
    int fewest = TOKENIZER_FEWEST - 1 + trainer->specials;
    if (tokens < fewest || tokens > TOKENIZER_MOST_IDS)
        return error_set(err,
                         "a vocabulary of %lld tokens: it has from %d, for the bytes and special "
                         "tokens, to %d",
                         (long long)tokens, fewest, TOKENIZER_MOST_IDS);
    tokenizer_trainer_merge(trainer, tokens);
    struct js *file = js_object();
    js_add_string(file, "version", "1.0");
    js_add(file, "added_tokens", describe_specials(trainer));
    js_add(file, "pre_tokenizer", describe_bytes());
    js_add(file, "post_processor", describe_bytes());
    js_add(file, "decoder", describe_bytes());
    js_add(file, "model", describe_model(trainer));
    *made = trainer->tokens.size;
    int rc = js_write(file, JS_INDENTED, WHOLE_FILE_DURABLE, path, err);
    js_free(file);
    return rc;
}
