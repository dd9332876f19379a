/* test_tokenizer.c - tokenizers of files: the ids and texts of the package `tokenizers`
 * (tests/golden/make_tokenizers.py), and what holds for any text. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/philox.h"
#include "io/tokenizer.h"

static struct js *cases;

static char *golden_path(const char *name)
{
    const char *top = getenv("srcdir");
    return array_format("%s/tests/golden/tokenizers/%s.json", top ? top : ".", name);
}

static struct tokenizer *open_golden(const char *name)
{
    struct tokenizer *tokenizer;
    struct error err = {0};
    char *path = golden_path(name);
    if (tokenizer_open(&tokenizer, path, &err))
        fail_msg("%s", err.text);
    free(path);
    return tokenizer;
}

static void assert_ids(const struct tokenizer *tokenizer, const char *text, int flags,
                       const struct js *wanted)
{
    struct error err = {0};
    uint32_t *ids;
    int64_t count;
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), flags, &ids, &count, &err), 0);
    for (int i = 0; i < count || i < js_length(wanted); i++)
        if (i >= count || js_at_int(wanted, i, -1) != ids[i])
            fail_msg("%s, flags %d, \"%s\": token %d is %lld (%s), wanted %lld (%s)",
                     tokenizer->path, flags, text, i, i < count ? (long long)ids[i] : -1,
                     i < count ? tokenizer_text(tokenizer, ids[i]) : "",
                     (long long)js_at_int(wanted, i, -1),
                     tokenizer_text(tokenizer, js_at_int(wanted, i, -1)));
    free(ids);
}

static void assert_decoded(const struct tokenizer *tokenizer, const struct js *ids,
                           const char *wanted)
{
    uint32_t list[4096];
    size_t bytes;
    int count = js_length(ids);
    for (int i = 0; i < count; i++)
        list[i] = (uint32_t)js_at_int(ids, i, -1);
    char *text = tokenizer_decode(tokenizer, list, count, 0, &bytes);
    if (strcmp(text, wanted))
        fail_msg("%s: decoded \"%s\", wanted \"%s\"", tokenizer->path, text, wanted);
    assert_int_equal(bytes, strlen(wanted));
    free(text);
}

static void test_golden(void **state)
{
    const struct js *plain = js_get(cases, "plain"), *texts = js_get(cases, "texts");
    const struct js *some = js_get(cases, "some");
    int families = 0;
    for (const char *name = NULL; (name = js_next_key(plain, name)); families++) {
        struct tokenizer *tokenizer = open_golden(name);
        for (int i = 0; i < js_length(texts); i++)
            assert_ids(tokenizer, js_string(js_at(texts, i)), 0, js_at(js_get(plain, name), i));
        for (int k = 0; k < js_length(some); k++) {
            int i = (int)js_at_int(some, k, -1);
            assert_ids(tokenizer, js_string(js_at(texts, i)), TOKENIZER_SPECIALS | TOKENIZER_WRAP,
                       js_at(js_get(js_get(cases, "all"), name), k));
            assert_decoded(tokenizer, js_at(js_get(plain, name), i),
                           js_string(js_at(js_get(js_get(cases, "decoded"), name), k)));
        }
        tokenizer_close(tokenizer);
    }
    assert_int_equal(families, 14);
}

/* Random text */

static uint64_t draw(int64_t at)
{
    return philox_u64(philox_key(7, "tokenizer text"), (uint64_t)at);
}

/* Random characters, in runs of alike ones. */
static size_t random_text(char *text, size_t most, int64_t seed)
{
    static const char *const pieces[] = {
        "a",  "the", " ",        "  ",           "\n",       "é",    "e\xCC\x81", "中",
        "😀",  "'s",  "'LL",      "12",           "٣",        ".",    "==",        "\r\n",
        "\t", "Ⅷ",   "\xC5\xBF", "\xE2\x96\x81", "\xC2\xA0", "</s>", "x"};
    size_t bytes = 0;
    for (int64_t i = 0; bytes + 80 < most; i++) {
        uint64_t number = draw(seed * 100000 + i);
        const char *piece = pieces[number % (sizeof pieces / sizeof pieces[0])];
        for (unsigned k = 0; k <= (number >> 20) % 9 % ((number >> 40) % 5 + 1); k++)
            bytes += (size_t)snprintf(text + bytes, most - bytes, "%s", piece);
    }
    return bytes;
}

/* Byte-level tokenizers lose nothing: decode(encode(x)) == x. */
static void test_round_trip(void **state)
{
    static const char *const names[] = {"gpt2", "llama3", "o200k", "starcoder", "falcon"};
    struct error err = {0};
    char text[2000];
    for (int n = 0; n < 5; n++) {
        struct tokenizer *tokenizer = open_golden(names[n]);
        for (int64_t i = 0; i < 40; i++) {
            uint32_t *ids;
            int64_t count;
            size_t bytes = random_text(text, sizeof text, i), back;
            assert_int_equal(tokenizer_encode(tokenizer, text, bytes, 0, &ids, &count, &err), 0);
            char *decoded = tokenizer_decode(tokenizer, ids, count, 0, &back);
            assert_int_equal(back, bytes);
            assert_memory_equal(decoded, text, bytes);
            free(decoded);
            free(ids);
        }
        tokenizer_close(tokenizer);
    }
}

/* Ids of a text are those of its parts, where tokenizer_cut() cuts. */
static void test_cut(void **state)
{
    static const char *const names[] = {"gpt2",   "llama3",  "qwen2",     "starcoder", "falcon",
                                        "llama2", "mistral", "metaspace", "bert"};
    struct error err = {0};
    char text[1500];
    int cuts = 0;
    for (int n = 0; n < 9; n++) {
        struct tokenizer *tokenizer = open_golden(names[n]);
        for (int64_t i = 0; i < 60; i++) {
            uint32_t *whole, *first, *rest;
            int64_t all, a, b;
            size_t bytes = random_text(text, 200 + (size_t)i * 20, 1000 + i);
            size_t cut = tokenizer_cut(tokenizer, text, bytes);
            if (!cut)
                continue;
            cuts++;
            tokenizer_encode(tokenizer, text, bytes, 0, &whole, &all, &err);
            tokenizer_encode(tokenizer, text, cut, 0, &first, &a, &err);
            tokenizer_encode(tokenizer, text + cut, bytes - cut, TOKENIZER_CONTINUED, &rest, &b,
                             &err);
            assert_int_equal(all, a + b);
            assert_memory_equal(whole, first, (size_t)a * sizeof *whole);
            assert_memory_equal(whole + a, rest, (size_t)b * sizeof *whole);
            free(whole);
            free(first);
            free(rest);
        }
        tokenizer_close(tokenizer);
    }
    assert_true(cuts > 300);
}

/* Lines behind a sign may belong to it; no space is cut from another. */
static void test_cut_places(void **state)
{
    struct tokenizer *llama3 = open_golden("llama3"), *mistral = open_golden("mistral");
    assert_int_equal(tokenizer_cut(llama3, "a.\nb", 4), 0);
    assert_int_equal(tokenizer_cut(llama3, "a\nb", 3), 1);
    assert_int_equal(tokenizer_cut(llama3, "a. b", 4), 2);
    assert_int_equal(tokenizer_cut(llama3, "a  b", 4), 1);
    assert_int_equal(tokenizer_cut(llama3, "a", 1), 0);
    assert_int_equal(tokenizer_cut(mistral, "a\nb", 3), 0);
    assert_int_equal(tokenizer_cut(mistral, "ab c d", 6), 4);
    tokenizer_close(llama3);
    tokenizer_close(mistral);
}

/* One encoder for all texts gives what a new one gives: its cache and buffers hold nothing over. */
static void test_encoder_again(void **state)
{
    struct error err = {0};
    char text[3000];
    struct tokenizer *tokenizer = open_golden("mistral");
    struct tokenizer_encoder *encoder;
    assert_int_equal(tokenizer_encoder_create(&encoder, tokenizer, &err), 0);
    for (int64_t i = 0; i < 100; i++) {
        const uint32_t *ids;
        uint32_t *fresh;
        int64_t count, wanted;
        size_t bytes = random_text(text, 100 + (size_t)i * 29, i);
        tokenizer_encode(tokenizer, text, bytes, 0, &fresh, &wanted, &err);
        assert_int_equal(tokenizer_encoder_run(encoder, text, bytes, 0, &ids, &count, &err), 0);
        assert_int_equal(count, wanted);
        assert_memory_equal(ids, fresh, (size_t)count * sizeof *ids);
        free(fresh);
    }
    tokenizer_encoder_destroy(encoder);
    tokenizer_close(tokenizer);
}

/* Threads with encoders of their own share one tokenizer. */
struct share {
    const struct tokenizer *tokenizer;
    const char *text;
    size_t bytes;
    uint64_t sum;
};

static void *encode_often(void *arg)
{
    struct share *share = arg;
    struct tokenizer_encoder *encoder;
    struct error err = {0};
    const uint32_t *ids;
    int64_t count = 0;
    if (tokenizer_encoder_create(&encoder, share->tokenizer, &err))
        return NULL;
    for (int i = 0; i < 50; i++) {
        size_t skip = (size_t)i * 7 % 100; /* a character may be cut */
        if (!tokenizer_encoder_run(encoder, share->text + skip, share->bytes - skip, 0, &ids,
                                   &count, &err))
            share->sum ^= hash_bytes_seeded(ids, (size_t)count * sizeof *ids, (uint64_t)i);
    }
    tokenizer_encoder_destroy(encoder);
    return NULL;
}

static void test_threads(void **state)
{
    enum { THREADS = 3 };
    struct share share[THREADS + 1];
    pthread_t thread[THREADS];
    char text[4000];
    size_t bytes = random_text(text, sizeof text, 5);
    struct tokenizer *tokenizer = open_golden("o200k"); /* by PCRE2 */
    for (int i = 0; i <= THREADS; i++)
        share[i] = (struct share){.tokenizer = tokenizer, .text = text, .bytes = bytes};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, encode_often, &share[i]), 0);
    encode_often(&share[THREADS]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(share[i].sum == share[THREADS].sum && share[i].sum);
    }
    tokenizer_close(tokenizer);
}

/* What is no UTF-8 is encoded as U+FFFD, as many as Python makes of it. */
static void test_broken(void **state)
{
    static const char *const pairs[][2] = {
        {"a\xFFz", "a\xEF\xBF\xBDz"},
        {"\xC3", "\xEF\xBF\xBD"},
        {"\xE2\x82", "\xEF\xBF\xBD"},
        {"\xF0\x9F\x98x", "\xEF\xBF\xBDx"},
        {"\xE2\x28\xA1", "\xEF\xBF\xBD(\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    struct error err = {0};
    struct tokenizer *tokenizer = open_golden("gpt2");
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        uint32_t *ids;
        int64_t count;
        size_t bytes;
        tokenizer_encode(tokenizer, pairs[i][0], strlen(pairs[i][0]), 0, &ids, &count, &err);
        char *text = tokenizer_decode(tokenizer, ids, count, 0, &bytes);
        assert_string_equal(text, pairs[i][1]);
        free(text);
        free(ids);
    }
    tokenizer_close(tokenizer);
}

/* A decoder hands out whole characters, and in the end what tokenizer_decode() does. */
static void test_stream(void **state)
{
    static const char text[] = "é 中文 😀👩‍👩‍👧 𐎀🝰 done";
    struct error err = {0};
    struct tokenizer *tokenizer = open_golden("starcoder");
    struct tokenizer_decoder *decoder;
    uint32_t *ids;
    int64_t count;
    size_t bytes, all = 0;
    char out[200] = "";
    tokenizer_encode(tokenizer, text, strlen(text), 0, &ids, &count, &err);
    assert_true(count > 20); /* characters are in several tokens */
    tokenizer_decoder_create(&decoder, tokenizer, 0);
    for (int64_t i = 0; i < count; i++) {
        const char *piece = tokenizer_decoder_add(decoder, ids[i], &bytes);
        assert_true(!bytes || ((unsigned char)piece[0] & 0xc0) != 0x80);
        memcpy(out + all, piece, bytes);
        all += bytes;
    }
    assert_int_equal(all, strlen(text));
    assert_memory_equal(out, text, all);
    tokenizer_decoder_finish(decoder, &bytes);
    assert_int_equal(bytes, 0);
    tokenizer_decoder_add(decoder, (uint32_t)tokenizer_id(tokenizer, "\xC3\xB0"),
                          &bytes); /* 0xF0 */
    assert_int_equal(bytes, 0);
    assert_string_equal(tokenizer_decoder_finish(decoder, &bytes), "\xEF\xBF\xBD");
    tokenizer_decoder_destroy(decoder);
    tokenizer_close(tokenizer);
    free(ids);
}

static void test_lookups(void **state)
{
    struct tokenizer *tokenizer = open_golden("llama3"), *again = open_golden("llama3");
    int64_t eot = tokenizer_id(tokenizer, "<|eot_id|>");
    assert_int_equal(eot, tokenizer->vocab - 1);
    assert_string_equal(tokenizer_text(tokenizer, eot), "<|eot_id|>");
    assert_null(tokenizer_text(tokenizer, eot + 1));
    assert_null(tokenizer_text(tokenizer, -1));
    assert_int_equal(tokenizer_id(tokenizer, "no such token"), -1);
    assert_true(tokenizer_is_special(tokenizer, eot));
    assert_false(tokenizer_is_special(tokenizer, 3));
    assert_int_equal(tokenizer->role[TOKENIZER_BOS], tokenizer_id(tokenizer, "<|begin_of_text|>"));
    assert_int_equal(tokenizer->end_of_text, tokenizer_id(tokenizer, "<|end_of_text|>"));
    assert_true(tokenizer_is_stop(tokenizer, tokenizer->end_of_text));
    assert_int_equal(tokenizer->role[TOKENIZER_PAD], -1);
    assert_string_equal(tokenizer->name, again->name);
    assert_memory_equal(tokenizer->name, "byte-bpe-", 9);
    tokenizer_close(again);
    again = open_golden("gpt2");
    assert_string_not_equal(tokenizer->name, again->name);
    tokenizer_close(again);
    tokenizer_close(tokenizer);
}

static int read_cases(void **state)
{
    struct error err = {0};
    char *path = golden_path("cases");
    cases = js_read(path, &err);
    free(path);
    return cases ? 0 : -1;
}

static int free_cases(void **state)
{
    js_free(cases);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_encoder_again),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_cut_places),
        cmocka_unit_test(test_broken),  cmocka_unit_test(test_stream),
        cmocka_unit_test(test_lookups),
    };
    return cmocka_run_group_tests(tests, read_cases, free_cases);
}
