/* fp8_check.c - see fp8_check.h. */
#include "fp8_check.h"

#include <stdio.h>

enum { SKIPPED = 77 };

static char no_gpu[128]; /* why there is none, or "" */

void must(int failed, const struct error *err)
{
    if (failed)
        fail_msg("%s", err->text);
}

struct gpu open_gpu(void)
{
    struct gpu gpu = {0};
    struct error err = {0};
    if (no_gpu[0])
        skip();
    must(device_open(&gpu.d, &(struct device_request){.kind = DEVICE_CUDA}, &err), &err);
    return gpu;
}

void close_gpu(struct gpu *gpu)
{
    device_close(gpu->d);
    assert_int_equal(gpu->mem.blocks, 0);
}

void *on_gpu(struct gpu *gpu, const void *from, size_t bytes)
{
    struct error err = {0};
    void *block = device_alloc(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, &err);
    must(block == NULL, &err);
    must(device_upload(gpu->d, block, from, bytes, &err), &err);
    return block;
}

void off_gpu(struct gpu *gpu, void *to, size_t bytes, void *block)
{
    struct error err = {0};
    must(device_download(gpu->d, to, block, bytes, &err), &err);
    device_free(gpu->d, &gpu->mem, POOL_WORKSPACE, bytes, block);
}

void *poisoned(size_t bytes)
{
    void *block = malloc(bytes);
    assert_non_null(block);
    return memset(block, 0xff, bytes);
}

int check_group(const char *name, const struct CMUnitTest *tests, size_t count)
{
    if (device_gpu_count(no_gpu) > 0)
        no_gpu[0] = 0;
    else
        printf("all is skipped: %s\n", no_gpu);
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    return failed ? failed : no_gpu[0] ? SKIPPED : 0;
}
