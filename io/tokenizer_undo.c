/* tokenizer_undo.c - "decoder" of a tokenizer.json, as a list of steps, each of which changes the
 * text of one token.
 *
 * kinds[] has a row for each type of decoder, with the function that appends its step to
 * data->undos; such a function returns 0, or -1 with err set.
 *
 * A Fuse joins the texts of all tokens into one.  trireme never holds that text whole: only a Strip
 * of its beginning may follow a Fuse, and the decoder counts how much of it is still to be
 * stripped.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/tokenizer_alphabet.h"
#include "io/tokenizer_read.h"

/* Make a buffer's text the text other. */
static void set(struct tokenizer_buffer *text, const char *other, size_t bytes)
{
    text->bytes = 0;
    tokenizer_buffer_add(text, other, bytes);
}

/* Replace every `from`, a text of 1 byte or more, in text by `to`. */
static void replace(struct tokenizer_buffer *text, const char *from, const char *to)
{
    struct tokenizer_buffer out = {0};
    size_t from_bytes = strlen(from), done = 0;
    const char *found;
    while ((found = memmem(text->text + done, text->bytes - done, from, from_bytes))) {
        size_t at = (size_t)(found - text->text);
        tokenizer_buffer_add(&out, text->text + done, at - done);
        tokenizer_buffer_add(&out, to, strlen(to));
        done = at + from_bytes;
    }
    if (done) {
        tokenizer_buffer_add(&out, text->text + done, text->bytes - done);
        set(text, out.text, out.bytes);
    }
    free(out.text);
}

/* ByteLevel: make bytes of the letters that stand for them (tokenizer_alphabet.h).  A text with a
 * character that stands for no byte is left as it is. */
static void undo_letters(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                         struct tokenizer_buffer *text)
{
    size_t made = 0;
    for (size_t at = 0, length; at < text->bytes; at += length)
        if (tokenizer_alphabet_byte(tokenizer_code(text->text + at, &length)) < 0)
            return;
    for (size_t at = 0, length; at < text->bytes; at += length)
        text->text[made++] =
            (char)tokenizer_alphabet_byte(tokenizer_code(text->text + at, &length));
    text->bytes = made;
    text->text[made] = 0;
}

static void undo_replace(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                         struct tokenizer_buffer *text)
{
    replace(text, undo->from, undo->to);
}

/* ByteFallback: make the byte HH of a text "<0xHH>". */
static void undo_fallback(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                          struct tokenizer_buffer *text)
{
    char *end, byte;
    if (text->bytes != 6 || memcmp(text->text, "<0x", 3) || text->text[5] != '>')
        return;
    byte = (char)strtol(text->text + 3, &end, 16);
    if (end == text->text + 5)
        set(text, &byte, 1);
}

/* Returns the bytes of the copies of content, `most` at most, with which text begins. */
static size_t count_front(const struct tokenizer_buffer *text, const char *content, int64_t most)
{
    size_t length = strlen(content), at = 0;
    for (; most > 0 && text->bytes - at >= length && !memcmp(text->text + at, content, length);
         most--)
        at += length;
    return at;
}

/* Strip: leave out undo->from, undo->count times at most, at the front of a token, or of the whole
 * text. */
static void undo_strip(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                       struct tokenizer_buffer *text)
{
    int64_t all = undo->count, *left = undo->whole ? tokenizer_decoder_strips(decoder) : &all;
    if (undo->whole && *left < 0)
        *left = undo->count;
    size_t cut = count_front(text, undo->from, *left);
    *left = cut < text->bytes ? 0 : *left - (int64_t)(cut / strlen(undo->from));
    memmove(text->text, text->text + cut, text->bytes - cut + 1);
    text->bytes -= cut;
}

/* WordPiece: a token with the prefix continues a word and loses the prefix; any other but the first
 * gets a space before it.  cleanup: then leave out spaces before punctuation and such. */
static void undo_wordpiece(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                           struct tokenizer_buffer *text)
{
    static const char *const cleanups[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    size_t prefix = strlen(undo->from);
    if (tokenizer_decoder_began(decoder)) {
        if (text->bytes >= prefix && !memcmp(text->text, undo->from, prefix)) {
            memmove(text->text, text->text + prefix, text->bytes - prefix + 1);
            text->bytes -= prefix;
        } else {
            tokenizer_buffer_add(text, " ", 1);
            memmove(text->text + 1, text->text, text->bytes - 1);
            text->text[0] = ' ';
        }
    }
    for (size_t i = 0; undo->cleanup && i < sizeof cleanups / sizeof cleanups[0]; i++)
        replace(text, cleanups[i][0], cleanups[i][1]);
}

/* Metaspace: make a space of each undo->from.  In the first token leave it out where encoding put
 * it there (undo->count). */
static void undo_metaspace(const struct tokenizer_undo *undo, struct tokenizer_decoder *decoder,
                           struct tokenizer_buffer *text)
{
    replace(text, undo->from, undo->count && !tokenizer_decoder_began(decoder) ? "" : " ");
}

/* Kinds */

/* Append a step.  Returns it, or NULL with err set: there are too many. */
static struct tokenizer_undo *add_undo(struct tokenizer_data *data, struct error *err)
{
    if (data->undo_count == TOKENIZER_MOST_STEPS) {
        error_set(err, "more than %d decoders", TOKENIZER_MOST_STEPS);
        return NULL;
    }
    return &data->undos[data->undo_count++];
}

static int read_letters(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_undo *undo = add_undo(data, err);
    if (!undo)
        return -1;
    undo->apply = undo_letters;
    return 0;
}

static int read_replace(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_undo *undo = add_undo(data, err);
    struct tokenizer_regex *regex = NULL;
    const char *content, *source;
    if (!undo || tokenizer_read_text(part, "content", "", &content, err) ||
        tokenizer_read_pattern(part, &undo->from, &regex, &source, err))
        return -1;
    tokenizer_regex_destroy(regex);
    if (regex)
        return error_set(err, "a decoder Replace of a Regex is nothing that trireme has");
    undo->to = array_text(content);
    undo->apply = undo_replace;
    return 0;
}

static int read_fallback(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_undo *undo = add_undo(data, err);
    if (!undo)
        return -1;
    undo->apply = undo_fallback;
    return 0;
}

static int read_fuse(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    data->is_fused = 1;
    return 0;
}

static int read_strip(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_undo *undo = add_undo(data, err);
    const char *content;
    int64_t stop;
    if (!undo || tokenizer_read_text(part, "content", " ", &content, err) ||
        tokenizer_read_int(part, "start", 0, &undo->count, err) ||
        tokenizer_read_int(part, "stop", 0, &stop, err))
        return -1;
    if (stop || !*content)
        return error_set(err, "a decoder Strip with %s is nothing that trireme has",
                         stop ? "a stop" : "no content");
    undo->from = array_text(content);
    undo->whole = data->is_fused;
    undo->apply = undo_strip;
    return 0;
}

static int read_wordpiece(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_undo *undo = add_undo(data, err);
    const char *prefix;
    if (!undo || tokenizer_read_text(part, "prefix", "##", &prefix, err) ||
        tokenizer_read_bool(part, "cleanup", 1, &undo->cleanup, err))
        return -1;
    undo->from = array_text(prefix);
    undo->apply = undo_wordpiece;
    return 0;
}

static int read_metaspace(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    struct tokenizer_undo *undo = add_undo(data, err);
    const char *replacement, *scheme;
    if (!undo || tokenizer_read_text(part, "replacement", "\xE2\x96\x81", &replacement, err) ||
        tokenizer_read_text(part, "prepend_scheme", "always", &scheme, err))
        return -1;
    if (!*replacement)
        return error_set(err, "the replacement of a Metaspace is empty");
    undo->from = array_text(replacement);
    undo->count = strcmp(scheme, "never") != 0;
    undo->apply = undo_metaspace;
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct tokenizer_data *data, const struct js *part, struct error *err);
} kinds[] = {
    {.name = "ByteLevel", .read = read_letters},     {.name = "Replace", .read = read_replace},
    {.name = "ByteFallback", .read = read_fallback}, {.name = "Fuse", .read = read_fuse},
    {.name = "Strip", .read = read_strip},           {.name = "WordPiece", .read = read_wordpiece},
    {.name = "Metaspace", .read = read_metaspace},
};

static int read_undo(struct tokenizer_data *data, const struct js *part, struct error *err)
{
    int i = tokenizer_read_type(part, "decoder", kinds, sizeof kinds / sizeof kinds[0],
                                sizeof kinds[0], err);
    if (i >= 0 && data->is_fused && strcmp(kinds[i].name, "Strip"))
        return error_set(err, "a decoder %s after a Fuse is nothing that trireme has",
                         kinds[i].name);
    return i < 0 || kinds[i].read(data, part, err) ? -1 : 0;
}

int tokenizer_read_undos(struct tokenizer_data *data, const struct js *decoder, struct error *err)
{
    return tokenizer_read_each(data, decoder, "decoders", "decoder", read_undo, err);
}
