/* test_megatron.c - documents by Megatron's .idx: those of whole files, and files that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/megatron.h"

static char folder[] = "/tmp/trireme-megatron-XXXXXX", bin[64], path[64];

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(bin, sizeof bin, "%s/x.bin", folder);
    snprintf(path, sizeof path, "%s/x.idx", folder);
    return 0;
}

static int remove_folder(void **state)
{
    return unlink(path) || rmdir(folder) ? -1 : 0;
}

/* An .idx as it is written, or with what a test changes of it. */
struct index {
    int type, width;
    int64_t version, sequences, bounds; /* sequences and bounds: by its header */
    const int32_t *length;
    const int64_t *bound;
    int64_t lengths;    /* that the file has */
    int64_t wrong, off; /* sequence `wrong` begins `off` bytes too late */
};

static void put(FILE *file, int64_t number, int bytes)
{
    uint64_t little = htole64((uint64_t)number);
    fwrite(&little, 1, (size_t)bytes, file);
}

static void write_index(const struct index *x)
{
    FILE *file = fopen(path, "wb");
    int64_t at = 0;
    fwrite("MMIDIDX\0", 1, 9, file);
    put(file, x->version, 8);
    put(file, x->type, 1);
    put(file, x->sequences, 8);
    put(file, x->bounds, 8);
    for (int64_t i = 0; i < x->lengths; i++)
        put(file, x->length[i], 4);
    for (int64_t i = 0; i < x->lengths; at += x->length[i++] * x->width)
        put(file, at + (i == x->wrong ? x->off : 0), 8);
    for (int64_t i = 0; i < x->bounds; i++)
        put(file, x->bound[i], 8);
    fclose(file);
}

/* Three documents of 3, 0 and 7 ids, of one, no and three sequences. */
static const int32_t lengths[] = {3, 2, 0, 5};
static const int64_t bounds[] = {0, 1, 1, 4};
static const struct index good = {.type = 8,
                                  .width = 2,
                                  .version = 1,
                                  .sequences = 4,
                                  .bounds = 4,
                                  .length = lengths,
                                  .lengths = 4,
                                  .bound = bounds,
                                  .wrong = -1};

static int type_of(const char *of)
{
    struct error err = {0};
    int type;
    if (megatron_type(of, &type, &err))
        fail_msg("%s", err.text);
    return type;
}

static void documents_end_where_it_says(void **state)
{
    struct megatron_index *index;
    struct error err = {0};
    write_index(&good);
    assert_int_equal(type_of(bin), 8);
    assert_int_equal(type_of(path), -1);
    assert_int_equal(megatron_open(&index, bin, 10, 2, &err), 0);
    assert_int_equal(megatron_next_end(index, &err), 3);
    assert_int_equal(megatron_next_end(index, &err), 3);
    assert_int_equal(megatron_next_end(index, &err), 10);
    assert_int_equal(megatron_finish(index, &err), 0);
    assert_int_equal(megatron_next_end(index, &err), -1);
    megatron_close(index);
}

/* Behind all ids: empty documents alone, of empty sequences. */
static void what_is_left_is_empty(void **state)
{
    static const int64_t ends[] = {0, 4, 4, 5, 5};
    static const int32_t empty[] = {3, 2, 0, 5, 0};
    struct index x = good;
    struct megatron_index *index;
    struct error err = {0};
    x.bound = ends;
    x.bounds = x.sequences = x.lengths = 5;
    x.length = empty;
    write_index(&x);
    assert_int_equal(megatron_open(&index, bin, 10, 2, &err), 0);
    assert_int_equal(megatron_next_end(index, &err), 10);
    assert_int_equal(megatron_finish(index, &err), 3);
    megatron_close(index);
    write_index(&(struct index){.type = 8, .width = 2, .version = 1, .bounds = 1, .bound = ends});
    assert_int_equal(megatron_open(&index, bin, 0, 2, &err), 0);
    assert_int_equal(megatron_finish(index, &err), 0);
    megatron_close(index);
    assert_int_equal(megatron_open(&index, path, 0, 2, &err), -1);
    assert_non_null(strstr(err.text, "is no .bin"));
}

/* More than is in memory at a time: document d has d % 3 sequences of 1 to 5 ids. */
static void many_documents(void **state)
{
    enum { DOCUMENTS = 30000 };
    static int32_t length[DOCUMENTS];
    static int64_t bound[DOCUMENTS + 1], end[DOCUMENTS];
    struct megatron_index *index;
    struct error err = {0};
    int64_t sequences = 0, ids = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        for (int s = 0; s < d % 3; s++, sequences++)
            ids += length[sequences] = (int32_t)(1 + (sequences * 7 + d) % 5);
        bound[d + 1] = sequences;
        end[d] = ids;
    }
    write_index(&(struct index){.type = 4,
                                .width = 4,
                                .version = 1,
                                .sequences = sequences,
                                .bounds = DOCUMENTS + 1,
                                .length = length,
                                .lengths = sequences,
                                .bound = bound,
                                .wrong = -1});
    assert_int_equal(megatron_open(&index, bin, ids, 4, &err), 0);
    for (int d = 0; d < DOCUMENTS; d++)
        assert_int_equal(megatron_next_end(index, &err), end[d]);
    megatron_close(index);
}

/* Beside a .bin of so many ids it is refused, when it is opened or read, by these words and with
 * its path. */
static void refuse_beside(int64_t ids, const struct index *x, const char *words)
{
    struct megatron_index *index;
    struct error err = {0};
    write_index(x);
    int rc = megatron_open(&index, bin, ids, 2, &err);
    for (int64_t end = 0; !rc && end < ids;) {
        end = megatron_next_end(index, &err);
        rc = end < 0;
    }
    rc = rc || megatron_finish(index, &err) < 0;
    megatron_close(index);
    if (!rc || !strstr(err.text, words) || !strstr(err.text, path))
        fail_msg("'%s', without '%s' or the path", err.text, words);
}

static void refuse(const struct index *x, const char *words)
{
    refuse_beside(10, x, words);
}

static void lies_are_refused(void **state)
{
    static const int64_t back[] = {0, 3, 1, 4}, late[] = {1, 1, 1, 4}, far[] = {0, 1, 1, 5};
    static const int64_t few[] = {0, 1, 1, 3};
    static const int32_t negative[] = {3, -2, 0, 9}, many[] = {3, 2, 0, 6};
    struct index x = good;
    x.version = 2;
    refuse(&x, "version 2");
    x = good;
    x.sequences = 9;
    refuse(&x, "truncated");
    x.sequences = INT64_MAX;
    refuse(&x, "truncated");
    x.sequences = -1;
    refuse(&x, "has -1 sequences and 4 bounds");
    x = good;
    x.bounds = 0;
    refuse(&x, "has 4 sequences and 0 bounds");
    x = good;
    x.bound = back;
    refuse(&x, "document 1 begins with sequence 3 and ends before sequence 1, of 4");
    x.bound = late;
    refuse(&x, "document 0 begins with sequence 1 and ends before sequence 1, of 4");
    x.bound = far;
    refuse(&x, "document 2 begins with sequence 1 and ends before sequence 5, of 4");
    x.bound = few;
    refuse(&x, "its 3 documents have 5 ids; the .bin has 10");
    refuse_beside(5, &x,
                  "its 3 documents have 3 of its 4 sequences, and 5 ids; the .bin has 5 ids");
    refuse_beside(3, &good, "sequence 1 has 2 ids from id 3 on; the .bin has 3");
    refuse_beside(0, &good, "sequence 0 has 3 ids from id 0 on; the .bin has 0");
    x = good;
    x.length = negative;
    refuse(&x, "sequence 1 has -2 ids");
    x.length = many;
    refuse(&x, "sequence 3 has 6 ids from id 5 on; the .bin has 10");
    x = good;
    x.wrong = 1;
    x.off = 2;
    refuse(&x, "sequence 1 begins at byte 8 of the .bin, and the one before it ends at byte 6");
    write_index(&good);
    struct megatron_index *index;
    struct error err = {0};
    assert_int_equal(truncate(path, 33), 0);
    assert_int_equal(megatron_open(&index, bin, 10, 2, &err), -1);
    int type;
    assert_int_equal(truncate(path, 17), 0);
    assert_int_equal(megatron_type(bin, &type, &err), -1);
    assert_non_null(strstr(err.text, "truncated"));
    assert_int_equal(truncate(path, 8), 0);
    assert_int_equal(type_of(bin), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(type_of(bin), -1);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(megatron_type(bin, &type, &err), -1);
    assert_int_equal(rmdir(path), 0);
    x = good;
    x.type = 0;
    write_index(&x);
    assert_int_equal(type_of(bin), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_end_where_it_says),
        cmocka_unit_test(what_is_left_is_empty),
        cmocka_unit_test(many_documents),
        cmocka_unit_test(lies_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
