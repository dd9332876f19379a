/* test_catalog.c - properties of io/catalog.h: the pieces of a checkpoint by the files they are in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/array.h"
#include "io/catalog.h"
#include "io/disk.h"
#include "tests/unit/h5_data.h"

/* A catalog of tensors that so many ranks hold in equal parts of SHARE elements; rank r + 1 holds
 * the part behind rank r's. */
enum { SHARE = 5 };

static struct catalog make_catalog(int tensors, int ranks)
{
    struct error err = {0};
    struct catalog catalog;
    int64_t dims[] = {ranks, SHARE};
    struct catalog_entry *entries = array_make((size_t)(tensors * ranks), sizeof *entries);
    for (int t = 0; t < tensors; t++)
        for (int r = 0; r < ranks; r++) {
            struct catalog_entry *entry = &entries[r * tensors + t];
            snprintf(entry->name, sizeof entry->name, "model/%03d", t);
            entry->dtype = DTYPE_F32;
            entry->box = box_whole(2, dims);
            entry->start = (int64_t)r * SHARE;
            entry->count = SHARE;
            entry->shard = (r + t) % ranks;
        }
    if (catalog_build(&catalog, entries, tensors * ranks, &err) || catalog_check(&catalog, &err))
        fail_msg("%s", err.text);
    free(entries);
    catalog.file_count = ranks;
    catalog.files = array_make((size_t)ranks, sizeof *catalog.files);
    return catalog;
}

/* Each piece is in the list of its own file, and in no other, so that to visit all files is to
 * visit each piece once. */
static void check_shards(const struct catalog *catalog)
{
    struct catalog_shards shards = catalog_shards_make(catalog);
    int *seen = array_make((size_t)catalog->piece_count, sizeof *seen);
    assert_int_equal(shards.first[0], 0);
    assert_int_equal(shards.first[catalog->file_count], catalog->piece_count);
    for (int64_t s = 0; s < catalog->file_count; s++)
        for (int64_t i = shards.first[s]; i < shards.first[s + 1]; i++) {
            assert_in_range(shards.numbers[i], 0, catalog->piece_count - 1);
            assert_int_equal(catalog->pieces[shards.numbers[i]].shard, s);
            assert_true(i == shards.first[s] || shards.numbers[i - 1] < shards.numbers[i]);
            assert_int_equal(seen[shards.numbers[i]]++, 0);
        }
    free(seen);
    catalog_shards_free(&shards);
    assert_null(shards.first);
}

static void every_piece_is_of_one_file(void **state)
{
    static const int sizes[][2] = {{1, 1}, {1, 7}, {3, 1}, {13, 5}, {2, 31}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct catalog catalog = make_catalog(sizes[i][0], sizes[i][1]);
        check_shards(&catalog);
        for (int64_t p = 0; p < catalog.piece_count; p++)
            catalog.pieces[p].shard = catalog.file_count - 1; /* the other files have none */
        check_shards(&catalog);
        catalog.piece_count = 0;
        check_shards(&catalog);
        catalog_free(&catalog);
    }
}

/* The mappings of the views in file number s, each of as many pieces as its tensor has. */
static int64_t count_views(const struct catalog *catalog, int64_t s, const char *path)
{
    struct error err = {0};
    struct h5 *file;
    int64_t count = 0;
    if (h5_create(&file, path, &err) || catalog_write_views(catalog, file, s, &err))
        fail_msg("%s", err.text);
    for (int64_t t = 0; t < catalog->tensor_count; t++) {
        char name[CATALOG_NAME + 8];
        snprintf(name, sizeof name, "views/%s", catalog->tensors[t].name);
        assert_int_equal(h5_has(file, name),
                         catalog_view_shard(catalog, &catalog->tensors[t]) == s);
        if (!h5_has(file, name))
            continue;
        assert_int_equal(h5_mappings(file, name), catalog->tensors[t].count);
        count += catalog->tensors[t].count;
    }
    assert_int_equal(h5_close(file, &err), 0);
    return count;
}

static void check_index(const struct catalog *catalog, const char *path)
{
    struct error err = {0};
    struct h5 *file;
    if (catalog_write(catalog, path, &err) || h5_open(&file, path, &err))
        fail_msg("%s", err.text);
    for (int64_t t = 0; t < catalog->tensor_count; t++)
        assert_int_equal(h5_mappings(file, catalog->tensors[t].name), 1);
    h5_close(file, NULL);
}

/* What one rank has HDF5 map does not grow with the pieces of all ranks: index.h5 has a mapping for
 * each tensor, a shard file no more than its share of the pieces and those of one tensor. */
static void mappings_are_shared_out(void **state)
{
    static const int sizes[][2] = {{1, 1}, {1, 7}, {3, 1}, {13, 5}, {2, 31}, {40, 11}};
    char folder[] = "/tmp/trireme-catalog-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file.h5", folder);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct catalog catalog = make_catalog(sizes[i][0], sizes[i][1]);
        int64_t count = 0;
        for (int64_t s = 0; s < catalog.file_count; s++) {
            int64_t here = count_views(&catalog, s, path);
            assert_true(here <= catalog.piece_count / catalog.file_count + sizes[i][1]);
            count += here;
        }
        assert_int_equal(count, catalog.piece_count);
        check_index(&catalog, path);
        catalog_free(&catalog);
    }
    assert_int_equal(disk_remove(folder, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_of_one_file),
        cmocka_unit_test(mappings_are_shared_out),
    };
    h5_setup();
    return cmocka_run_group_tests_name("catalog", tests, NULL, NULL);
}
