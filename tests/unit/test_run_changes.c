/* test_run_changes.c - data under the same name are compared by contents, as far as both are known
 * in the same way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "train/run_changes.h"
#include "train/run_checkpoint.h"
#include "train/run_length.h"

static const char *const named[] = {"data.train=x.h5", "model.preset=llama-tiny"};
static const char *const renamed[] = {"data.train=y.h5", "model.preset=llama-tiny"};

static int changes(const char *saved_as, const char *contents, int same_name)
{
    struct config saved, asked;
    struct error err = {0};
    struct run_data before = {0}, now = {0};
    struct js *meta = js_object();
    char text[900];
    assert_int_equal(config_load(&saved, NULL, named, 2, &err), 0);
    assert_int_equal(config_load(&asked, NULL, same_name ? named : renamed, 2, &err), 0);
    snprintf(before.train, sizeof before.train, "%s", saved_as ? saved_as : "");
    snprintf(now.train, sizeof now.train, "%s", contents);
    if (saved_as)
        run_data_add(meta, &before);
    int count =
        run_changes_text(&saved, &asked, asked.train.global_batch, meta, &now, text, sizeof text);
    js_free(meta);
    assert_int_equal(count != 0, strstr(text, "data.train") != NULL);
    return count;
}

static void contents_of_one_kind_are_compared(void **state)
{
    static const struct {
        const char *saved_as, *contents; /* NULL: a checkpoint that knows nothing of its data */
        int same_name, changed;
    } rows[] = {
        {"00000000000000aa", "00000000000000aa", 1, 0},
        {"00000000000000aa", "00000000000000bb", 1, 1},
        {"00000000000000aa", "00000000000000aa", 0, 0},
        {"sample 00000000000000aa", "sample 00000000000000aa", 1, 0},
        {"sample 00000000000000aa", "sample 00000000000000bb", 1, 1},
        {"sample 00000000000000aa", "sample 00000000000000aa", 0, 0},
        /* sealed since, or its hash taken away: only the name is known of both */
        {"sample 00000000000000aa", "00000000000000bb", 1, 0},
        {"00000000000000aa", "sample 00000000000000bb", 1, 0},
        {"sample 00000000000000aa", "00000000000000bb", 0, 1},
        /* checkpoints of earlier versions knew no samples, or nothing */
        {"", "sample 00000000000000aa", 1, 0},
        {NULL, "sample 00000000000000aa", 1, 0},
        {NULL, "sample 00000000000000aa", 0, 1},
        {"sample 00000000000000aa", "", 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(changes(rows[i].saved_as, rows[i].contents, rows[i].same_name),
                         rows[i].changed);
}

/* Sequences a step are what counts, of all ranks; steps only where they were asked for. */
static void batches_are_compared_as_they_come_out(void **state)
{
    static const struct {
        const char *saved, *asked; /* key=value */
        int64_t batch;             /* of a step now; 4 data ranks saved */
        const char *text;
    } rows[] = {
        {"train.global_batch=8", "train.global_batch=8", 8, ""},
        {"train.global_batch=8", "train.global_batch=16", 16, "train.global_batch 8 -> 16"},
        {"train.split_batches=false", "train.split_batches=false", 32, ""},
        {"train.split_batches=false", "train.split_batches=false", 16,
         "train.global_batch 32 -> 16 (of all ranks together)"},
        {"train.split_batches=false", "train.global_batch=32", 32, ""},
        {"train.epochs=2", "train.epochs=2", 8, ""},
        {"generate.tokens=9", "generate.temperature=0", 8, ""},
        {"train.attention_bytes=9", "train.attention_bytes=0", 8, ""},
        {"comm.share_gpu=true", "comm.share_gpu=false", 8, ""},
        {"comm.shared_memory=false", "comm.shared_memory=true", 8, ""},
        {"train.epochs=2", "train.epochs=3", 8, "train.epochs 2 -> 3"},
        {"train.steps=20", "train.steps=30", 8, "train.steps 20 -> 30"},
        {"train.steps=20", "train.epochs=3", 8, "train.epochs 0 -> 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *before[] = {"model.preset=llama-tiny", rows[i].saved};
        const char *now[] = {"model.preset=llama-tiny", rows[i].asked};
        struct config saved, asked;
        struct error err = {0};
        struct run_data data = {0};
        struct js *meta = js_object(), *mesh = js_object();
        char text[900];
        assert_int_equal(config_load(&saved, NULL, before, 2, &err), 0);
        assert_int_equal(config_load(&asked, NULL, now, 2, &err), 0);
        if (asked.train.epochs > 0)
            asked.train.steps = 77;
        js_add_int(mesh, "replicate", 2);
        js_add_int(mesh, "shard", 2);
        js_add(meta, "mesh", mesh);
        run_changes_text(&saved, &asked, rows[i].batch, meta, &data, text, sizeof text);
        assert_string_equal(text, rows[i].text);
        js_free(meta);
    }
}

/* A key that is misspelt, or has another name now, would be compared and warned of. */
static void what_is_without_effect_are_keys(void **state)
{
    const char *name, *key;
    for (int i = 0; (name = run_changes_without_effect(i)); i++) {
        size_t length = strlen(name);
        int is_beginning = strchr("._", name[length - 1]) != NULL, found = 0;
        for (int k = 0; (key = config_key_name(k)); k++)
            found |= is_beginning ? !strncmp(key, name, length) : !strcmp(key, name);
        if (!found)
            fail_msg("%s is no %s", name, is_beginning ? "beginning of a key" : "key");
    }
}

/* The stable phase goes on with other steps; where a decay is left, or begun too late, that is
 * reported. */
static void jumps_of_the_learning_rate_are_reported(void **state)
{
    static const struct {
        const char *saved, *asked; /* key=value, four at most */
        int64_t step, skipped, batch;
        const char *text; /* NULL: no jump */
    } rows[] = {
        {"train.steps=100", "train.steps=200", 90, 0, 8, NULL},
        {"train.steps=100", "train.steps=200", 91, 0, 8,
         "jumps from 0.9 at step 91 to 1 at step 92: the checkpoint was saved in the decay, which "
         "began after step 90 and is another one now; a checkpoint of step 90 or before"},
        {"train.steps=100", "train.steps=200", 100, 0, 8, "from 0 at step 100 to 1 at step 101"},
        {"train.steps=100", "train.steps=100", 95, 0, 8, NULL},
        {"train.steps=100", "train.steps=96 train.decay_steps=6", 90, 0, 8, NULL},
        {"train.steps=100", "train.steps=96 train.decay_steps=10", 90, 0, 8,
         "from 1 at step 90 to 0.5 at step 91: the decay now begins after step 86, before the"},
        {"train.steps=100", "train.decay_steps=20", 95, 0, 8,
         "from 0.5 at step 95 to 0.2 at step 96: the checkpoint was saved in the decay, which "
         "began after step 90 and is another one now; a checkpoint of step 80 or before"},
        {"train.steps=100", "train.steps=95", 95, 0, 8, NULL}, /* nothing is left to train */
        {"train.steps=100", "train.schedule=cosine train.steps=200", 90, 0, 8, NULL},
        {"train.steps=100", "train.schedule=constant", 98, 0, 8, "from 0.2 at step 98 to 1 at"},
        {"train.schedule=constant", "train.schedule=wsd", 80, 0, 8, NULL},
        {"train.schedule=constant", "train.steps=100", 98, 0, 8, "after step 90, before the"},
        {"train.schedule=linear", "train.schedule=linear train.steps=102", 98, 0, 8, NULL},
        {"train.schedule=linear", "train.schedule=linear train.steps=200", 98, 0, 8,
         "from 0.02 at step 98 to 0.505 at step 99: train.schedule=linear goes from"},
        {"train.schedule=cosine", "train.schedule=cosine train.steps=200", 100, 0, 8,
         "from 0 at step 100 to 0.492"},
        {"train.schedule=cosine train.steps=5", "train.schedule=cosine train.steps=6", 5, 0, 8,
         "the learning rate of step 6 is 0, as that of step 5 was: it changes no weight"},
        {"train.schedule=cosine train.steps=5 train.min_lr=0.1",
         "train.schedule=cosine train.steps=6 train.min_lr=0.1", 5, 0, 8, NULL},
        {"train.steps=5 train.decay_steps=2", "train.steps=6 train.decay_steps=2", 5, 0, 8,
         "the learning rate of step 6 is 0, as that of step 5 was: it changes no weight"},
        {"train.schedule=cosine", "train.schedule=cosine train.lr=2 train.steps=200", 100, 0, 8,
         NULL}, /* a change that is listed */
        {"train.schedule=constant", "train.schedule=constant train.steps=200", 98, 0, 8, NULL},
        {"train.schedule=cosine", "train.schedule=cosine", 14, 14, 8, NULL}, /* none counted yet */
        {"train.schedule=constant", "train.schedule=constant", 14, 14, 8, NULL},
        {"train.schedule=cosine train.epochs=2", "train.schedule=cosine train.epochs=3", 90, 0, 8,
         "from 0.0244717 at step 90 to 0.335567 at step 91"},
        {"train.schedule=cosine train.epochs=2 train.warmup_steps=80",
         "train.schedule=cosine train.epochs=2 train.warmup_steps=80", 90, 0, 32, NULL},
        {"train.steps=100", "train.steps=200", 95, 5, 8, NULL}, /* in fp16, 5 did not count */
        {"train.steps=100", "train.steps=200", 96, 5, 8, "from 0.9 at step 96 to 1 at step 97"},
        {"train.epochs=2", "train.epochs=3", 90, 0, 8, NULL},
        {"train.epochs=2", "train.epochs=3", 95, 0, 8, "from 0.5 at step 95 to 1 at step 96"},
        {"train.epochs=2", "train.epochs=2", 91, 0, 16, NULL},
        {"train.epochs=2", "train.epochs=2", 95, 0, 16, NULL},
        {"train.epochs=2 train.decay_steps=20", "train.epochs=2 train.decay_steps=20", 90, 0, 80,
         "from 0.5 at step 90 to 0 at step 91"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct config config[2];
        struct error err = {0};
        struct run_data data = {.sequences = 400};
        struct run_position at = {.step = rows[i].step, .samples = 8 * rows[i].step};
        struct js *meta = js_object();
        char text[900] = "";
        at.scaler.skipped = rows[i].skipped;
        for (int k = 0; k < 2; k++) {
            char given[160];
            const char *settings[8] = {"model.preset=llama-tiny", "train.lr=1",
                                       "train.schedule=wsd"};
            int count = 3;
            snprintf(given, sizeof given, "%s", k ? rows[i].asked : rows[i].saved);
            for (char *rest = given, *word; (word = strsep(&rest, " "));)
                settings[count++] = word;
            assert_int_equal(config_load(&config[k], NULL, settings, count, &err), 0);
        }
        at.warmup_samples = 8 * config[0].train.warmup_steps;
        assert_int_equal(run_length_set(&config[1].train, &at, data.sequences, rows[i].batch, &err),
                         0);
        int jumps = run_changes_decay(&config[0], &config[1], meta, &data, &at, text, sizeof text);
        if (jumps != (rows[i].text != NULL) || (jumps && !strstr(text, rows[i].text)))
            fail_msg("row %zu: %d %s", i, jumps, text);
        js_free(meta);
    }
}

/* Another model: the key is named, both its values, and models only where their names differ. */
static void another_model_is_refused_by_its_key(void **state)
{
    static const struct {
        const char *asked, *text;
    } rows[] = {
        {"model.layers=3",
         "it holds the model llama-tiny (2 layers, width 64, vocabulary 512), and "
         "llama-tiny (3 layers, width 64, vocabulary 512) is asked for: "
         "model.layers is 2 there and 3 here;"},
        {"lora.r=4", "it holds the model llama-tiny (2 layers, width 64, vocabulary 512), and "
                     "another one is asked for: lora.r is 0 there and 4 here;"},
        {"lora.target_modules=q_proj", "lora.target_modules is (none) there and q_proj here;"},
    };
    const char *before[] = {"model.preset=llama-tiny", "lora.r=4"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *now[] = {"model.preset=llama-tiny", rows[i].asked, "lora.r=4"};
        int adapters = !strncmp(rows[i].asked, "lora.target", 11);
        struct config saved, asked;
        struct error err = {0};
        assert_int_equal(config_load(&saved, NULL, before, 1 + adapters, &err), 0);
        assert_int_equal(config_load(&asked, NULL, now, 2 + adapters, &err), 0);
        assert_int_equal(run_changes_model(&saved, &asked, &err), -1);
        assert_non_null(strstr(err.text, rows[i].text));
    }
}

/* A file of `count` tokens, all 7 but the one at `other`; what it is known by without its hash. */
static uint64_t sample_of(int64_t count, int64_t other)
{
    char path[64];
    struct error err = {0};
    struct tokens_writer *writer;
    struct dataset_file file = {0};
    struct dataset train = {.file = &file, .files = 1}, none = {0};
    snprintf(path, sizeof path, "/tmp/trireme-changes-%ld.h5", (long)getpid());
    uint32_t *ids = calloc((size_t)count, sizeof *ids);
    for (int64_t i = 0; i < count; i++)
        ids[i] = i == other ? 8 : 7;
    assert_int_equal(tokens_create(&writer, path, "bytes", 257, "", &err), 0);
    assert_int_equal(tokens_append(writer, ids, count, &err), 0);
    assert_int_equal(tokens_finish(writer, &err), 0);
    assert_int_equal(tokens_open(&file.tokens, path, &err), 0);
    struct run_data whole = run_data_of(&train, &none);
    assert_int_equal(strlen(whole.train), 16);
    assert_string_equal(whole.valid, "");
    file.tokens.hash = 0;
    struct run_data data = run_data_of(&train, &none);
    uint64_t hash = tokens_sample_hash(&file.tokens);
    assert_int_not_equal(hash, 0);
    assert_memory_equal(data.train, "sample ", 7);
    assert_true(strtoull(data.train + 7, NULL, 16) == hash);
    tokens_close(&file.tokens);
    unlink(path);
    free(ids);
    return hash;
}

/* The chat template is said at any time before a token file ends, and goes by way of the data that
 * a run trains on into the checkpoint; none is none. */
static void chat_templates_are_kept(void **state)
{
    static const char *const names[] = {"", "qwen2.5", "mistral-v1-2023"};
    static const uint32_t ids[] = {1, 2, 3};
    char path[64];
    struct error err = {0};
    snprintf(path, sizeof path, "/tmp/trireme-chat-%ld.h5", (long)getpid());
    for (int i = 0; i < 3; i++) {
        struct tokens_writer *writer;
        struct dataset_file file = {0};
        struct dataset train = {.file = &file, .files = 1}, none = {0};
        assert_int_equal(tokens_create(&writer, path, "bytes", 257, "", &err), 0);
        assert_int_equal(tokens_append(writer, ids, 3, &err), 0);
        tokens_set_chat(writer, names[i]);
        assert_int_equal(tokens_finish(writer, &err), 0);
        assert_int_equal(tokens_open(&file.tokens, path, &err), 0);
        assert_int_equal(tokens_verify(&file.tokens, &err), 0);
        assert_string_equal(file.tokens.chat, names[i]);
        struct run_data data = run_data_of(&train, &none);
        struct js *meta = js_object();
        run_data_add(meta, &data);
        if (names[i][0])
            assert_string_equal(run_data_chat(meta), names[i]);
        else
            assert_null(run_data_chat(meta));
        js_free(meta);
        tokens_close(&file.tokens);
    }
    unlink(path);
    assert_null(run_data_chat(NULL));
}

/* All of a file of up to 64 runs is looked at, and of longer ones the length, both ends and the
 * middle. */
static void samples_are_spread(void **state)
{
    static const int64_t counts[] = {
        1, 2, 7, TOKENS_RUN - 1, TOKENS_RUN, TOKENS_RUN + 1, 5003, 40009, 64 * TOKENS_RUN};
    uint64_t last = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int64_t n = counts[i], places[] = {0, n / 3, n / 2, n - n / 7 - 1, n - 1};
        uint64_t plain = sample_of(n, -1);
        assert_int_not_equal(plain, last);
        last = plain;
        for (int k = 0; k < 5; k++)
            assert_int_not_equal(sample_of(n, places[k]), plain);
    }
    int64_t n = 64 * TOKENS_RUN * 3 + 11;
    uint64_t plain = sample_of(n, -1);
    assert_true(sample_of(n, -1) == plain);
    assert_int_not_equal(sample_of(n + 1, -1), plain);
    assert_int_not_equal(sample_of(n, 0), plain);
    assert_int_not_equal(sample_of(n, n - 1), plain);
    /* of 63 equal distances every run lies at the end of one */
    for (int64_t run = 0; run < 64; run += 9)
        assert_int_not_equal(sample_of(n, (n - TOKENS_RUN) * run / 63 + TOKENS_RUN / 2), plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_of_one_kind_are_compared),
        cmocka_unit_test(samples_are_spread),
        cmocka_unit_test(chat_templates_are_kept),
        cmocka_unit_test(what_is_without_effect_are_keys),
        cmocka_unit_test(batches_are_compared_as_they_come_out),
        cmocka_unit_test(jumps_of_the_learning_rate_are_reported),
        cmocka_unit_test(another_model_is_refused_by_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
