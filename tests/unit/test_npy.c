/* test_npy.c - files of token ids: those that are whole, and those that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/npy.h"

static char path[] = "/tmp/trireme-npy-XXXXXX";

static int make_path(void **state)
{
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    return unlink(path);
}

/* A .npy file of version 1 or 2 with this header, and so many bytes of numbers. */
static void write_npy(const char *header, int version, const void *numbers, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    uint32_t length = (uint32_t)strlen(header);
    uint16_t narrow = htole16((uint16_t)length);
    uint32_t wide = htole32(length);
    fwrite("\x93NUMPY", 1, 6, file);
    fputc(version, file);
    fputc(0, file);
    if (version > 1)
        fwrite(&wide, 4, 1, file);
    else
        fwrite(&narrow, 2, 1, file);
    fwrite(header, 1, length, file);
    fwrite(numbers, 1, bytes, file);
    fclose(file);
}

static void write_llmc(uint32_t magic, uint32_t version, uint32_t count, const void *numbers,
                       size_t bytes)
{
    uint32_t front[256] = {htole32(magic), htole32(version), htole32(count)};
    FILE *file = fopen(path, "wb");
    fwrite(front, 1, sizeof front, file);
    fwrite(numbers, 1, bytes, file);
    fclose(file);
}

static void check_ids(enum npy_format format)
{
    struct npy npy;
    struct error err = {0};
    uint32_t ids[3];
    if (npy_open(&npy, path, format, &err) || npy_read(&npy, 0, 3, 1000, ids, &err))
        fail_msg("%s", err.text);
    assert_int_equal(npy.count, 3);
    assert_int_equal(ids[0], 7);
    assert_int_equal(ids[1], 0);
    assert_int_equal(ids[2], 999);
    assert_int_equal(npy_read(&npy, 1, 3, 1000, ids, &err), -1);
    assert_int_equal(npy_read(&npy, -1, 1, 1000, ids, &err), -1);
    assert_int_equal(npy_read(&npy, 0, 3, 999, ids, &err), -1);
    assert_non_null(strstr(err.text, "number 2 is 999, outside the vocabulary of 999"));
    npy_close(&npy);
}

static void formats_are_read(void **state)
{
    static const uint16_t u2[] = {7, 0, 999};
    static const uint32_t u4[] = {7, 0, 999};
    static const uint64_t u8[] = {7, 0, 999};
    uint16_t swapped2[3];
    uint32_t swapped4[3];
    uint64_t swapped8[3];
    for (int i = 0; i < 3; i++) {
        swapped2[i] = htobe16(u2[i]);
        swapped4[i] = htobe32(u4[i]);
        swapped8[i] = htobe64(u8[i]);
    }
    const struct {
        const char *descr;
        const void *numbers;
        size_t bytes;
    } rows[] = {
        {"<u2", u2, 6},       {"<u4", u4, 12},       {"<i4", u4, 12},       {"<i8", u8, 24},
        {">u2", swapped2, 6}, {">i4", swapped4, 12}, {">i8", swapped8, 24},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int version = 1; version <= 3; version++) {
            char header[128];
            snprintf(header, sizeof header,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (3,), }    \n",
                     rows[i].descr);
            write_npy(header, version, rows[i].numbers, rows[i].bytes);
            check_ids(NPY_NUMPY);
        }
    write_llmc(20240520, 1, 3, u2, sizeof u2);
    check_ids(NPY_LLMC);
    write_llmc(20240801, 7, 3, u4, sizeof u4);
    check_ids(NPY_LLMC);
    FILE *file = fopen(path, "wb");
    fwrite(u2, 1, sizeof u2, file);
    fclose(file);
    check_ids(NPY_RAW);
}

static void refuse(enum npy_format format, const char *words)
{
    struct npy npy;
    struct error err = {0};
    assert_int_equal(npy_open(&npy, path, format, &err), -1);
    if (!strstr(err.text, words) || !strstr(err.text, path))
        fail_msg("'%s', without '%s' or the path", err.text, words);
}

static void headers_are_not_trusted(void **state)
{
    static const struct {
        const char *header, *words;
    } rows[] = {
        {"", "descr"},
        {"{'descr': ", "descr"},
        {"{'descr': '<", "descr"},
        {"{'descr': '<u2", "descr"},
        {"{'descr': '<f4', 'shape': (3,), }", "its numbers are '<f4'"},
        {"{'descr': '<u1', 'shape': (3,), }", "its numbers are '<u1'"},
        {"{'descr': [('a', '<u2')], 'shape': (3,), }", "descr"},
        {"{'descr': '<u2', }", "shape"},
        {"{'descr': '<u2', 'shape': (", "shape"},
        {"{'descr': '<u2', 'shape': (-3,), }", "shape"},
        {"{'descr': '<u2', 'shape': (), }", "shape"},
        {"{'descr': '<u2', 'shape': (1, 3), }", "one dimension"},
        {"{'descr': '<u2', 'shape': (3", "one dimension"},
        {"{'descr': '<u2', 'shape': (99999999999999999999,), }", "one dimension"},
        {"{'descr': '<u2', 'shape': (4,), }", "truncated: 4 numbers in its header, 3"},
        {"{'descr': '<u2', 'shape': (2,), }", "2 bytes follow the 2 numbers"},
        {"{'descr': '<i8', 'shape': (9223372036854775807,), }", "truncated"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_npy(rows[i].header, 1, "abcdef", 6);
        refuse(NPY_NUMPY, rows[i].words);
    }
    write_npy("{}", 9, "abcdefgh", 8);
    refuse(NPY_NUMPY, "version 9");
    FILE *file = fopen(path, "wb");
    fwrite("\x93NUMPY\x01\x00\xff\xff{}", 1, 12, file);
    fclose(file);
    refuse(NPY_NUMPY, "not whole");
    file = fopen(path, "wb");
    fwrite("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 1, 14, file);
    fclose(file);
    refuse(NPY_NUMPY, "too long");
    assert_int_equal(truncate(path, 9), 0);
    refuse(NPY_NUMPY, "truncated");
}

static void other_files_are_not_trusted(void **state)
{
    write_llmc(20240520, 2, 3, "abcdef", 6);
    refuse(NPY_LLMC, "version 2");
    write_llmc(20240520, 1, 4, "abcdef", 6);
    refuse(NPY_LLMC, "truncated: 4 numbers in its header, 3");
    write_llmc(20240520, 1, 2, "abcdef", 6);
    refuse(NPY_LLMC, "2 bytes follow the 2 numbers");
    write_llmc(20240520, 1, 3, "abcdefg", 7);
    refuse(NPY_LLMC, "1 bytes follow the 3 numbers");
    write_llmc(20240801, 7, 0xffffffff, "abcdef", 6);
    refuse(NPY_LLMC, "truncated");
    assert_int_equal(truncate(path, 1000), 0);
    refuse(NPY_LLMC, "truncated");
    assert_int_equal(truncate(path, 7), 0);
    refuse(NPY_RAW, "16-bit");
    refuse(NPY_NONE, "neither");
    struct npy npy;
    struct error err = {0};
    assert_int_equal(npy_open(&npy, "/tmp", NPY_RAW, &err), -1);
    assert_int_equal(npy_open(&npy, "/nowhere/x.npy", NPY_NUMPY, &err), -1);
}

static void negative_ids_are_named(void **state)
{
    struct npy npy;
    struct error err = {0};
    uint32_t ids[2];
    write_npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", 1,
              "\x01\0\0\0\xff\xff\xff\xff", 8);
    assert_int_equal(npy_open(&npy, path, NPY_NUMPY, &err), 0);
    assert_int_equal(npy_read(&npy, 0, 2, 1000, ids, &err), -1);
    assert_non_null(strstr(err.text, "number 1 is -1"));
    npy_close(&npy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_are_read),
        cmocka_unit_test(headers_are_not_trusted),
        cmocka_unit_test(other_files_are_not_trusted),
        cmocka_unit_test(negative_ids_are_named),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
