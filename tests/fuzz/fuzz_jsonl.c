/* fuzz_jsonl.c - lines of JSON as records, and their conversations by a chat template.
 *
 * The first byte chooses the template and which fields are asked for; the rest is lines, which
 * come in blocks.  A record is refused with one line, or its texts lie where they can be read and
 * its conversation becomes as many tokens as its text has bytes.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/blocks.h"
#include "io/chat.h"
#include "io/chat_encode.h"
#include "io/jsonl.h"
#include "io/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static const char *const templates[] = {"llama2",     "llama3", "llama3.1", "mistral-v1",
                                        "mistral-v3", "chatml", "qwen2",    "qwen3"};
static const struct jsonl_fields fields[] = {
    {0}, {.text = "a"}, {.prompt = "a", .completion = "b"}};

static struct {
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *tokens;
    struct chat_specials *specials;
} once;

static void open_once(void)
{
    struct error err = {0};
    if (once.tokenizer)
        return;
    if (tokenizer_open(&once.tokenizer, "bytes", &err) ||
        tokenizer_encoder_create(&once.tokens, once.tokenizer, &err))
        fuzz_fail("%s", err.text);
    once.specials = chat_specials_create(once.tokenizer);
}

/* Read all of a text, as a sanitizer sees. */
static unsigned read_text(const char *text, size_t bytes)
{
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += (unsigned char)text[i];
    return sum;
}

static void render(const struct jsonl_record *record, const struct chat_template *chat,
                   enum chat_use use)
{
    struct error err = {0};
    struct chat_text text = {0};
    struct chat_encoder encoder = {.encoder = once.tokens, .specials = once.specials};
    struct token_list list = {0};
    if (chat_render(chat, record->messages, record->message_count, use, &text, &err)) {
        fuzz_check_error(&err);
    } else {
        int64_t bytes = 0;
        for (int i = 0; i < text.count; i++)
            bytes += (int64_t)text.pieces[i].bytes;
        if (chat_encode(&encoder, &text, &list, &err))
            fuzz_fail("%s", err.text);
        if (list.count != bytes)
            fuzz_fail("%lld tokens of %lld bytes", (long long)list.count, (long long)bytes);
    }
    token_list_free(&list);
    chat_encoder_free(&encoder);
    chat_free(&text);
}

static void read_line(struct jsonl_record *record, const struct jsonl_fields *named,
                      const struct chat_template *chat, const char *line, size_t bytes)
{
    struct error err = {0};
    if (jsonl_is_blank(line, bytes))
        return;
    if (jsonl_read(record, named, line, bytes, &err)) {
        fuzz_check_error(&err);
        return;
    }
    read_text(record->text.text, record->text.bytes);
    read_text(record->prompt.text, record->prompt.bytes);
    read_text(record->input.text, record->input.bytes);
    read_text(record->completion.text, record->completion.bytes);
    if (record->kind == JSONL_CHAT) {
        render(record, chat, CHAT_TRAIN);
        render(record, chat, CHAT_PROMPT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct error err = {0};
    struct jsonl_record record = {0};
    struct blocks_buffer block = {0};
    unsigned choice = (unsigned)fuzz_take(&data, &bytes, 1);
    const struct chat_template *chat = chat_find(templates[choice % 8]);
    open_once();
    struct blocks blocks = {.fd = open(fuzz_file("lines", data, bytes), O_RDONLY),
                            .path = "lines",
                            .cut = blocks_cut_line,
                            .left = -1};
    while (blocks_next(&blocks, &block, &err) > 0)
        for (size_t at = 0; at < block.bytes;) {
            const char *line = block.text + at, *end = memchr(line, '\n', block.bytes - at);
            size_t length = end ? (size_t)(end - line) + 1 : block.bytes - at;
            read_line(&record, &fields[choice / 8 % 3], chat, line, length);
            at += length;
        }
    if (err.text[0])
        fuzz_fail("%s", err.text);
    close(blocks.fd);
    blocks_free(&blocks);
    blocks_buffer_free(&block);
    jsonl_free(&record);
    return 0;
}
