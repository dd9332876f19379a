/* test_sources.c - the token files that data.train and data.valid name: as a text, and as lists of
 * a YAML file, which become that text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "config/config.h"

static void sources_are_read(void **state)
{
    static const struct {
        const char *text, *error;
        int count;
        double weight;
        int64_t samples;
        const char *path;
    } cases[] = {
        {"", NULL, 0, 0, 0, ""},
        {"a.h5", NULL, 1, 0, 0, "a.h5"},
        {"a.h5:0.5", NULL, 1, 0.5, 0, "a.h5"},
        {"a:b.h5,c.h5", NULL, 2, 0, 0, "a:b.h5"},
        {"a.h5:samples=7:weight=2,b:3", NULL, 2, 2, 7, "a.h5"},
        {"a.h5:weight=x", "\"x\" is no weight"},
        {"a.h5:-1", "\"-1\" is no weight"},
        {"a.h5:samples=0", "samples=0"},
        {"a.h5:samples=99999999999999999999", "samples="},
        {"a.h5:1e100,b.h5:1e-300", NULL, 2, 1e100, 0, "a.h5"},
        {"a.h5:1e101", "\"1e101\" is no weight"},
        {"a.h5:inf", NULL, 1, 0, 0, "a.h5:inf"},
        {"a.h5:weight=inf", "\"inf\" is no weight"},
        {"a.h5:weight=nan", "\"nan\" is no weight"},
        {"a.h5:1:2", "a.h5:1: a weight is given twice"},
        {"a.h5:weight=1:samples=5:2", "a weight is given twice"},
        {"a.h5:samples=5:samples=7", "samples is given twice"},
        {"a.h5:1,b.h5", "1 of 2 files have a weight"},
        {"a.h5,,b.h5", "an empty name"},
        {"a.h5,", "an empty name"},
        {":1", "an empty name"},
    };
    static struct config_source source[CONFIG_SOURCES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        int count = config_sources(cases[i].text, source, &err);
        if (cases[i].error) {
            assert_int_equal(count, -1);
            assert_non_null(strstr(err.text, cases[i].error));
            continue;
        }
        assert_int_equal(count, cases[i].count);
        if (!count)
            continue;
        assert_string_equal(source[0].path, cases[i].path);
        assert_true(source[0].weight == cases[i].weight);
        assert_int_equal(source[0].samples, cases[i].samples);
    }
}

/* Lists of files, as texts and as maps, and what is wrong with such. */
static void files_are_listed(void **state)
{
    static const struct {
        const char *yaml, *train, *error;
    } cases[] = {
        {"data:\n  train: [a.h5, b.h5]\n", "a.h5,b.h5"},
        {"data:\n  train:\n    - {path: a.h5, weight: 0.7, samples: 10}\n"
         "    - weight: 0.3\n      path: b.h5\n",
         "a.h5:weight=0.7:samples=10,b.h5:weight=0.3"},
        {"data:\n  train: [{path: a.h5}]\n", "a.h5"},
        {"data:\n  train: []\n", ""},
        {"data:\n  train: [{path: a.h5, wait: 1}]\n", NULL, "unknown key \"wait\" of an item"},
        {"data:\n  train: [{weight: 1}]\n", NULL, "an item without a path"},
        {"data:\n  train: [{path: a.h5, path: b.h5}]\n", NULL, "given twice"},
        {"data:\n  train: [{path: {a: b}}]\n", NULL, "a map in a list"},
        {"data:\n  train: [[a.h5]]\n", NULL, "lists are not understood"},
        {"data:\n  train: [a.h5, null]\n", NULL, "an item of the list is empty"},
        {"data:\n  train: [~]\n", NULL, "an item of the list is empty"},
        {"data:\n  train: [a.h5, ]\n", "a.h5"},
        {"data:\n  train: ['null']\n", "null"},
        {"data:\n  train: [{path: }]\n", NULL, "path: \"\" is empty"},
        {"data:\n  train: [{path: ~}]\n", NULL, "path: \"\" is empty"},
        {"data:\n  train: [!raw a.h5]\n", NULL, "tags such as !raw are not understood"},
        {"data:\n  train: [{path: !raw a.h5}]\n", NULL, "tags such as !raw are not understood"},
        {"data:\n  train: [!file {path: a.h5}]\n", NULL, "tags such as !file are not understood"},
        {"data:\n  train: !files [a.h5]\n", NULL, "tags such as !files are not understood"},
        {"data:\n  train: [{path: [a.h5]}]\n", NULL, "lists are not understood"},
        {"data:\n  train: [{path: \"a,b.h5\"}]\n", NULL, "\"a,b.h5\" has a comma"},
        {"data:\n  valid: [{path: a.h5, weight: 1}]\n", NULL, "unknown key \"weight\""},
        {"parallel:\n  stages: [{path: 3}]\n", NULL, "a map in a list"},
        {"data:\n  train: [{path: a.h5, weight: 0}]\n", NULL, "is no weight"},
        {"data:\n  train: [{path: \"a.h5:2\", weight: 1}]\n", NULL, "a weight is given twice"},
        {"data:\n  train: [{path: a.h5, weight: 1}, b.h5]\n", NULL, "1 of 2 files"},
    };
    const char *override = "model.preset=llama-tiny";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c;
        struct error err = {0};
        int rc = config_load_text(&c, "text", cases[i].yaml, &override, 1, &err);
        assert_int_equal(rc, cases[i].error ? -1 : 0);
        if (!rc)
            assert_string_equal(c.data.train, cases[i].train);
        else if (!strstr(err.text, cases[i].error))
            fail_msg("wanted \"%s\", got \"%s\"", cases[i].error, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_are_read),
        cmocka_unit_test(files_are_listed),
    };
    return cmocka_run_group_tests_name("sources", tests, NULL, NULL);
}
