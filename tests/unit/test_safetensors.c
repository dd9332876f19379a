/* test_safetensors.c - files of Hugging Face's: what is written is read back, and nothing of a file
 * is believed. */
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
#include "io/disk.h"
#include "io/safetensors.h"

static char dir[256];

/* A file of a header of `length` bytes, as its first bytes say, and so many bytes behind it. */
static void write_raw(const char *name, uint64_t length, const char *header, int bytes)
{
    char *path = array_format("%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 0xff), file);
    fputs(header, file);
    for (int i = 0; i < bytes; i++)
        fputc(i, file);
    fclose(file);
    free(path);
}

static void assert_refused(const char *header, int bytes, const char *why)
{
    struct safetensors *st;
    struct error err = {0};
    write_raw("model.safetensors", strlen(header), header, bytes);
    assert_int_equal(safetensors_open(&st, dir, &err), -1);
    assert_null(st);
    if (!strstr(err.text, why) || !strstr(err.text, "model.safetensors"))
        fail_msg("%s: wanted \"%s\", got \"%s\"", header, why, err.text);
}

static void test_hostile_headers(void **state)
{
    static const char a[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}";
    char text[512];
    assert_refused("", 0, "JSON");
    assert_refused("[]x", 0, "header");
    assert_refused("{\"a\":{}}", 0, "dtype");
    assert_refused("{\"a\":{\"dtype\":\"F33\"}}", 0, "dtype \"F33\" is not known");
    assert_refused("{\"a\":{\"dtype\":\"F32\"}}", 0, "shape");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
                   "shape");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "shape");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],"
                   "\"data_offsets\":[0,4]}}",
                   4, "shape");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "bytes");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "bytes");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "bytes");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "bytes");
    snprintf(text, sizeof text, "%s}", a);
    assert_refused(text, 7, "cut off");
    assert_refused(text, 9, "no tensor's");
    snprintf(text, sizeof text,
             "%s,\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", a);
    assert_refused(text, 8, "another tensor's");
    snprintf(text, sizeof text,
             "%s,\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}", a);
    assert_refused(text, 16, "bytes before it");
    snprintf(text, sizeof text,
             "%s,\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", a);
    assert_refused(text, 12, "duplicate");
}

static void test_hostile_lengths(void **state)
{
    static const uint64_t lengths[] = {1, 3, UINT64_C(1) << 40, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct safetensors *st;
        struct error err = {0};
        write_raw("model.safetensors", lengths[i], "{}", 0);
        assert_int_equal(safetensors_open(&st, dir, &err), -1);
        assert_non_null(strstr(err.text, "header"));
    }
    char *path = array_format("%s/model.safetensors", dir);
    for (int bytes = 0; bytes < 10; bytes++) {
        struct safetensors *st;
        struct error err = {0};
        assert_int_equal(truncate(path, bytes), 0);
        assert_int_equal(safetensors_open(&st, path, &err), -1);
    }
    free(path);
}

/* Every byte of a header changed to each of a few others is refused or means as much: never more
 * than the file has. */
static void test_changed_bytes(void **state)
{
    const char *header = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                         "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]}}";
    int read = 0;
    for (size_t i = 0; i < strlen(header); i++)
        for (const char *to = "0987{}[],:\"-ax\x01\xff "; *to; to++) {
            char text[256];
            struct safetensors *st;
            struct error err = {0};
            snprintf(text, sizeof text, "%s", header);
            text[i] = *to;
            write_raw("model.safetensors", strlen(text), text, 16);
            if (safetensors_open(&st, dir, &err)) {
                assert_true(err.text[0]);
                continue;
            }
            for (int t = 0; t < st->tensors; t++) {
                float values[16];
                if (st->tensor[t].dtype >= 0 && st->tensor[t].elems <= 16)
                    assert_int_equal(
                        safetensors_read(st, &st->tensor[t], 0, st->tensor[t].elems, values, &err),
                        0);
                read++;
            }
            safetensors_close(st);
        }
    assert_true(read > 0);
}

enum { TENSORS = 5 };

/* Numbers that 16 bits hold exactly. */
static float value_of(int source, int64_t i)
{
    return (float)((source * 37 + i * 11) % 253 - 126) / 8;
}

static int source_read(void *user, int source, int64_t start, int64_t count, float *to,
                       struct error *err)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = value_of(source, start + i);
    return 0;
}

static void test_written_is_read(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const int64_t dims[TENSORS][2] = {{3, 7}, {1, 1}, {5000, 301}, {17, 1}, {2, 9}};
    for (int d = 0; d < 3; d++)
        for (int files = 0; files < 2; files++) {
            struct safetensors_source source[TENSORS] = {0};
            struct safetensors *st;
            struct error err = {0};
            assert_int_equal(disk_remove(dir, &err), 0);
            assert_int_equal(disk_make_folders(dir, &err), 0);
            for (int i = 0; i < TENSORS; i++) {
                snprintf(source[i].name, sizeof source[i].name, "t.%d.weight", TENSORS - i);
                source[i].dims = i == 3 ? 1 : 2;
                source[i].dim[0] = dims[i][0];
                source[i].dim[1] = dims[i][1];
                source[i].elems = dims[i][0] * dims[i][1];
                source[i].read = source_read;
            }
            assert_int_equal(safetensors_write(dir, "model", source, TENSORS, dtypes[d],
                                               files ? 200 : 1 << 30, &err),
                             0);
            assert_int_equal(safetensors_look(dir), files ? SAFETENSORS_INDEX : SAFETENSORS_FILE);
            if (safetensors_open(&st, dir, &err))
                fail_msg("%s", err.text);
            assert_int_equal(st->tensors, TENSORS);
            assert_int_equal(st->files, files ? 3 : 1);
            for (int i = 0; i < TENSORS; i++) {
                const struct safetensors_tensor *t = safetensors_find(st, source[i].name);
                float values[8];
                int64_t last = source[i].elems < 8 ? 0 : source[i].elems - 8;
                int64_t count = source[i].elems - last;
                assert_non_null(t);
                assert_int_equal(t->dims, source[i].dims);
                assert_int_equal(t->dtype, dtypes[d]);
                assert_int_equal(safetensors_read(st, t, last, count, values, &err), 0);
                for (int64_t k = 0; k < count; k++)
                    assert_true(values[k] == value_of(i, last + k));
                assert_int_equal(safetensors_read(st, t, 1, source[i].elems, values, &err), -1);
            }
            assert_null(safetensors_find(st, "t.0.weight"));
            safetensors_close(st);
        }
}

static void write_text(const char *name, const char *text)
{
    char *path = array_format("%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

/* A name that is somebody else's stays. */
static void test_pipe_in_the_way(void **state)
{
    struct safetensors_source source = {
        .name = "t.0.weight", .dims = 1, .dim = {1}, .elems = 1, .read = source_read};
    struct error err = {0};
    struct stat info;
    char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors.partial", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(safetensors_write(dir, "model", &source, 1, DTYPE_F32, INT64_MAX, &err), -1);
    assert_non_null(strstr(err.text, "a named pipe"));
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
}

static void test_wrong_index(void **state)
{
    static const struct {
        const char *index, *why;
    } rows[] = {
        {"{}", "weight_map"},
        {"{\"weight_map\":{}}", "weight_map"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "no file's name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "no file's name"},
        {"{\"weight_map\":{\"a\":7}}", "no file's name"},
        {"{\"weight_map\":{\"a\":\"absent\"}}", "absent"},
        {"{\"weight_map\":{\"b\":\"one\"}}", "\"b\" is missing"},
        {"{\"weight_map\":{\"a\":\"one\",\"x\":\"two\"}}", "is in"},
        {"{\"weight_map\":", "index.json"},
    };
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    write_raw("one", sizeof header - 1, header, 4);
    write_raw("two", sizeof header - 1, header, 4);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct safetensors *st;
        struct error err = {0};
        write_text("model.safetensors.index.json", rows[i].index);
        assert_int_equal(safetensors_open(&st, dir, &err), -1);
        if (!strstr(err.text, rows[i].why))
            fail_msg("%s: wanted \"%s\", got \"%s\"", rows[i].index, rows[i].why, err.text);
    }
}

/* A clone of a repository whose large files were not brought. */
static void test_pointer(void **state)
{
    struct safetensors *st;
    struct error err = {0};
    write_text("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"
                                    "oid sha256:0123\nsize 1\n");
    assert_int_equal(safetensors_open(&st, dir, &err), -1);
    assert_non_null(strstr(err.text, "model.safetensors is a Git LFS pointer"));
    assert_non_null(strstr(err.text, "git lfs pull"));
}

/* Beside one file an index counts for nothing, as with transformers. */
static void test_file_before_index(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    struct safetensors *st;
    struct error err = {0};
    write_raw("model.safetensors", sizeof header - 1, header, 4);
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"absent\"}}");
    assert_int_equal(safetensors_look(dir), SAFETENSORS_FILE);
    assert_int_equal(safetensors_open(&st, dir, &err), 0);
    assert_int_equal(st->files, 1);
    assert_non_null(strstr(st->file[0], "/model.safetensors"));
    safetensors_close(st);
}

static int make_dir(void **state)
{
    const char *folder = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/trireme-st-%d", folder ? folder : "/tmp", (int)getpid());
    return mkdir(dir, 0700);
}

static int remove_dir(void **state)
{
    return disk_remove(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hostile_headers, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_hostile_lengths, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_changed_bytes, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_written_is_read, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_pipe_in_the_way, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_wrong_index, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_file_before_index, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_pointer, make_dir, remove_dir),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
