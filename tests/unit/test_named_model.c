/* test_named_model.c - a file that describes one model, and an argument that names another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "config/schema.h"

enum { TEXT = 1 << 16 };

/* Load the text of a file and arguments; it must succeed. */
#define LOAD(config, text, ...) load(config, text, (const char *const[]){__VA_ARGS__, NULL})

static void load(struct config *config, const char *text, const char *const *arguments)
{
    struct error err = {0};
    int count = 0;
    while (arguments[count])
        count++;
    if (config_load_text(config, "f.yaml", text, arguments, count, &err))
        fail_msg("%s", err.text);
}

static void must_refuse(const char *text, const char *argument, const char *wanted)
{
    struct config config;
    struct error err = {0};
    assert_int_equal(config_load_text(&config, "f.yaml", text, &argument, 1, &err), -1);
    if (!strstr(err.text, wanted))
        fail_msg("\"%s\" is not in \"%s\"", wanted, err.text);
}

/* Every key of the configuration, as trireme writes it. */
static const char *whole(const struct config *config, char text[TEXT])
{
    FILE *out = fmemopen(text, TEXT, "w");
    config_print(out, config);
    fclose(out);
    return text;
}

/* Do both describe the same model?  Names aside. */
static void assert_same_model(const struct config *a, const struct config *b)
{
    char of_a[CONFIG_TEXT], of_b[CONFIG_TEXT];
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        if (!strncmp(key->name, "model.", 6) && strcmp(key->name, "model.preset") != 0)
            assert_string_equal(key_text(a, key, of_a), key_text(b, key, of_b));
    }
}

static void an_argument_names_all_of_a_model(void **state)
{
    char by_argument[128], text[TEXT];
    for (int i = 0; i < config_preset_count; i++) {
        const char *other = config_presets[(i + 7) % config_preset_count].preset;
        struct config first, wanted, found;
        snprintf(by_argument, sizeof by_argument, "model.preset=%s", config_presets[i].preset);
        LOAD(&first, "", by_argument, "train.lr=0.5", "data.seq_len=64");
        whole(&first, text);
        snprintf(by_argument, sizeof by_argument, "model.preset=%s", other);
        LOAD(&wanted, "", by_argument, "data.seq_len=64");
        LOAD(&found, text, by_argument);
        assert_string_equal(found.model.preset, other);
        assert_same_model(&wanted, &found);
        LOAD(&found, text, by_argument, "model.norm_eps=0.125");
        assert_true(found.model.norm_eps == 0.125 && found.train.lr == 0.5);
    }
}

static void what_is_the_runs_stays(void **state)
{
    char text[TEXT];
    struct config c;
    LOAD(&c, "", "model.preset=gpt2-medium", "model.residual_dropout=0.25");
    whole(&c, text);
    LOAD(&c, text, "model.preset=gpt2-xl");
    assert_true(c.model.layers == 48 && c.model.dropout.residual == 0.25f);
}

static void what_agrees_with_neither_is_refused(void **state)
{
    must_refuse("model.preset: llama-tiny\nmodel.norm_eps: 0.5\n", "model.preset=llama-10m",
                "f.yaml:2: model.norm_eps is 0.5 here, and 1e-05 in what the argument "
                "model.preset=llama-10m names; leave the line out, or say it as an argument too: "
                "model.norm_eps=0.5");
    /* written in full, of a model that has sizes and no name */
    must_refuse("model.preset: \"\"\nmodel.rope_theta: 7\n", "model.preset=llama-10m",
                "f.yaml:2: model.rope_theta is 7 here");
}

/* A file that names no model changes the one that is named. */
static void a_file_without_a_model_changes_it(void **state)
{
    struct config c;
    LOAD(&c, "model.norm_eps: 0.5\n", "model.preset=llama-10m");
    assert_true(c.model.norm_eps == 0.5 && c.model.layers == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_argument_names_all_of_a_model),
        cmocka_unit_test(what_is_the_runs_stays),
        cmocka_unit_test(what_agrees_with_neither_is_refused),
        cmocka_unit_test(a_file_without_a_model_changes_it),
    };
    return cmocka_run_group_tests_name("named_model", tests, NULL, NULL);
}
