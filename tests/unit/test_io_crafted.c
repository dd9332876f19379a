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
#include "io/tokens.h"
#include "tests/unit/h5_data.h"
#include "tests/unit/test_folder.h"

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
        assert_int_equal(h5_elems(rows[i].rank, rows[i].dims), rows[i].elems);
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

struct box_row {
    int64_t tensor, first, pieces, start0, start1, start2, start3, count0, count1, count2, count3;
};

static const struct h5_field box_fields[] = {
    COLUMN(struct box_row, tensor), COLUMN(struct box_row, first),  COLUMN(struct box_row, pieces),
    COLUMN(struct box_row, start0), COLUMN(struct box_row, start1), COLUMN(struct box_row, start2),
    COLUMN(struct box_row, start3), COLUMN(struct box_row, count0), COLUMN(struct box_row, count1),
    COLUMN(struct box_row, count2), COLUMN(struct box_row, count3),
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
static const struct h5_table boxes_table = {"index/boxes", box_fields, 11, sizeof(struct box_row)};
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

/* ---- boxes ---- */

enum { PARTS = 3 };

/* A tensor in three boxes of a piece each, the last of two rows of columns. */
struct parts {
    struct row row;
    struct box_row box[PARTS];
    struct piece_row piece[PARTS];
    int64_t format, boxes, pieces;
};

static const struct parts sound = {
    .row = {"model/a", "fp32", 2, 60, 100, 0, 0, 6000, 0, PARTS},
    .box = {{0, 0, 1, 0, 0, 0, 0, 40, 30},
            {0, 1, 1, 0, 30, 0, 0, 40, 70},
            {0, 2, 1, 40, 0, 0, 0, 20, 100}},
    .piece = {{.offset = 4096, .count = 1200},
              {.offset = 8896, .count = 2800},
              {.offset = 20096, .count = 2000}},
    .format = 2,
    .boxes = PARTS,
    .pieces = PARTS,
};

static int read_parts(const struct parts *parts, struct error *err)
{
    struct h5 *file;
    struct file_row only = {.bytes = 100000};
    struct catalog catalog;
    int64_t step = 1;
    *err = (struct error){0};
    if (h5_create(&file, in_folder("index.h5"), err) ||
        h5_set_value(file, "/", "format", H5_TYPE_I64, &parts->format, err) ||
        h5_set_value(file, "/", "step", H5_TYPE_I64, &step, err) ||
        h5_write_rows(file, &rows_table, &parts->row, 1, err) ||
        (parts->boxes && h5_write_rows(file, &boxes_table, parts->box, parts->boxes, err)) ||
        h5_write_rows(file, &pieces_table, parts->piece, parts->pieces, err) ||
        h5_write_rows(file, &files_table, &only, 1, err) || h5_close(file, err))
        fail_msg("%s", err->text);
    int rc = catalog_read(&catalog, in_folder("index.h5"), err);
    if (!rc)
        catalog_free(&catalog);
    return rc;
}

static void refuse_parts(struct parts parts, const char *text)
{
    struct error err;
    assert_int_equal(read_parts(&parts, &err), -1);
    if (!strstr(err.text, "index.h5") || !strstr(err.text, text))
        fail_msg("expected \"%s\" in: %s", text, err.text);
}

/* One number of one box is something else. */
static void boxes_are_not_believed(void **state)
{
    static const struct {
        int box;
        size_t member;
        int64_t number;
        const char *text;
    } lies[] = {
        {0, offsetof(struct box_row, tensor), 1, "row 0 of index/pieces is of no box"},
        {0, offsetof(struct box_row, tensor), -1, "row 0 of index/pieces is of no box"},
        {2, offsetof(struct box_row, tensor), 1, "row 2 of index/pieces is of no box"},
        {1, offsetof(struct box_row, first), 0, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, first), INT64_MAX, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, pieces), 0, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, pieces), -1, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, pieces), 2, "makes no sense"},
        {1, offsetof(struct box_row, pieces), INT64_MAX, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, start1), 31, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, start1), -1, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, start1), INT64_MAX, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, start1), INT64_MIN, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, start1), 29, "overlap"},
        {1, offsetof(struct box_row, count1), INT64_MAX, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, count1), -70, "row 1 of index/boxes makes no sense"},
        {1, offsetof(struct box_row, count1), 0, "row 1 of index/pieces makes no sense"},
        {1, offsetof(struct box_row, count1), 69, "row 1 of index/pieces makes no sense"},
        {0, offsetof(struct box_row, start0), 50, "makes no sense"},
        {2, offsetof(struct box_row, start0), 39, "overlap"},
        {2, offsetof(struct box_row, count0), 19, "row 2 of index/pieces makes no sense"},
        {0, offsetof(struct box_row, count1), 31, "element 1200 is held by no rank"},
    };
    struct error err;
    if (read_parts(&sound, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct parts parts = sound;
        memcpy((char *)&parts.box[lies[i].box] + lies[i].member, &lies[i].number, 8);
        refuse_parts(parts, lies[i].text);
    }
}

/* Rows too many or too few, in another order, of a format that has none. */
static void tables_of_boxes_agree(void **state)
{
    struct parts parts = sound;
    parts.boxes = 2;
    refuse_parts(parts, "row 2 of index/pieces is of no box");
    parts = sound;
    parts.boxes = 0;
    refuse_parts(parts, "index/boxes");
    parts = sound;
    parts.pieces = parts.row.count = 2;
    refuse_parts(parts, "row 2 of index/boxes makes no sense");
    parts = sound;
    parts.row.count = 2;
    refuse_parts(parts, "row 2 of index/boxes makes no sense");
    parts = sound;
    parts.box[0] = sound.box[2], parts.box[2] = sound.box[0]; /* not by their starts */
    parts.box[0].first = 0, parts.box[2].first = 2;
    parts.piece[0] = sound.piece[2], parts.piece[2] = sound.piece[0];
    refuse_parts(parts, "row 1 of index/boxes makes no sense");
    parts = sound;
    parts.format = 1;
    refuse_parts(parts, "element 0 is held twice");
    parts.format = 3;
    refuse_parts(parts, "format 3; this version reads 1 and 2");
    parts = sound;
    parts.box[1].start1 = 20, parts.box[1].count1 = 70; /* as many elements, but not all */
    refuse_parts(parts, "overlap");
    parts = sound;
    parts.boxes = parts.pieces = parts.row.count = 2; /* nothing of the last rows */
    refuse_parts(parts, "2000 of its 6000 elements are held by no rank");
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

/* A list of texts is no text, however long each is: HDF5 would write all of them. */
static void attributes_are_one_text(void **state)
{
    static const struct {
        size_t bytes;
        int64_t count;
        int rc;
    } rows[] = {{8, 1, 0}, {0, 1, 0}, {8, 3000, -1}, {0, 3000, -1}, {8, 2, -1}, {0, 0, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = {0};
        struct h5 *file;
        char text[16] = "";
        assert_int_equal(h5_create(&file, in_folder("t.h5"), &err), 0);
        assert_int_equal(h5_set_texts(file, "source", rows[i].bytes, rows[i].count), 0);
        assert_int_equal(h5_get_text(file, "/", "source", text, sizeof text, &err), rows[i].rc);
        assert_string_equal(text, rows[i].rc ? "" : "a");
        if (rows[i].rc)
            assert_non_null(strstr(err.text, "source of / is not one text"));
        h5_close(file, NULL);
    }
}

/* A file with datasets tokens and documents, of which `linked` is a link to one in other.h5. */
static int open_linked(const char *linked, const char *other, struct error *err)
{
    static const uint16_t tokens[100];
    static const uint64_t documents[] = {0, 100};
    static const uint8_t mask[100];
    const int64_t count = 100, two = 2, format = 1, vocab = 5;
    struct tokens opened;
    struct h5 *file;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "linked.h5" : "other.h5", *left_out = i ? linked : "";
        assert_int_equal(h5_create(&file, in_folder(name), err), 0);
        if (strcmp(left_out, "tokens"))
            assert_int_equal(h5_write(file, "tokens", DTYPE_U16, 1, &count, tokens, err), 0);
        if (strcmp(left_out, "documents"))
            assert_int_equal(h5_write(file, "documents", H5_TYPE_U64, 1, &two, documents, err), 0);
        if (strcmp(left_out, "loss_mask"))
            assert_int_equal(h5_write(file, "loss_mask", DTYPE_U8, 1, &count, mask, err), 0);
        assert_int_equal(h5_set_value(file, "/", "format", H5_TYPE_I64, &format, err), 0);
        assert_int_equal(h5_set_value(file, "/", "vocab", H5_TYPE_I64, &vocab, err), 0);
        assert_int_equal(h5_set_text(file, "/", "tokenizer", "x", err), 0);
        if (*left_out)
            assert_int_equal(h5_link_outside(file, linked, other, linked), 0);
        assert_int_equal(h5_close(file, err), 0);
    }
    int rc = tokens_open(&opened, in_folder("linked.h5"), err);
    tokens_close(&opened);
    return rc;
}

/* Offsets of another file's datasets are not those of this one, and a mask that is not found is not
 * the same as none. */
static void datasets_of_other_files_are_refused(void **state)
{
    static const char *const linked[] = {"tokens", "documents", "loss_mask"};
    struct error err = {0};
    char text[64];
    if (open_linked("", "other.h5", &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof linked / sizeof linked[0]; i++) {
        assert_int_equal(open_linked(linked[i], "other.h5", &err), -1);
        snprintf(text, sizeof text, "dataset %s lies in another file", linked[i]);
        if (!strstr(err.text, text))
            fail_msg("%s", err.text);
        assert_int_equal(open_linked(linked[i], "nowhere.h5", &err), -1);
        snprintf(text, sizeof text, "no dataset %s", linked[i]);
        if (!strstr(err.text, text))
            fail_msg("%s", err.text);
    }
}

static void folders_have_names(void **state)
{
    struct error err = {0};
    assert_int_equal(disk_make_folders("", &err), -1);
    assert_non_null(strstr(err.text, "a folder without a name"));
    assert_int_equal(disk_make_folders("/", &err), 0);
    assert_int_equal(disk_make_folders(in_folder("a//b/"), &err), 0);
    assert_true(disk_has(folder, "a/b"));
}

static void paths_are_inside_folders(void **state)
{
    static const struct {
        const char *path, *folder;
        int inside;
    } rows[] = {{"/", "/", 1},       {"/proc", "/", 1},       {"/proc/self/", "/proc/", 1},
                {"/proc", "/p", 0},  {"/", "/proc", 0},       {"/proc/sys", "/proc/s", 0},
                {"/absent", "/", 0}, {"/proc", "/absent", 0}, {"/proc/sysvipc", "/proc/sys", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (disk_is_inside(rows[i].path, rows[i].folder) != rows[i].inside)
            fail_msg("%s in %s", rows[i].path, rows[i].folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_do_not_wrap),
        cmocka_unit_test(datasets_do_not_wrap),
        cmocka_unit_test(tables_are_not_believed),
        cmocka_unit_test(boxes_are_not_believed),
        cmocka_unit_test(tables_of_boxes_agree),
        cmocka_unit_test(attributes_are_numbers),
        cmocka_unit_test(attributes_are_one_text),
        cmocka_unit_test(datasets_of_other_files_are_refused),
        cmocka_unit_test(folders_have_names),
        cmocka_unit_test(paths_are_inside_folders),
    };
    h5_setup();
    return cmocka_run_group_tests_name("crafted", tests, make_folder, remove_folder);
}
