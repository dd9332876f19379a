/* test_io_crafted.c - files whose numbers cannot be true: made by hand, or by an enemy.  Each is
 * refused with a text that names it; none is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "io/catalog.h"
#include "io/disk.h"
#include "io/h5.h"
#include "io/tokens.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/trireme-crafted-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return disk_remove(folder, NULL);
}

/* Replace every occurrence of eight bytes that are the number `old` in a small file. */
static void patch(const char *path, uint64_t old, uint64_t new)
{
    static char bytes[1 << 20];
    int found = 0;
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    assert_in_range(size, 8, sizeof bytes - 1);
    for (size_t at = 0; at + 8 <= size; at++)
        if (!memcmp(bytes + at, &old, 8)) {
            memcpy(bytes + at, &new, 8);
            found++;
        }
    assert_true(found > 0);
    rewind(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Products of dimensions */

static void elements_do_not_wrap(void **state)
{
    static const struct {
        int64_t rank, dims[4], elems;
    } rows[] = {
        {1, {0}, 0},
        {2, {3, 7}, 21},
        {1, {INT64_MAX / 8}, INT64_MAX / 8},
        {1, {INT64_MAX / 8 + 1}, -1},
        {1, {-1}, -1},
        {2, {-3, -7}, -1},
        {2, {INT64_MAX, 100}, -1},
        {3, {INT64_C(1) << 32, INT64_C(1) << 32, 5}, -1},
        {4, {INT64_C(1) << 20, INT64_C(1) << 20, INT64_C(1) << 19, 1}, INT64_C(1) << 59},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(catalog_elems(rows[i].rank, rows[i].dims), rows[i].elems);
}

/* A file of one dataset of 12345 numbers, of which HDF5 is told that they are more. */
static void datasets_do_not_wrap(void **state)
{
    static const uint64_t lies[] = {(UINT64_C(1) << 62) + 12345, UINT64_MAX, INT64_MAX,
                                    (UINT64_C(1) << 60) + 1};
    static uint32_t data[12345];
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct error err = {0};
        struct h5_dataset dataset;
        struct h5 *file;
        void *read = NULL;
        int64_t dims = 12345;
        assert_int_equal(h5_create(&file, in_folder("x.h5"), &err), 0);
        assert_int_equal(h5_write(file, "x", DTYPE_U32, 1, &dims, data, &err), 0);
        assert_int_equal(h5_close(file, &err), 0);
        patch(in_folder("x.h5"), 12345, lies[i]);
        if (h5_open(&file, in_folder("x.h5"), &err))
            continue; /* newer HDF5 looks at this itself */
        assert_int_equal(h5_locate(file, "x", &dataset, &err), -1);
        assert_int_equal(h5_read(file, "x", DTYPE_U32, &read, NULL, &err), -1);
        assert_null(read);
        assert_non_null(strstr(err.text, "x.h5"));
        h5_close(file, NULL);
    }
}

/* Tables of checkpoints */

struct row {
    char name[CATALOG_NAME], dtype[8];
    int64_t rank, dim0, dim1, dim2, dim3, elems, first, count;
};

#define COLUMN(type, column)                                                    \
    {                                                                           \
        .name = #column, .kind = H5_FIELD_I64, .offset = offsetof(type, column) \
    }

static const struct h5_field row_fields[] = {
    {"name", H5_FIELD_TEXT, offsetof(struct row, name), CATALOG_NAME},
    {"dtype", H5_FIELD_TEXT, offsetof(struct row, dtype), 8},
    COLUMN(struct row, rank),
    COLUMN(struct row, dim0),
    COLUMN(struct row, dim1),
    COLUMN(struct row, dim2),
    COLUMN(struct row, dim3),
    COLUMN(struct row, elems),
    COLUMN(struct row, first),
    COLUMN(struct row, count),
};

struct piece_row {
    int64_t tensor, shard, offset, start, count;
    uint64_t checksum;
};

static const struct h5_field piece_fields[] = {
    COLUMN(struct piece_row, tensor),
    COLUMN(struct piece_row, shard),
    COLUMN(struct piece_row, offset),
    COLUMN(struct piece_row, start),
    COLUMN(struct piece_row, count),
    {"checksum", H5_FIELD_U64, offsetof(struct piece_row, checksum)},
};

struct file_row {
    int64_t bytes;
    uint64_t rest;
};

static const struct h5_field file_fields[] = {
    COLUMN(struct file_row, bytes),
    {"rest", H5_FIELD_U64, offsetof(struct file_row, rest)},
};

static const struct h5_table rows_table = {"index/tensors", row_fields, 10, sizeof(struct row)};
static const struct h5_table short_table = {"index/tensors", row_fields, 9, sizeof(struct row)};
static const struct h5_table pieces_table = {"index/pieces", piece_fields, 6,
                                             sizeof(struct piece_row)};
static const struct h5_table files_table = {"index/files", file_fields, 2, sizeof(struct file_row)};

/* An index of one tensor in one piece of one file, read back as a catalog. */
static int read_index(const struct h5_table *tensors, struct row row, struct piece_row piece,
                      struct error *err)
{
    struct h5 *file;
    struct file_row only = {.bytes = 100000};
    struct catalog catalog;
    int64_t format = 1, step = 1;
    if (h5_create(&file, in_folder("index.h5"), err) ||
        h5_set_value(file, "/", "format", H5_TYPE_I64, &format, err) ||
        h5_set_value(file, "/", "step", H5_TYPE_I64, &step, err) ||
        h5_write_rows(file, tensors, &row, 1, err) ||
        h5_write_rows(file, &pieces_table, &piece, 1, err) ||
        h5_write_rows(file, &files_table, &only, 1, err) || h5_close(file, err))
        fail_msg("%s", err->text);
    int rc = catalog_read(&catalog, in_folder("index.h5"), err);
    if (!rc)
        catalog_free(&catalog);
    return rc;
}

static void refuse_index(struct row row, struct piece_row piece)
{
    struct error err = {0};
    assert_int_equal(read_index(&rows_table, row, piece, &err), -1);
    if (!strstr(err.text, "index.h5") || !strstr(err.text, "makes no sense"))
        fail_msg("%s", err.text);
}

static void tables_are_not_believed(void **state)
{
    static const struct row good = {"model/a", "fp32", 2, 60, 100, 0, 0, 6000, 0, 1};
    static const struct piece_row whole = {.offset = 4096, .count = 6000};
    struct error err = {0};
    if (read_index(&rows_table, good, whole, &err))
        fail_msg("%s", err.text);
    struct row row = good;
    row.dim0 = INT64_MAX; /* the product wraps */
    refuse_index(row, whole);
    row.elems = row.dim0 = -60;
    refuse_index(row, whole);
    row = good;
    row.dim0 = INT64_C(1) << 60, row.dim1 = 16, row.elems = 0; /* 2^64 is 0 */
    refuse_index(row, whole);
    static const struct piece_row pieces[] = {
        {.offset = INT64_MAX, .count = 6000},
        {.offset = 100000 - 4 * 6000 + 1, .count = 6000}, /* ends behind the file */
        {.offset = -4096, .count = 6000},
        {.offset = 4096, .count = INT64_MAX},
        {.offset = 4096, .start = -1, .count = 6001},
        {.offset = 4096, .start = 1, .count = INT64_MAX},
        {.tensor = 1, .offset = 4096, .count = 6000},
        {.shard = 1, .offset = 4096, .count = 6000},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        refuse_index(good, pieces[i]);
    assert_int_equal(read_index(&short_table, good, whole, &err), -1);
    assert_non_null(strstr(err.text, "other columns"));
}

/* Attributes of another kind are not handed to HDF5's conversions. */
static void attributes_are_numbers(void **state)
{
    struct error err = {0};
    struct h5 *file;
    int64_t value;
    assert_int_equal(h5_create(&file, in_folder("a.h5"), &err), 0);
    assert_int_equal(h5_set_text(file, "/", "format", "1", &err), 0);
    assert_int_equal(h5_get_value(file, "/", "format", H5_TYPE_I64, &value, &err), -1);
    assert_non_null(strstr(err.text, "is not a number"));
    assert_int_equal(h5_write_rows(file, &files_table, NULL, 0, &err), 0);
    void *read;
    assert_int_equal(h5_read(file, "index/files", DTYPE_F32, &read, NULL, &err), -1);
    assert_non_null(strstr(err.text, "is not of numbers"));
    h5_close(file, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_do_not_wrap),
        cmocka_unit_test(datasets_do_not_wrap),
        cmocka_unit_test(tables_are_not_believed),
        cmocka_unit_test(attributes_are_numbers),
    };
    h5_setup();
    return cmocka_run_group_tests_name("crafted", tests, make_folder, remove_folder);
}
