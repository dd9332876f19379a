/* test_config_write.c - a configuration that is written reads back to the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "config/config.h"

static char path[64]; /* the file that is written */

/* A degree that was written is one that is given. */
static void check_read_back(struct config *back, const struct config *config)
{
    assert_int_equal(back->parallel.shard_follows, 0);
    assert_int_equal(back->parallel.replicate_follows, 0);
    back->parallel.shard_follows = config->parallel.shard_follows;
    back->parallel.replicate_follows = config->parallel.replicate_follows;
    back->seed = config->seed;
    assert_memory_equal(config, back, sizeof *back);
}

static void check_from_memory(const struct config *config)
{
    const char *override = "seed=5";
    char *text = NULL;
    size_t bytes = 0;
    struct config back;
    struct error err = {0};
    FILE *out = open_memstream(&text, &bytes);
    config_print(out, config);
    fclose(out);
    assert_int_equal(config_load_text(&back, "memory", text, &override, 1, &err), 0);
    assert_int_equal(back.seed, 5);
    check_read_back(&back, config);
    override = "seed=x";
    assert_int_equal(config_load_text(&back, "memory", text, &override, 1, &err), -1);
    assert_non_null(strstr(err.text, "seed"));
    free(text);
}

static void written_configuration_reads_back(void **state)
{
    static const char *const sets[][8] = {
        {"model.preset=llama-tiny"},
        {"model.preset=llama3.2-1b", "train.lr=0.1", "parallel.strategy=ddp", "precision=bf16"},
        {"model.preset=llama-10m", "train.lr=1.2345678901234567e-5", "train.min_lr=3e-17",
         "data.train=a \"b\" \\c: #d 'e' \xc3\xa9 \xf0\x9f\x9a\xa3", "data.valid=null",
         "run.dir=Null", "seed=9223372036854775807"},
        {"model.layers=1", "model.hidden=6", "model.heads=3", "model.ffn=7", "model.vocab=11",
         "data.train= leading and trailing ", "parallel.forward_prefetch=false"},
        {"model.preset=llama-tiny", "data.seq_len=7", "train.global_batch_tokens=91",
         "train.optimizer=sgd", "train.momentum=0.5", "parallel.wrap=layers",
         "parallel.layers_per_unit=3"},
    };
    const char *override = "seed=5", *tiny = "model.preset=llama-tiny";
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct config c, back;
        struct error err = {0};
        int count = 0;
        while (count < 8 && sets[i][count])
            count++;
        assert_int_equal(config_load(&c, NULL, sets[i], count, &err), 0);
        assert_int_equal(config_write(&c, CONFIG_OF_RUN, path, &err), 0);
        assert_int_equal(config_load(&back, path, &override, 1, &err), 0);
        assert_int_equal(back.seed, 5);
        check_read_back(&back, &c);
        check_from_memory(&c);
    }
    struct config c;
    struct error err = {0};
    assert_int_equal(config_load(&c, NULL, &tiny, 1, &err), 0);
    assert_int_equal(config_write(&c, CONFIG_OF_RUN, "/dev/null/config.yaml", &err), -1);
    assert_non_null(strstr(err.text, "/dev/null/config.yaml"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_configuration_reads_back),
    };
    strcpy(path, "/tmp/trireme-config-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0 || close(fd))
        return 1;
    int failed = cmocka_run_group_tests_name("config_write", tests, NULL, NULL);
    unlink(path);
    return failed;
}
