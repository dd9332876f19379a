/* test_samples.c - what samples.jsonl has of a token file with empty documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "io/tokens.h"
#include "tests/unit/rig.h"
#include "tests/unit/test_folder.h"
#include "train/samples.h"

enum { DOCUMENTS = 4 };

/* Documents of "", "abcdef", "" and "ghijklmnop". */
static void write_tokens(const char *path)
{
    static const int64_t lengths[DOCUMENTS] = {0, 6, 0, 10};
    struct error err = {0};
    struct tokens_writer *writer;
    uint32_t next = 'a', ids[16];
    int rc = tokens_create(&writer, path, "bytes", 257, "", &err);
    for (int d = 0; d < DOCUMENTS && !rc; d++) {
        for (int64_t i = 0; i < lengths[d]; i++)
            ids[i] = next++;
        rc = tokens_append(writer, ids, lengths[d], &err);
    }
    if (rc || tokens_finish(writer, &err))
        fail_msg("%s", err.text);
}

/* An empty document stands for the file's beginning: nothing is shown that is not in the file. */
static void empty_documents(void **state)
{
    static const char *const given[DOCUMENTS] = {"abcdefgh", "abc", "abcdefgh", "ghijk"};
    static const char *const reference[DOCUMENTS] = {"ijklm", "def", "ijklm", "lmnop"};
    char text[512], line[4096];
    struct error err = {0};
    struct samples *samples;
    struct mem mem = {0};
    write_tokens(in_folder("valid.h5"));
    snprintf(text, sizeof text,
             "model.layers=1 model.hidden=16 model.heads=2 model.ffn=16 model.vocab=257 "
             "data.seq_len=32 train.global_batch=1 train.micro_batch=1 generate.samples=4 "
             "generate.tokens=5 data.valid=%s/valid.h5 run.dir=%s",
             folder, folder);
    struct config config = rig_config(text);
    struct session *s = rig_open(&mem, &config, NULL, DOCUMENTS);
    rig_init(s);
    if (samples_open(&samples, s, 0, &err) || samples_write(samples, 1, NULL, &err))
        fail_msg("%s", err.text);
    samples_close(samples);
    session_close(s);
    FILE *file = fopen(in_folder("samples.jsonl"), "r");
    assert_non_null(file);
    for (int i = 0; i < DOCUMENTS; i++) {
        assert_non_null(fgets(line, sizeof line, file));
        struct js *js = js_parse(line, &err);
        assert_string_equal(js_get_string(js, "given", ""), given[i]);
        assert_string_equal(js_get_string(js, "reference", ""), reference[i]);
        js_free(js);
    }
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(empty_documents)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
