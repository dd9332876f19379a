/* test_jsonl.c - records of JSON lines, and the blocks of lines and threads that they come by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "io/blocks.h"
#include "io/jsonl.h"
#include "io/ordered.h"

static const struct jsonl_fields any;

static int read_line(struct jsonl_record *record, const struct jsonl_fields *fields,
                     const char *line, struct error *err)
{
    *err = (struct error){0};
    return jsonl_read(record, fields, line, strlen(line), err);
}

static void assert_text(struct jsonl_text text, const char *wanted, size_t bytes)
{
    assert_int_equal(text.bytes, bytes);
    assert_memory_equal(text.text, wanted, bytes);
}

static void kinds_follow_from_fields(void **state)
{
    static const struct {
        const char *line;
        enum jsonl_kind kind;
    } rows[] = {
        {"{\"text\": \"a\"}", JSONL_TEXT},
        {"{\"text\": \"a\", \"prompt\": \"b\"}", JSONL_TEXT},
        {"{\"text\": \"a\", \"prompt\": \"b\", \"completion\": \"c\"}", JSONL_PROMPT},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"text\": \"c\"}", JSONL_INSTRUCTION},
        {"{\"instruction\": \"a\", \"input\": null, \"output\": \"b\"}", JSONL_INSTRUCTION},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"messages\": []}", JSONL_CHAT},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": \"x\"}]}", JSONL_CHAT},
        {"{\"id\": 99999999999999999999, \"text\": \"a\"}\r\n", JSONL_TEXT},
    };
    struct jsonl_record record = {0};
    struct error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (read_line(&record, &any, rows[i].line, &err))
            fail_msg("%s: %s", rows[i].line, err.text);
        assert_int_equal(record.kind, rows[i].kind);
    }
    jsonl_free(&record);
}

static void texts_are_whole(void **state)
{
    struct jsonl_record record = {0};
    struct error err;
    struct jsonl_fields named = {.text = "body"}, parts = {.prompt = "q", .completion = "a"};
    assert_int_equal(read_line(&record, &any, "{\"text\": \"a\\u0000\\u00e9\\n\"}", &err), 0);
    assert_text(record.text, "a\0\xc3\xa9\n", 5);
    assert_int_equal(read_line(&record, &named, "{\"text\": \"a\", \"body\": \"\"}", &err), 0);
    assert_text(record.text, "", 0);
    assert_int_equal(read_line(&record, &parts, "{\"q\": \"x\", \"a\": \"yz\"}", &err), 0);
    assert_int_equal(record.kind, JSONL_PROMPT);
    assert_text(record.prompt, "x", 1);
    assert_text(record.completion, "yz", 2);
    jsonl_free(&record);
}

static void conversations_have_roles(void **state)
{
    struct jsonl_record record = {0};
    struct error err;
    const char *openai =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"},"
        "{\"role\": \"user\", \"content\": \"\"},"
        "{\"role\": \"assistant\", \"content\": \"no\", \"weight\": 0},"
        "{\"role\": \"assistant\", \"content\": \"yes\", \"weight\": 1, \"tool_calls\": null,"
        "\"reasoning_content\": \"\"}], \"tools\": \"[]\", \"system\": \"\"}";
    const char *axolotl =
        "{\"conversations\": [{\"from\": \"gpt\", \"value\": \"no\", \"train\": false},"
        "{\"from\": \"gpt\", \"value\": \"yes\", \"train\": true, \"loss\": true, \"masked\": "
        "false},"
        "{\"from\": \"gpt\", \"value\": \"no\", \"loss\": false},"
        "{\"from\": \"gpt\", \"value\": \"no\", \"training\": false}], \"history\": []}";
    const char *lists = "{\"prompt\": [{\"role\": \"assistant\", \"content\": \"p\"}],"
                        "\"completion\": [{\"from\": \"gpt\", \"value\": \"c\"}]}";
    if (read_line(&record, &any, openai, &err))
        fail_msg("%s", err.text);
    assert_int_equal(record.message_count, 4);
    assert_int_equal(record.messages[0].role, CHAT_SYSTEM);
    assert_int_equal(record.messages[1].role, CHAT_USER);
    assert_int_equal(record.messages[1].bytes, 0);
    assert_false(record.messages[2].trained);
    assert_true(record.messages[3].trained);
    if (read_line(&record, &any, axolotl, &err))
        fail_msg("%s", err.text);
    assert_int_equal(record.message_count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(record.messages[i].trained, i == 1);
    if (read_line(&record, &any, lists, &err))
        fail_msg("%s", err.text);
    assert_int_equal(record.message_count, 2);
    assert_false(record.messages[0].trained);
    assert_true(record.messages[1].trained);
    jsonl_free(&record);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *line, *words;
    } rows[] = {
        {"", "not JSON"},
        {"{\"text\": \"a\"", "not JSON"},
        {"{\"text\": \"a\"} {}", "not JSON"},
        {"{\"text\": \"\xff\"}", "not JSON: column"},
        {"{\"text\": \"\\ud800\"}", "not JSON: column"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate"},
        {"[1]", "an array, not an object"},
        {"3", "a number, not an object"},
        {"{}", "it has none"},
        {"{\"txt\": \"a\", \"id\": 1}", "it has txt, id"},
        {"{\"text\": null}", "field \"text\" is null"},
        {"{\"text\": [1]}", "message 1 is a number"},
        {"{\"prompt\": 1, \"completion\": \"b\"}", "\"prompt\" is a number"},
        {"{\"messages\": {}}", "\"messages\" is an object, not a list"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no text \"role\""},
        {"{\"messages\": [{\"role\": 1, \"content\": \"a\"}]}", "message 1 has no text \"role\""},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": \"0\"}]}",
         "message 1: \"weight\" is a text, not 0 or 1"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": false}]}",
         "message 1: \"weight\" is "},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}",
         "message 1: \"weight\" is another number, not 0 or 1"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": -1}]}",
         "message 1: \"weight\" is a"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": "
         "\"b\"}]}",
         "message 1 has \"reasoning_content\""},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{}]}]}",
         "message 1 calls a tool"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"tools\": [{}]}",
         "the record has tools"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"tools\": \"[{}]\"}",
         "the record has tools"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"loss\": 0.5}]}",
         "message 1: loss"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"masked\": true}]}",
         "message 1 has \"masked\", which is not read; \"train\": false"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"train_detail\": "
         "[{\"begin_offset\": 0, \"end_offset\": 0, \"train\": false}]}]}",
         "message 1 has \"train_detail\", which is not read"},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": \"a\"}], \"system_prompt\": \"b\"}",
         "\"system_prompt\" beside its messages"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"system_prompt\": \"c\"}",
         "\"system_prompt\", which is not read"},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": \"a\"}], \"system\": \"b\"}",
         "the record has \"system\" beside"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"system\": \"c\"}",
         "the record has \"system\", which is not read; make messages"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"c\", \"d\"]]}",
         "the record has \"history\", which is not read; make messages"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"system\": \"c\"}",
         "the record has \"system\""},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": false}",
         "\"label\" is false: its answer is a rejected one"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"images\": [\"b.png\"]}",
         "the record has \"images\", and trireme trains on text alone"},
        {"{\"conversations\": [{\"value\": \"a\"}]}", "message 1 has no text \"from\""},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", "of \"tool\"; there are"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
         "\"a\"}]}]}",
         "\"content\" is an array, not a text; join its parts into one"},
        {"{\"input_ids\": [1], \"attention_mask\": [1], \"labels\": [-100]}",
         "it has input_ids, attention_mask, labels: token ids with masks of their own"},
        {"{\"segments\": [{\"text\": \"a\", \"label\": true}]}",
         "it has segments: parts of a text with masks of their own"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"function_call\": "
         "{\"name\": \"f\"}}]}",
         "tool"},
    };
    struct jsonl_record record = {0};
    struct error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(read_line(&record, &any, rows[i].line, &err), -1);
        if (!strstr(err.text, rows[i].words))
            fail_msg("%s: '%s', without '%s'", rows[i].line, err.text, rows[i].words);
    }
    struct jsonl_fields named = {.text = "body"};
    assert_int_equal(read_line(&record, &named, "{\"text\": \"a\"}", &err), -1);
    assert_non_null(strstr(err.text, "no field \"body\""));
    jsonl_free(&record);
}

/* Who names the fields has chosen them, but has said nothing about rejected answers. */
static void named_fields_are_taken_without_the_others(void **state)
{
#define ANSWER "[{\"role\": \"assistant\", \"content\": \"b\"}]"
    static const struct jsonl_fields texts = {.prompt = "q", .completion = "a"};
    static const struct jsonl_fields chat = {.text = "talk"};
    static const struct {
        const struct jsonl_fields *fields;
        const char *line, *words; /* words NULL: it is read */
    } rows[] = {
        {&texts, "{\"q\": \"a\", \"a\": \"b\", \"system\": \"s\", \"images\": [\"i\"]}", NULL},
        {&texts, "{\"q\": " ANSWER ", \"a\": " ANSWER ", \"history\": [[\"c\", \"d\"]]}", NULL},
        {&chat, "{\"talk\": " ANSWER ", \"system\": \"s\", \"images\": [\"i\"]}", NULL},
        {&chat, "{\"talk\": \"a text without an answer\", \"label\": false}", NULL},
        {&texts, "{\"q\": \"a\", \"a\": \"b\", \"label\": false}", "\"label\" is false"},
        {&texts, "{\"q\": " ANSWER ", \"a\": " ANSWER ", \"label\": false}", "\"label\" is false"},
        {&chat, "{\"talk\": " ANSWER ", \"label\": false}", "\"label\" is false"},
        {&any, "{\"text\": " ANSWER ", \"system\": \"s\"}", "has \"system\" beside"},
        {&any, "{\"text\": " ANSWER ", \"label\": false}", "\"label\" is false"},
        {&any, "{\"instruction\": \"a\", \"output\": \"b\", \"label\": false}", "\"label\""},
        {&any, "{\"text\": \"a text without an answer\", \"label\": false}", NULL},
    };
#undef ANSWER
    struct jsonl_record record = {0};
    struct error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int rc = read_line(&record, rows[i].fields, rows[i].line, &err);
        if (rc != (rows[i].words ? -1 : 0) || (rc && !strstr(err.text, rows[i].words)))
            fail_msg("%s: '%s', not '%s'", rows[i].line, rc ? err.text : "",
                     rows[i].words ? rows[i].words : "");
    }
    jsonl_free(&record);
}

/* Nesting without end uses no stack without end. */
static void nesting_is_refused(void **state)
{
    enum { DEEP = 1 << 20 };
    struct jsonl_record record = {0};
    struct error err = {0};
    char *line = malloc(DEEP);
    memset(line, '[', DEEP);
    assert_int_equal(jsonl_read(&record, &any, line, DEEP, &err), -1);
    free(line);
    jsonl_free(&record);
}

/* Blocks */

static int file_of(const char *text, size_t bytes)
{
    char path[] = "/tmp/trireme-jsonl-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    assert_int_equal(write(fd, text, bytes), bytes);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Lines of all lengths come end to end, and none is divided. */
static void blocks_hold_whole_lines(void **state)
{
    enum { LINES = 300, MOST = 4 << 20 };
    char *text = malloc(MOST);
    size_t bytes = 0, seen = 0;
    for (int i = 0; i < LINES; i++) {
        size_t length = i == 7 ? 3 * BLOCKS_BYTES + 11 : (size_t)(i * 97 % 5003);
        memset(text + bytes, 'a' + i % 26, length);
        bytes += length;
        text[bytes++] = '\n';
    }
    bytes--; /* the last line has no end */
    struct blocks_buffer block = {0};
    struct error err = {0};
    struct blocks blocks = {
        .fd = file_of(text, bytes), .path = "lines", .cut = blocks_cut_line, .left = -1};
    int got, blocks_seen = 0;
    while ((got = blocks_next(&blocks, &block, &err)) > 0) {
        assert_true(seen + block.bytes <= bytes);
        assert_memory_equal(block.text, text + seen, block.bytes);
        seen += block.bytes;
        assert_true(seen == bytes || block.text[block.bytes - 1] == '\n');
        blocks_seen++;
    }
    assert_int_equal(got, 0);
    assert_int_equal(seen, bytes);
    assert_true(blocks_seen > 3);
    close(blocks.fd);
    blocks_free(&blocks);
    blocks_buffer_free(&block);
    free(text);
}

static void blocks_stop_where_asked(void **state)
{
    struct blocks_buffer block = {0};
    struct error err = {0};
    int fd = file_of("one\ntwo\nthree", 13);
    struct blocks head = {.fd = fd, .path = "f", .cut = blocks_cut_line, .left = 6};
    struct blocks tail = {.fd = fd, .path = "f", .cut = blocks_cut_line, .left = -1};
    assert_int_equal(blocks_next(&head, &block, &err), 1);
    assert_int_equal(block.bytes, 6);
    assert_true(blocks_is_last(&head));
    assert_int_equal(blocks_next(&head, &block, &err), 0);
    assert_int_equal(blocks_next(&tail, &block, &err), 1);
    assert_int_equal(block.bytes, 7);
    assert_memory_equal(block.text, "o\nthree", 7);
    close(fd);
    blocks_free(&head);
    blocks_free(&tail);
    blocks_buffer_free(&block);
}

/* Threads */

struct item {
    int number, square;
};

struct taker {
    int next, fail_at, begun;
};

static int begin(void **state, void *user, struct error *err)
{
    struct taker *taker = user;
    *state = taker;
    return ++taker->begun == 100 ? error_set(err, "thread 100") : 0;
}

static void end(void *state)
{
    ((struct taker *)state)->begun--;
}

static void square(void *state, void *item)
{
    struct item *i = item;
    usleep((useconds_t)(i->number * 7919 % 301)); /* the later are done before the earlier */
    i->square = i->number * i->number;
}

static int take(void *user, void *item, struct error *err)
{
    struct taker *taker = user;
    const struct item *i = item;
    assert_int_equal(i->number, taker->next);
    assert_int_equal(i->square, i->number * i->number);
    return taker->next++ == taker->fail_at ? error_set(err, "taking") : 0;
}

static void forget(void *item)
{
}

static const struct ordered_job job = {.item_bytes = sizeof(struct item),
                                       .begin = begin,
                                       .end = end,
                                       .work = square,
                                       .take = take,
                                       .free_item = forget};

static int give_all(struct ordered *ordered, int count, struct error *err)
{
    for (int i = 0; i < count; i++) {
        struct item *item = ordered_item(ordered, err);
        if (!item)
            return -1;
        item->number = i;
        ordered_give(ordered);
    }
    return ordered_finish(ordered, err);
}

static void results_come_in_order(void **state)
{
    for (int threads = 1; threads < 8; threads += 2)
        for (int count = 0; count < 400; count = count * 3 + 1) {
            struct taker taker = {.fail_at = -1};
            struct ordered *ordered;
            struct error err = {0};
            assert_int_equal(ordered_create(&ordered, &job, &taker, threads, &err), 0);
            assert_int_equal(give_all(ordered, count, &err), 0);
            assert_int_equal(taker.next, count);
            ordered_destroy(ordered);
            assert_int_equal(taker.begun, 0);
        }
}

static void failures_end_the_work(void **state)
{
    struct taker taker = {.fail_at = 20};
    struct ordered *ordered;
    struct error err = {0};
    assert_int_equal(ordered_create(&ordered, &job, &taker, 3, &err), 0);
    assert_int_equal(give_all(ordered, 100, &err), -1);
    assert_string_equal(err.text, "taking");
    assert_int_equal(taker.next, 21);
    ordered_destroy(ordered);
    taker.begun = 98;
    assert_int_equal(ordered_create(&ordered, &job, &taker, 3, &err), -1);
    assert_string_equal(err.text, "thread 100");
    assert_null(ordered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_follow_from_fields),
        cmocka_unit_test(texts_are_whole),
        cmocka_unit_test(conversations_have_roles),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(named_fields_are_taken_without_the_others),
        cmocka_unit_test(nesting_is_refused),
        cmocka_unit_test(blocks_hold_whole_lines),
        cmocka_unit_test(blocks_stop_where_asked),
        cmocka_unit_test(results_come_in_order),
        cmocka_unit_test(failures_end_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
