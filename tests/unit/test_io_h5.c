/* test_io_h5.c - properties of io/h5.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <cmocka.h>

#include "base/mem.h"
#include "io/disk.h"
#include "tests/unit/h5_data.h"
#include "tests/unit/test_folder.h"

static struct h5 *create(const char *name)
{
    struct error err = {0};
    struct h5 *file;
    if (h5_create(&file, in_folder(name), &err))
        fail_msg("%s", err.text);
    return file;
}

static struct h5 *open_again(struct h5 *file, const char *name)
{
    struct error err = {0};
    if (h5_close(file, &err) || h5_open(&file, in_folder(name), &err))
        fail_msg("%s", err.text);
    return file;
}

static void locks_are_off(void **state)
{
    assert_string_equal(getenv("HDF5_USE_FILE_LOCKING"), "FALSE");
    assert_int_equal(strncmp(h5_version(), "1.", 2), 0);
}

static void every_type_comes_back(void **state)
{
    struct error err = {0};
    struct h5 *file = create("types.h5");
    int64_t dims[] = {3, 1, 7};
    for (int type = 0; type < H5_TYPE_COUNT; type++) {
        char name[32], data[21 * 8];
        snprintf(name, sizeof name, "some/group/%d", type);
        for (int i = 0; i < (int)sizeof data; i++)
            data[i] = (char)(i * 37 + type);
        assert_int_equal(h5_write(file, name, type, 3, dims, data, &err), 0);
    }
    file = open_again(file, "types.h5");
    for (int type = 0; type < H5_TYPE_COUNT; type++) {
        char name[32], data[21 * 8];
        void *again;
        struct h5_dataset dataset;
        snprintf(name, sizeof name, "some/group/%d", type);
        for (int i = 0; i < (int)sizeof data; i++)
            data[i] = (char)(i * 37 + type);
        assert_int_equal(h5_read(file, name, type, &again, &dataset, &err), 0);
        assert_int_equal(dataset.type, type);
        assert_int_equal(dataset.rank, 3);
        assert_memory_equal(dataset.dims, dims, sizeof dims);
        assert_int_equal(dataset.elems, 21);
        assert_memory_equal(again, data, 21 * h5_type_bytes(type));
        free(again);
    }
    assert_true(h5_has(file, "some/group/0"));
    assert_false(h5_has(file, "some/other/0"));
    h5_close(file, NULL);
}

/* HDF5 must understand what a bf16 is: it converts to the same float as dtype.h. */
static void bf16_is_a_float_to_hdf5(void **state)
{
    enum { N = 0x10000 };
    struct error err = {0};
    struct h5 *file = create("bf16.h5");
    bf16 *bits = malloc(N * sizeof *bits);
    int64_t n = N;
    void *floats;
    for (int i = 0; i < N; i++)
        bits[i] = (bf16)i;
    assert_int_equal(h5_write(file, "x", DTYPE_BF16, 1, &n, bits, &err), 0);
    assert_int_equal(h5_read(file, "x", DTYPE_F32, &floats, NULL, &err), 0);
    for (int i = 0; i < N; i++) {
        float f = bf16_to_f32(bits[i]), got = ((float *)floats)[i];
        assert_true(f == got || (f != f && got != got));
    }
    free(floats);
    free(bits);
    h5_close(file, NULL);
}

static void reserved_bytes_are_the_dataset(void **state)
{
    struct error err = {0};
    struct h5 *file = create("raw.h5");
    struct h5_dataset small, large, none;
    int64_t n[] = {5, 5000, 0};
    float data[5000];
    void *again;
    assert_int_equal(h5_reserve(file, "a/small", DTYPE_F32, 1, &n[0], &small, &err), 0);
    assert_int_equal(h5_reserve(file, "large", DTYPE_F32, 1, &n[1], &large, &err), 0);
    assert_int_equal(h5_reserve(file, "none", DTYPE_F32, 1, &n[2], &none, &err), 0);
    assert_int_equal(none.offset, -1);
    assert_int_equal(large.offset % H5_ALIGN, 0);
    assert_int_equal(h5_close(file, &err), 0);
    for (int i = 0; i < 5000; i++)
        data[i] = (float)i / 3;
    int fd = open(in_folder("raw.h5"), O_RDWR);
    assert_int_equal(pwrite(fd, data, 20, small.offset), 20);
    assert_int_equal(pwrite(fd, data, sizeof data, large.offset), sizeof data);
    close(fd);
    file = open_again(NULL, "raw.h5");
    assert_int_equal(h5_read(file, "large", DTYPE_F32, &again, NULL, &err), 0);
    assert_memory_equal(again, data, sizeof data);
    free(again);
    assert_int_equal(h5_read(file, "a/small", DTYPE_F32, &again, NULL, &err), 0);
    assert_memory_equal(again, data, 20);
    free(again);
    h5_close(file, NULL);
}

static void attributes_come_back(void **state)
{
    struct error err = {0};
    struct h5 *file = create("attributes.h5");
    int64_t n = 1, big = -(INT64_C(1) << 60);
    double x = 0.1, y;
    char text[8];
    assert_int_equal(h5_write(file, "d", DTYPE_I32, 1, &n, &(int){7}, &err), 0);
    assert_int_equal(h5_set_value(file, "/", "big", H5_TYPE_I64, &big, &err), 0);
    assert_int_equal(h5_set_value(file, "d", "x", DTYPE_F64, &x, &err), 0);
    assert_int_equal(h5_set_text(file, "d", "text", "seven", &err), 0);
    assert_int_equal(h5_set_text(file, "d", "empty", "", &err), 0);
    file = open_again(file, "attributes.h5");
    assert_int_equal(h5_get_value(file, "/", "big", H5_TYPE_I64, &n, &err), 0);
    assert_true(n == big);
    assert_int_equal(h5_get_value(file, "d", "x", DTYPE_F64, &y, &err), 0);
    assert_true(x == y);
    assert_int_equal(h5_get_text(file, "d", "text", text, sizeof text, &err), 0);
    assert_string_equal(text, "seven");
    assert_int_equal(h5_get_text(file, "d", "empty", text, sizeof text, &err), 0);
    assert_string_equal(text, "");
    assert_int_equal(h5_get_text(file, "d", "text", text, 5, &err), -1);
    assert_non_null(strstr(err.text, "too long"));
    assert_int_equal(h5_get_text(file, "d", "x", text, sizeof text, &err), -1);
    assert_int_equal(h5_get_value(file, "d", "nothing", H5_TYPE_I64, &n, &err), -1);
    assert_non_null(strstr(err.text, "attributes.h5: no attribute nothing"));
    h5_close(file, NULL);
}

struct row {
    char name[11];
    int64_t a;
    uint64_t b;
};

static void rows_come_back(void **state)
{
    static const struct h5_field fields[] = {
        {"name", H5_FIELD_TEXT, offsetof(struct row, name), sizeof(((struct row *)0)->name)},
        {"a", H5_FIELD_I64, offsetof(struct row, a)},
        {"b", H5_FIELD_U64, offsetof(struct row, b)},
    };
    static const struct h5_table table = {"index/rows", fields, 3, sizeof(struct row)};
    static const struct h5_table none = {"index/none", fields, 3, sizeof(struct row)};
    struct row rows[] = {{"ten chars.", -1, UINT64_MAX}, {"", INT64_MAX, 0}, {"x", 3, 4}};
    struct error err = {0};
    struct h5 *file = create("rows.h5");
    struct row *again;
    int64_t count;
    assert_int_equal(h5_write_rows(file, &table, rows, 3, &err), 0);
    assert_int_equal(h5_write_rows(file, &none, NULL, 0, &err), 0);
    file = open_again(file, "rows.h5");
    assert_int_equal(h5_read_rows(file, &table, (void **)&again, &count, &err), 0);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(again[i].name, rows[i].name);
        assert_true(again[i].a == rows[i].a && again[i].b == rows[i].b);
    }
    free(again);
    assert_int_equal(h5_read_rows(file, &none, (void **)&again, &count, &err), 0);
    assert_int_equal(count, 0);
    assert_null(again);
    h5_close(file, NULL);
}

/* The boxes, walked one after another, visit exactly the interval in order. */
static void check_boxes(int rank, const int64_t *dims, int64_t start, int64_t count)
{
    int64_t from[16][H5_RANK_MAX], size[16][H5_RANK_MAX], next = start;
    int boxes = h5_boxes(rank, dims, start, count, from, size);
    assert_true(boxes <= 2 * rank - 1);
    for (int b = 0; b < boxes; b++) {
        int64_t elems = 1, at = 0;
        for (int i = 0; i < rank; i++) {
            assert_true(size[b][i] >= 1 && from[b][i] >= 0);
            assert_true(from[b][i] + size[b][i] <= dims[i]);
            elems *= size[b][i];
            at = at * dims[i] + from[b][i];
        }
        assert_int_equal(at, next);
        /* in a box that is an interval, only the first axis with more than one place
         * may be partial */
        for (int i = 0, wide = 0; i < rank; i++) {
            assert_true(!wide || size[b][i] == dims[i]);
            wide |= size[b][i] > 1;
        }
        next += elems;
    }
    assert_int_equal(next, start + count);
}

static void boxes_cover_intervals(void **state)
{
    static const int64_t shapes[][4] = {
        {7, 1, 1, 1}, {1, 7, 1, 1}, {3, 5, 7, 1}, {2, 3, 1, 5}, {2, 2, 2, 2}, {1, 1, 1, 1},
    };
    for (int s = 0; s < 6; s++)
        for (int rank = 1; rank <= 4; rank++) {
            int64_t elems = 1;
            for (int i = 0; i < rank; i++)
                elems *= shapes[s][i];
            for (int64_t start = 0; start <= elems; start++)
                for (int64_t count = 0; start + count <= elems; count++)
                    check_boxes(rank, shapes[s], start, count);
        }
}

/* Two source files, cut at an odd place, seen as one tensor from another folder. */
static void views_show_the_whole(void **state)
{
    struct error err = {0};
    int64_t dims[] = {3, 5, 7}, parts[] = {38, 67};
    int32_t data[105];
    void *again;
    char name[2][16] = {"part", "part"};
    struct box whole = box_whole(3, dims);
    struct h5_source sources[] = {{"one.h5", name[0], 0, 38, whole},
                                  {"two.h5", name[1], 38, 67, whole}};
    for (int i = 0; i < 105; i++)
        data[i] = i * i;
    for (int i = 0; i < 2; i++) {
        struct h5 *file = create(sources[i].file);
        assert_int_equal(h5_write(file, "part", DTYPE_I32, 1, &parts[i], data + i * 38, &err), 0);
        assert_int_equal(h5_close(file, &err), 0);
    }
    struct h5 *file = create("view.h5");
    assert_int_equal(h5_virtual(file, "a/whole", DTYPE_I32, 3, dims, sources, 2, &err), 0);
    file = open_again(file, "view.h5");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(h5_read(file, "a/whole", DTYPE_I32, &again, NULL, &err), 0);
    assert_memory_equal(again, data, sizeof data);
    free(again);
    h5_close(file, NULL);
}

/* An index has several views of each of a model's tensors.  Until their file is closed HDF5 would
 * keep all of them in memory: 50 MiB of these. */
static void many_views_take_little_memory(void **state)
{
    enum { VIEWS = 2500, SOURCES = 4, MOST_BYTES = 8 << 20 };
    const int64_t dims[] = {16, 16};
    char part[] = "part", name[32];
    struct h5_source sources[SOURCES];
    struct error err = {0};
    size_t before = 0;
    for (int i = 0; i < SOURCES; i++)
        sources[i] = (struct h5_source){"one.h5", part, i * 64, 64, box_whole(2, dims)};
    struct h5 *file = create("many.h5");
    for (int i = 0; i < VIEWS; i++) {
        before = i == VIEWS / 5 ? mem_resident_bytes() : before;
        snprintf(name, sizeof name, "group/view%d", i);
        assert_int_equal(h5_virtual(file, name, DTYPE_I32, 2, dims, sources, SOURCES, &err), 0);
    }
    size_t after = mem_resident_bytes();
    assert_int_equal(h5_close(file, &err), 0);
    if (after > before + MOST_BYTES)
        fail_msg("%zu bytes more", after - before);
}

static void failures_name_the_file(void **state)
{
    struct error err = {0};
    struct h5 *file;
    int64_t n = 1, one = 1;
    assert_int_equal(h5_open(&file, in_folder("absent.h5"), &err), -1);
    assert_null(file);
    assert_non_null(strstr(err.text, "absent.h5: cannot open the file: No such file"));
    assert_int_equal(h5_create_after(&file, in_folder("no/x.h5"), 0, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
    file = create("names.h5");
    assert_int_equal(h5_write(file, "a", DTYPE_U8, 1, &n, "x", &err), 0);
    assert_int_equal(h5_write(file, "a", DTYPE_U8, 1, &n, "x", &err), -1);
    assert_non_null(strstr(err.text, "names.h5: cannot create dataset a"));
    assert_int_equal(h5_read(file, "b", DTYPE_U8, (void **)&n, NULL, &err), -1);
    assert_non_null(strstr(err.text, "no dataset b"));
    struct h5_source nameless = {.file = "one.h5", .count = 1, .box = box_whole(1, &one)};
    assert_int_equal(h5_virtual(file, "c", DTYPE_U8, 1, &one, &nameless, 1, &err), -1);
    assert_non_null(strstr(err.text, "names.h5: cannot create virtual dataset c: "));
    assert_null(strstr(err.text, "no reason given"));
    h5_close(file, NULL);
    assert_int_equal(h5_close(NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(locks_are_off),
        cmocka_unit_test(every_type_comes_back),
        cmocka_unit_test(bf16_is_a_float_to_hdf5),
        cmocka_unit_test(reserved_bytes_are_the_dataset),
        cmocka_unit_test(attributes_come_back),
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(boxes_cover_intervals),
        cmocka_unit_test(views_show_the_whole),
        cmocka_unit_test(many_views_take_little_memory),
        cmocka_unit_test(failures_name_the_file),
    };
    h5_setup();
    return cmocka_run_group_tests_name("h5", tests, make_folder, remove_folder);
}
