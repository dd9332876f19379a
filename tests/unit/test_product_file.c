/* test_product_file.c - products.json: what is written is read, and nothing else is: another GPU or
 * library, or a line that was damaged, leaves the table empty and is said in one line. */
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
#include "base/philox.h"
#include "train/product_file.h"

enum { PRODUCTS = 3, MOST = 1 << 16 };

static const char library[] = "NVIDIA H200, cuBLASLt 13.1.0";
static char path[64];

static struct product_table make_table(void)
{
    struct product_table t = {.count = PRODUCTS, .capacity = PRODUCTS, .is_new = 1};
    t.choice = array_make(PRODUCTS, sizeof *t.choice);
    for (int i = 0; i < PRODUCTS; i++) {
        struct product_choice *c = &t.choice[i];
        for (int k = 0; k < PRODUCT_SHAPE; k++)
            c->shape[k] = 1000 * i + k;
        for (int k = 0; k < PRODUCT_SETTINGS; k++)
            c->setting[k] = k == 4 ? -1 : 7 * i + k;
        for (int k = 0; k < PRODUCT_WORDS; k++)
            c->word[k] = philox_u64(3, (uint64_t)(i * PRODUCT_WORDS + k));
        c->workspace_bytes = 4096 * i;
        c->tried = 8 - i;
        c->ns = 12345 + i;
        c->first_ns = 23456 + i;
    }
    return t;
}

static void write_table(void)
{
    struct product_table t = make_table();
    struct error err = {0};
    assert_int_equal(product_file_write(&t, library, path, &err), 0);
    product_table_free(&t);
}

static char *read_text(size_t *bytes)
{
    char *text = array_make(MOST, 1);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    *bytes = fread(text, 1, MOST - 1, file);
    fclose(file);
    assert_true(*bytes > 0 && *bytes < MOST - 1);
    return text;
}

static void write_text(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* 1: it is refused, in one line, and the table is empty. */
static int is_refused(const char *of)
{
    struct product_table t = {0};
    struct error err = {0};
    int rc = product_file_read(&t, of, path, &err);
    if (rc) {
        assert_int_equal(t.count, 0);
        assert_true(err.text[0]);
        assert_null(strchr(err.text, '\n'));
    }
    product_table_free(&t);
    return rc != 0;
}

static void what_is_written_is_read(void **state)
{
    struct product_table want = make_table(), got = {0};
    struct error err = {0};
    write_table();
    assert_int_equal(product_file_read(&got, library, path, &err), 0);
    assert_int_equal(got.count, PRODUCTS);
    assert_memory_equal(got.choice, want.choice, PRODUCTS * sizeof *want.choice);
    product_table_free(&got);
    product_table_free(&want);
}

/* A file of before products in fp8 lacks the last name. */
static void a_file_without_fp8_is_read(void **state)
{
    struct product_table want = make_table(), got = {0};
    struct error err = {0};
    size_t bytes;
    write_table();
    char *text = read_text(&bytes);
    for (char *line; (line = strstr(text, "\"fp8\""));) { /* it is the last of its object */
        char *comma = line;
        while (*comma != ',')
            comma--;
        char *end = strchr(line, '\n');
        memmove(comma, end, strlen(end) + 1);
    }
    write_text(text, strlen(text));
    assert_int_equal(product_file_read(&got, library, path, &err), 0);
    assert_int_equal(got.count, PRODUCTS);
    for (int i = 0; i < PRODUCTS; i++) {
        want.choice[i].shape[PRODUCT_SHAPE_LEAST] = 0;
        assert_memory_equal(&got.choice[i], &want.choice[i], sizeof *want.choice);
    }
    product_table_free(&got);
    product_table_free(&want);
    free(text);
}

static void none_is_an_empty_table(void **state)
{
    struct product_table t = {0};
    struct error err = {0};
    unlink(path);
    assert_int_equal(product_file_read(&t, library, path, &err), 0);
    assert_int_equal(t.count, 0);
    product_table_free(&t);
}

static void of_another_gpu_or_library_is_refused(void **state)
{
    write_table();
    assert_true(is_refused("NVIDIA H200, cuBLASLt 13.1.1"));
    assert_true(is_refused("NVIDIA H100, cuBLASLt 13.1.0"));
    assert_false(is_refused(library));
}

/* A line that lacks its value, or has another's type, is damage wherever it is. */
static void every_damaged_line_is_refused(void **state)
{
    size_t bytes, lines = 0;
    write_table();
    char *text = read_text(&bytes);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *value = strchr(line, ':');
        if (!value || value > end)
            continue;
        char *damaged = array_make(bytes + 16, 1);
        size_t before = (size_t)(value - text) + 1;
        int is_last = end[-1] != ',';
        memcpy(damaged, text, before);
        int wrong = sprintf(damaged + before, " true%s", is_last ? "" : ",");
        int opens = end[-1] == '{' || end[-1] == '[';
        memcpy(damaged + before + wrong, end, bytes - (size_t)(end - text));
        write_text(damaged, before + (size_t)wrong + bytes - (size_t)(end - text));
        assert_true(is_refused(library));
        write_text(text, opens ? before : (size_t)(end - text)); /* and a file cut off there */
        assert_true(is_refused(library));
        lines++;
        free(damaged);
    }
    assert_true(lines > PRODUCTS * (PRODUCT_SHAPE + PRODUCT_SETTINGS));
    free(text);
}

static void what_is_no_such_file_is_refused(void **state)
{
    const char *const texts[] = {"", "x", "[]", "{}", "3", "{\"format\": 1}", "\0\0"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_text(texts[i], i < 6 ? strlen(texts[i]) : 2);
        assert_true(is_refused(library));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_file_without_fp8_is_read),
        cmocka_unit_test(none_is_an_empty_table),
        cmocka_unit_test(of_another_gpu_or_library_is_refused),
        cmocka_unit_test(every_damaged_line_is_refused),
        cmocka_unit_test(what_is_no_such_file_is_refused),
    };
    snprintf(path, sizeof path, "product_file.%d.json", (int)getpid());
    int failed = cmocka_run_group_tests_name("product file", tests, NULL, NULL);
    unlink(path);
    return failed;
}
