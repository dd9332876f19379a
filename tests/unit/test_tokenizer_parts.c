/* test_tokenizer_parts.c - parts of tokenizers: loops against their patterns, hostile files,
 * training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/philox.h"
#include "base/text.h"
#include "io/tokenizer.h"
#include "io/tokenizer_alphabet.h"
#include "io/tokenizer_regex.h"
#include "io/tokenizer_scan.h"
#include "io/tokenizer_train.h"
#include "io/tokenizer_unicode.h"

static char dir[64];

/* Loops */

enum { CHARACTERS = 60, TEXTS = 20000 };

/* A text of few characters, many of them those that patterns name.  Characters without a class are
 * left out: PCRE2 may know a newer Unicode, and have one for them. */
static size_t random_text(char *text, int64_t seed, const uint16_t *classes)
{
    static const uint32_t likely[] = {
        ' ',   ' ',    '\n',  '\r',   '\t',    '\'',   's',  'S',    'l',    'L',   'r',
        'e',   'v',    'd',   'a',    '1',     '2',    '.',  '-',    0xa0,   0x17f, 0xe9,
        0x301, 0x4e2d, 0x663, 0x216b, 0x1f600, 0x2028, 0x85, 0x3000, 0x200b, 0x180e};
    const uint64_t key = philox_key(3, "scan");
    size_t bytes = 0;
    int length = 1 + (int)(philox_u64(key, (uint64_t)seed * 100) % (CHARACTERS - 1));
    for (int i = 1; i <= length; i++) {
        uint64_t number = philox_u64(key, (uint64_t)seed * 100 + (uint64_t)i);
        uint32_t code = likely[number % (sizeof likely / sizeof likely[0])];
        if (number >> 32 & 7 && i > 1 && number >> 40 & 1)
            code = (uint32_t)(number >> 41 & 3 ? code : (number >> 43) % 0xd800);
        bytes += tokenizer_put_code(text + bytes, code && classes[code] ? code : 1);
    }
    return bytes;
}

static void test_scans(void **state)
{
    struct error err = {0};
    struct tokenizer_match *match;
    uint16_t *classes = tokenizer_unicode_classes();
    const char *pattern;
    char text[4 * CHARACTERS];
    size_t start, end;
    assert_int_equal(tokenizer_match_create(&match, &err), 0);
    for (int p = 0; (pattern = tokenizer_scan_pattern(p)); p++) {
        struct tokenizer_regex *regex;
        tokenizer_scan *scan = tokenizer_scan_of(pattern);
        assert_int_equal(tokenizer_regex_create(&regex, pattern, &err), 0);
        for (int64_t i = 0; i < TEXTS; i++) {
            size_t bytes = random_text(text, i, classes);
            for (size_t at = 0; at < bytes; at = end) {
                assert_int_equal(
                    tokenizer_regex_find(regex, match, text, bytes, at, &start, &end, &err), 1);
                assert_int_equal(start, at);
                if (scan(classes, text + at, bytes - at) != end - at)
                    fail_msg("%s: at %zu of \"%.*s\" the loop finds %zu bytes, PCRE2 %zu", pattern,
                             at, (int)bytes, text, scan(classes, text + at, bytes - at), end - at);
            }
        }
        tokenizer_regex_destroy(regex);
    }
    assert_null(tokenizer_scan_of("x+"));
    tokenizer_match_destroy(match);
    free(classes);
}

/* Patterns, and what of a text they match, as Oniguruma in the package `tokenizers` does. */
static const struct {
    const char *pattern, *text, *matches; /* "|" behind each */
} patterns[] = {
    {.pattern = "\\p{N}{1,3}+", .text = "12345 67", .matches = "12345|67|"},
    {.pattern = "x{2}+y", .text = "xxxxy xxxy", .matches = "xxxxy|xxy|"},
    {.pattern = "(a|b){2}+", .text = "abab aba", .matches = "abab|ab|"},
    {.pattern = "ab{2}?", .text = "abb a ab", .matches = "abb|a|a|"},
    {.pattern = "x{,2}y", .text = "xxxy y", .matches = "xxy|y|"},
    {.pattern = "é{2}+", .text = "ééé éééé", .matches = "éé|éééé|"},
    {.pattern = "[ab]{1,2}+c", .text = "ababc", .matches = "ababc|"},
    {.pattern = "\\.{2}+", .text = ".....", .matches = "....|"},
    {.pattern = "\\x41{2}+", .text = "AAAAA", .matches = "AAAA|"},
    {.pattern = "a{1,2}?", .text = "aa", .matches = "a|a|"},
    {.pattern = "\\p{Han}+", .text = "中文。「字」", .matches = "中文|字|"},
    {.pattern = "[^\\p{Han}]+", .text = "中文。a字", .matches = "。a|"},
    {.pattern = "\\P{Han}+", .text = "中。a字", .matches = "。a|"},
    {.pattern = "\\p{^Han}+", .text = "中。a字", .matches = "。a|"},
    {.pattern = "\\p{Lu}+", .text = "aBCd", .matches = "BC|"},
    {.pattern = "\\w+", .text = "a²Ⅷⓐ_ ③x", .matches = "a²Ⅷⓐ_|x|"},
    {.pattern = "[\\w]+", .text = "a²Ⅷ", .matches = "a|Ⅷ|"},
    {.pattern = "\\W+", .text = "a²-③b", .matches = "-③|"},
    {.pattern = "(?m:a.b)", .text = "a\nb", .matches = "a\nb|"},
    {.pattern = "a.b", .text = "a\nb", .matches = ""},
    {.pattern = "(?mi)A.b|(c)", .text = "a\nbC", .matches = "a\nb|C|"},
    {.pattern = "(?x)(?i)a b # c", .text = "AB aB b", .matches = "AB|aB|"},
    {.pattern = "x(?i)b|c", .text = "xB B xC C", .matches = "xB|xC|"},
    {.pattern = "(x(?i)b(?m)|c.)d|(?-i)E", .text = "xBd xBC\nd Cd e E", .matches = "xBd|xBC\nd|E|"},
    {.pattern = "(?i)a(?-i)b{1,2}+|c", .text = "Abbb aB AC", .matches = "Abbb|"},
    {.pattern = "(?i:a)[\\p{Lu}]+|(?-i:[\\p{Ll}]+)", .text = "ABc", .matches = "AB|c|"},
    {.pattern = "(?i)(?-i)[\\p{Lu}]+", .text = "aBC", .matches = "BC|"},
    {.pattern = "(?i)x(?-i:[\\p{Lu}]+)\\p{Ll}", .text = "XBCd", .matches = "XBCd|"},
    {.pattern = "(?i)x\\p{Lu}{1,2}+|\\P{^Lt}",
     .text = "xAb XABCd\u01c5",
     .matches = "xA|XABC|\u01c5|"},
    {.pattern = "(?i)[\\p{L}]+", .text = "k\u0345\u03b9 a1", .matches = "k\u0345\u03b9|a|"},
    {.pattern = "(?i)[^\\p{L}]+", .text = "k\u0345\u03b9 1a", .matches = " 1|"},
    {.pattern = "(?i)[\\P{L}]+", .text = "k\u0345\u03b9 1a", .matches = "\u0345\u03b9 1|"},
    {.pattern = "(?i)[\\p{Mn}-]+", .text = "k\u0345\u03b9-\u03b1z", .matches = "\u0345\u03b9-|"},
    {.pattern = "[\\p{L}]+", .text = "k\u0345\u03b9 a1", .matches = "k|\u03b9|a|"},
};

/* Patterns that are refused, and what of the text then says why. */
static const struct {
    const char *pattern, *why;
} refused_patterns[] = {
    {.pattern = "\\pL", .why = "\"\\p\" in it at byte 0 is nothing that trireme has"},
    {.pattern = "[a\\PL]+", .why = "\"\\P\" in it at byte 2 is nothing that trireme has"},
    {.pattern = "a\\p", .why = "\"\\p\" in it at byte 1 is nothing that trireme has"},
    {.pattern = "(?i)[\\p{Lu}]+",
     .why = "\"\\p{Lu}\" within a set that ignores case, in it at byte 5"},
    {.pattern = "(?i:[a\\P{^l_t}]+)", .why = "\"\\P{^l_t}\" within a set that ignores case"},
    {.pattern = "a(?mi)(b(?-i)c)[^\\p{Greek}]", .why = "\"\\p{Greek}\" within a set"},
    {.pattern = "\\p{L", .why = "\"\\p\" in it at byte 0 is nothing that trireme has"},
};

static void test_refused_patterns(void **state)
{
    for (size_t p = 0; p < sizeof refused_patterns / sizeof refused_patterns[0]; p++) {
        struct error err = {0};
        struct tokenizer_regex *regex;
        int rc = tokenizer_regex_create(&regex, refused_patterns[p].pattern, &err);
        if (!rc || !strstr(err.text, refused_patterns[p].why))
            fail_msg("%s: wanted \"%s\", got \"%s\"", refused_patterns[p].pattern,
                     refused_patterns[p].why, err.text);
    }
}

static void test_patterns(void **state)
{
    struct error err = {0};
    struct tokenizer_match *match;
    assert_int_equal(tokenizer_match_create(&match, &err), 0);
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        const char *text = patterns[p].text;
        size_t bytes = strlen(text), start, end, at = 0;
        char found[256] = "";
        struct tokenizer_regex *regex;
        if (tokenizer_regex_create(&regex, patterns[p].pattern, &err))
            fail_msg("%s: %s", patterns[p].pattern, err.text);
        while (at < bytes &&
               tokenizer_regex_find(regex, match, text, bytes, at, &start, &end, &err) > 0) {
            assert_true(end > start);
            text_append(found, sizeof found, "%.*s|", (int)(end - start), text + start);
            at = end;
        }
        if (strcmp(found, patterns[p].matches) != 0)
            fail_msg("%s in \"%s\" matches %s, wanted %s", patterns[p].pattern, text, found,
                     patterns[p].matches);
        tokenizer_regex_destroy(regex);
    }
    tokenizer_match_destroy(match);
    struct tokenizer_regex *regex;
    char deep[301];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(tokenizer_regex_create(&regex, deep, &err), -1);
    assert_non_null(strstr(err.text, "more than 250 groups"));
}

static void test_alphabet(void **state)
{
    for (uint32_t byte = 0; byte < 256; byte++)
        assert_int_equal(tokenizer_alphabet_byte(tokenizer_alphabet_code(byte)), byte);
    assert_int_equal(tokenizer_alphabet_code(' '), 0x120);
    assert_int_equal(tokenizer_alphabet_code(0xad), 0x143);
    assert_int_equal(tokenizer_alphabet_byte(0x144), -1);
}

/* Hostile files */

#define BYTES         "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
#define BYTES_DECODED BYTES "\"decoder\":{\"type\":\"ByteLevel\"},"
#define MODEL(vocab, merges) \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"

static char *write_file(const char *text)
{
    char *path = array_format("%s/tokenizer.json", dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void assert_refused(const char *text, const char *why)
{
    struct tokenizer *tokenizer;
    struct error err = {0};
    char *path = write_file(text);
    assert_int_equal(tokenizer_open(&tokenizer, path, &err), -1);
    assert_null(tokenizer);
    if (!strstr(err.text, why) || !strstr(err.text, path))
        fail_msg("%.300s: wanted \"%s\", got \"%s\"", text, why, err.text);
    free(path);
}

static void test_refused(void **state)
{
    assert_refused("", "");
    assert_refused("[]", "model");
    assert_refused("{\"model\":3}", "model");
    assert_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "\"Unigram\"");
    assert_refused("{" MODEL("", "") "}", "vocab");
    assert_refused("{" MODEL("\"a\":-1", "") "}", "\"a\"");
    assert_refused("{" MODEL("\"a\":1e3", "") "}", "\"a\"");
    assert_refused("{" MODEL("\"a\":99999999999", "") "}", "\"a\"");
    assert_refused("{" MODEL("\"a\":16777216", "") "}", "\"a\"");
    assert_refused("{" MODEL("\"a\":0,\"b\":0", "") "}", "one id");
    assert_refused("{" MODEL("\"a\":0,\"a\":1", "") "}", "a");
    assert_refused("{" MODEL("\"a\":0", "\"a b\"") "}", "not in the vocabulary");
    assert_refused("{" MODEL("\"a\":0,\"b\":1", "\"a b\"") "}", "\"ab\"");
    assert_refused("{" MODEL("\"a\":0", "\"a\"") "}", "merge 0");
    assert_refused("{" MODEL("\"a\":0", "\"a a a\"") "}", "merge 0");
    assert_refused("{" MODEL("\"a\":0", "[\"a\"]") "}", "merge 0");
    assert_refused("{" MODEL("\"a\":0", "7") "}", "merge 0");
    assert_refused("{\"normalizer\":{\"type\":\"Nmt\"}," MODEL("\"a\":0", "") "}", "\"Nmt\"");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL("\"a\":0", "") "}",
                   "\"UnicodeScripts\"");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
                   "\"behavior\":\"Isolated\"}," MODEL("\"a\":0", "") "}",
                   "pattern");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},"
                   "\"behavior\":\"Isolated\"}," MODEL("\"a\":0", "") "}",
                   "sets within a set");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},"
                   "\"behavior\":\"Isolated\"}," MODEL("\"a\":0", "") "}",
                   "pattern");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},"
                   "\"behavior\":\"Other\"}," MODEL("\"a\":0", "") "}",
                   "\"Other\"");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":1}," MODEL(
                       "\"a\":0", "") "}",
                   "individual_digits");
    assert_refused("{\"decoder\":{\"type\":\"CTC\"}," MODEL("\"a\":0", "") "}", "\"CTC\"");
    assert_refused("{\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"x\",9],"
                   "\"cls\":[\"a\",0]}," MODEL("\"a\":0", "") "}",
                   "id 9");
    assert_refused("{\"added_tokens\":[{\"id\":0,\"content\":\"b\"}]," MODEL("\"a\":0", "") "}",
                   "the id of");
    assert_refused("{\"added_tokens\":[{\"id\":4,\"content\":\"a\"}]," MODEL("\"a\":0", "") "}",
                   "has id 4, and 0");
    assert_refused(
        "{\"added_tokens\":[{\"id\":4000000000,\"content\":\"b\"}]," MODEL("\"a\":0", "") "}",
        "has no id");
    assert_refused(
        "{" BYTES "\"model\":{\"type\":\"BPE\",\"dropout\":0.5,\"vocab\":{\"a\":0},\"merges\":[]}}",
        "random");
    assert_refused("{" BYTES "\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\","
                   "\"vocab\":{\"a\":0},\"merges\":[]}}",
                   "</w>");
    assert_refused(
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"a\":0}}}",
        "[UNK]");
}

static void test_deep(void **state)
{
    enum { DEEP = 100000 };
    static const char open[] = "{\"type\":\"Sequence\",\"normalizers\":[";
    char *text = array_make(DEEP, sizeof open);
    size_t at = (size_t)sprintf(text, "{\"normalizer\":");
    for (int i = 0; i < DEEP - 10; i++)
        at += (size_t)sprintf(text + at, "%s", open);
    assert_refused(text, "");
    memset(text, '[', DEEP);
    text[DEEP] = 0;
    assert_refused(text, "");
    free(text);
}

/* A vocabulary without some bytes: what is not known is left out, and nothing breaks. */
static void test_few_bytes(void **state)
{
    struct tokenizer *tokenizer;
    struct error err = {0};
    uint32_t *ids;
    int64_t count;
    char *path = write_file("{" BYTES MODEL("\"a\":0,\"b\":1,\"ab\":7", "\"a b\"") "}");
    assert_int_equal(tokenizer_open(&tokenizer, dir, &err), 0);
    assert_string_equal(tokenizer->path, path);
    assert_int_equal(tokenizer->vocab, 8);
    assert_int_equal(tokenizer->end_of_text, -1);
    assert_int_equal(tokenizer_encode(tokenizer, "abxba", 5, 0, &ids, &count, &err), 0);
    assert_int_equal(count, 3);
    assert_int_equal(ids[0], 7);
    free(ids);
    /* A word of more symbols than a row of ranks has, by the heap. */
    char *text = array_make(2, 100001);
    for (int i = 0; i < 100000; i++)
        memcpy(text + 2 * i, i % 3 ? "ab" : "aa", 2);
    assert_int_equal(tokenizer_encode(tokenizer, text, 200000, 0, &ids, &count, &err), 0);
    assert_int_equal(count, 133334);
    free(ids);
    free(text);
    free(path);
    tokenizer_close(tokenizer);
}

/* The first piece of a text gets its space, whatever cut it off. */
/* Line ends that take the white space around them are one token, however many there are. */
static void test_added_space(void **state)
{
    static const uint32_t wanted[] = {1, 0, 1};
    struct tokenizer *tokenizer;
    struct error err = {0};
    uint32_t *ids;
    int64_t count;
    char *path = write_file("{\"added_tokens\":[{\"id\":1,\"content\":\"\\n\",\"lstrip\":true,"
                            "\"rstrip\":true}]," MODEL("\"a\":0", "") "}");
    assert_int_equal(tokenizer_open(&tokenizer, path, &err), 0);
    assert_int_equal(tokenizer_encode(tokenizer, "\n \na\n\n\n", 7, 0, &ids, &count, &err), 0);
    assert_int_equal(count, 3);
    assert_memory_equal(ids, wanted, sizeof wanted);
    free(ids);
    tokenizer_close(tokenizer);
    free(path);
}

static void test_first_piece(void **state)
{
    static const uint32_t first[] = {3, 2, 1}, later[] = {1, 2, 1};
    struct tokenizer *tokenizer;
    struct error err = {0};
    uint32_t *ids;
    int64_t count;
    char *path = write_file(
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
        "{\"type\":\"Metaspace\",\"prepend_scheme\":\"first\"}]}," MODEL(
            "\"\xE2\x96\x81\":0,\"a\":1,\"1\":2,\"\xE2\x96\x81"
            "a\":3",
            "\"\xE2\x96\x81 a\"") "}");
    assert_int_equal(tokenizer_open(&tokenizer, path, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            tokenizer_encode(tokenizer, "a1a", 3, i ? TOKENIZER_CONTINUED : 0, &ids, &count, &err),
            0);
        assert_int_equal(count, 3);
        assert_memory_equal(ids, i ? later : first, sizeof first);
        free(ids);
    }
    tokenizer_close(tokenizer);
    free(path);
}

/* Words that differ in their middle alone, many more than a cache of words has places for. */
static void test_cache(void **state)
{
    enum { WORDS = 200000, WORD_BYTES = 22 };
    const uint64_t key = philox_key(4, "cache");
    struct tokenizer *tokenizer;
    struct error err = {0};
    char *text = array_make(WORDS, WORD_BYTES + 1), vocab[600] = "";
    uint32_t *ids;
    int64_t count;
    size_t bytes = 0, back;
    for (int i = 0; i < 26; i++)
        bytes += (size_t)sprintf(vocab + bytes, "\"%c\":%d,", 'a' + i, i);
    char *file = array_format("{" BYTES_DECODED MODEL("%s\"\xC4\xA0\":26,\"aa\":27,\"aaaa\":28,"
                                                      "\"aaaaaaaa\":29",
                                                      "\"a a\",\"aa aa\",\"aaaa aaaa\"") "}",
                              vocab);
    char *path = write_file(file);
    bytes = 0;
    for (int i = 0; i < WORDS; i++) {
        bytes += (size_t)sprintf(text + bytes, " aaaaaaaa");
        for (int k = 0; k < 5; k++)
            text[bytes++] = (char)('b' + (philox_u64(key, (uint64_t)i) >> 8 * k) % 25);
        bytes += (size_t)sprintf(text + bytes, "aaaaaaaa");
    }
    assert_int_equal(tokenizer_open(&tokenizer, path, &err), 0);
    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, 0, &ids, &count, &err), 0);
    assert_int_equal(count, 8 * WORDS); /* few enough to be kept */
    char *decoded = tokenizer_decode(tokenizer, ids, count, 0, &back);
    assert_int_equal(back, bytes);
    assert_memory_equal(decoded, text, bytes);
    free(decoded);
    free(ids);
    free(text);
    free(file);
    free(path);
    tokenizer_close(tokenizer);
}

/* generation_config.json, what of an error says why it is refused (NULL: it is taken), and the id
 * of no token in it. */
static const struct {
    const char *text, *why;
    int64_t unknown;
} stops[] = {
    {.text = "{}", .unknown = -1},
    {.text = "{\"eos_token_id\": null}", .unknown = -1},
    {.text = "{\"eos_token_id\": 1}", .unknown = -1},
    {.text = "{\"eos_token_id\": [0, 1]}", .unknown = -1},
    {.text = "{\"eos_token_id\": 2}", .unknown = 2},
    {.text = "{\"eos_token_id\": [99999, 1]}", .unknown = 99999},
    {.text = "{\"eos_token_id\": [-1, 1]}", .unknown = -1},
    {.text = "{\"eos_token_id\": 1.0}",
     .why = "eos_token_id has a real number, which is no token's id"},
    {.text = "{\"eos_token_id\": \"0\"}", .why = "has \"0\", which"},
    {.text = "{\"eos_token_id\": true}", .why = "has true, which"},
    {.text = "{\"eos_token_id\": [1, \"x\"]}", .why = "has \"x\", which"},
    {.text = "{\"eos_token_id\": [1, null]}", .why = "has null, which"},
    {.text = "{\"eos_token_id\": {}}", .why = "has an object, which"},
    {.text = "[1]", .why = "is an array; an object is wanted"},
};

static void test_stops(void **state)
{
    char *path = write_file("{" BYTES_DECODED MODEL("\"a\":0,\"b\":1", "") "}");
    char *beside = array_format("%s/generation_config.json", dir);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        struct tokenizer *tokenizer;
        struct error err = {0};
        FILE *file = fopen(beside, "wb");
        assert_non_null(file);
        fputs(stops[i].text, file);
        fclose(file);
        int rc = tokenizer_open(&tokenizer, path, &err);
        if (stops[i].why ? !rc || !strstr(err.text, stops[i].why) || !strstr(err.text, beside) : rc)
            fail_msg("%s: wanted \"%s\", got \"%s\"", stops[i].text,
                     stops[i].why ? stops[i].why : "", err.text);
        if (!rc)
            assert_int_equal(tokenizer->unknown_id[TOKENIZER_EOS], stops[i].unknown);
        if (!rc && i > 1 && stops[i].unknown != 2)
            assert_true(tokenizer_is_stop(tokenizer, 1));
        tokenizer_close(tokenizer);
    }
    unlink(beside);
    free(beside);
    free(path);
}

/* Ids of generation_config.json for bos and pad: those of no token are noted, and not taken. */
static void test_unknown_ids(void **state)
{
    static const struct {
        const char *text;
        int64_t bos, pad, unknown_bos, unknown_pad;
    } rows[] = {
        {.text = "{}", .bos = -1, .pad = -1, .unknown_bos = -1, .unknown_pad = -1},
        {.text = "{\"bos_token_id\": 1, \"pad_token_id\": 0}",
         .bos = 1,
         .pad = 0,
         .unknown_bos = -1,
         .unknown_pad = -1},
        {.text = "{\"bos_token_id\": 2, \"pad_token_id\": 99999}",
         .bos = -1,
         .pad = -1,
         .unknown_bos = 2,
         .unknown_pad = 99999},
        {.text = "{\"bos_token_id\": null, \"pad_token_id\": -1}",
         .bos = -1,
         .pad = -1,
         .unknown_bos = -1,
         .unknown_pad = -1},
    };
    char *path = write_file("{" BYTES_DECODED MODEL("\"a\":0,\"b\":1", "") "}");
    char *beside = array_format("%s/generation_config.json", dir);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tokenizer *tokenizer;
        FILE *file = fopen(beside, "wb");
        assert_non_null(file);
        fputs(rows[i].text, file);
        fclose(file);
        assert_int_equal(tokenizer_open(&tokenizer, path, NULL), 0);
        assert_int_equal(tokenizer->role[TOKENIZER_BOS], rows[i].bos);
        assert_int_equal(tokenizer->role[TOKENIZER_PAD], rows[i].pad);
        assert_int_equal(tokenizer->unknown_id[TOKENIZER_BOS], rows[i].unknown_bos);
        assert_int_equal(tokenizer->unknown_id[TOKENIZER_PAD], rows[i].unknown_pad);
        assert_int_equal(tokenizer->unknown_id[TOKENIZER_UNK], -1);
        tokenizer_close(tokenizer);
    }
    unlink(beside);
    free(beside);
    free(path);
}

static void test_missing(void **state)
{
    struct tokenizer *tokenizer;
    struct error err = {0};
    assert_int_equal(tokenizer_open(&tokenizer, "no/such/file.json", &err), -1);
    assert_non_null(strstr(err.text, "no/such/file.json"));
    assert_int_equal(tokenizer_open(&tokenizer, "bites", &err), -1);
    assert_non_null(strstr(err.text, "\"bites\""));
}

/* Training: the same tokenizer in whatever pieces the text comes, which knows its words. */
static void test_train(void **state)
{
    struct error err = {0};
    struct tokenizer *tokenizer[2];
    char text[20000] = "", *path = array_format("%s/trained.json", dir);
    size_t bytes = 0;
    for (int i = 0; i < 300; i++)
        bytes += (size_t)sprintf(text + bytes, "the cat %d sat on that mat's edge\n", i % 17);
    for (int pieces = 0; pieces < 2; pieces++) {
        struct tokenizer_trainer *trainer;
        int64_t made;
        tokenizer_trainer_create(&trainer);
        for (size_t at = 0, end; at < bytes; at = end) {
            end = at +
                  tokenizer_trainer_cut(trainer, text + at, 1000 < bytes - at ? 1000 : bytes - at);
            end = !pieces || bytes - at < 1000 ? bytes : end;
            assert_int_equal(tokenizer_trainer_add(trainer, text + at, end - at, &err), 0);
        }
        assert_int_equal(tokenizer_trainer_write(trainer, 300, path, &made, &err), 0);
        assert_true(made > 280 && made <= 300);
        assert_int_equal(tokenizer_open(&tokenizer[pieces], path, &err), 0);
        assert_int_equal(tokenizer[pieces]->vocab, made);
        tokenizer_trainer_destroy(trainer);
    }
    assert_string_equal(tokenizer[0]->name, tokenizer[1]->name);
    assert_true(tokenizer_id(tokenizer[0], "\xC4\xA0the") < 0); /* "the" begins lines here */
    assert_true(tokenizer_id(tokenizer[0], "the") > 256);
    assert_true(tokenizer_id(tokenizer[0], "\xC4\xA0"
                                           "cat") > 256);
    assert_int_equal(tokenizer[0]->end_of_text, 0);
    tokenizer_close(tokenizer[0]);
    tokenizer_close(tokenizer[1]);
    free(path);
}

static int make_dir(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/trireme-tokenizer.%d", (int)getpid());
    return mkdir(dir, 0777);
}

static int remove_dir(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scans),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_refused_patterns),
        cmocka_unit_test(test_alphabet),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_few_bytes),
        cmocka_unit_test(test_first_piece),
        cmocka_unit_test(test_added_space),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_unknown_ids),
        cmocka_unit_test(test_train),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
