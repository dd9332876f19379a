/* test_nccl_cuda.c - the CUDA that NCCL was compiled with, read from files, and what follows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/gpu/nccl_cuda.h"

/* Return what is found in a file of `before` bytes and a text. */
static int found(size_t before, const char *text)
{
    char path[] = "/tmp/trireme-nccl-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    assert_non_null(file);
    for (size_t i = 0; i < before; i++)
        fputc((int)(i % 251), file);
    fputs(text, file);
    assert_false(fclose(file));
    int cuda = nccl_cuda_in_file(path);
    unlink(path);
    return cuda;
}

static void a_file_says_its_cuda(void **state)
{
    assert_int_equal(found(0, "NCCL version 2.26.2+cuda12.2"), 12020);
    assert_int_equal(found(4096 - 20, "NCCL version 2.28.9+cuda13.0\n and more"), 13000);
    assert_int_equal(found(70001, "NCCL version mismatch NCCL version 2.27.5+cuda12.9"), 12090);
}

static void other_files_say_nothing(void **state)
{
    assert_int_equal(found(0, ""), 0);
    assert_int_equal(found(100, "NCCL version "), 0);
    assert_int_equal(found(8192 - 19, "NCCL version 2.26.2"), 0);
    assert_int_equal(nccl_cuda_in_file("/none/libnccl.so.2"), 0);
}

static void kernels_start_in_order_where_nccl_and_driver_can(void **state)
{
    static const struct {
        int version, built, driver, orders;
    } row[] = {
        {22602, 12020, 13000, 0}, /* the wheel nvidia-nccl-cu12 2.26.2 */
        {22602, 12080, 12080, 1}, {22602, 0, 13000, 0},     {22705, 0, 13000, 1},
        {22705, 12020, 13000, 0}, {22809, 13000, 12020, 0}, {22809, 13000, 12030, 1},
        {0, 0, 13000, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        assert_int_equal(nccl_orders_starts(row[i].version, row[i].built, row[i].driver),
                         row[i].orders);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_says_its_cuda),
        cmocka_unit_test(other_files_say_nothing),
        cmocka_unit_test(kernels_start_in_order_where_nccl_and_driver_can),
    };
    return cmocka_run_group_tests_name("the CUDA of NCCL", tests, NULL, NULL);
}
