/* fp8_check.h - for tests of products in fp8 on a GPU: the GPU, and copies in its memory. */
#ifndef TRIREME_TESTS_UNIT_FP8_CHECK_H
#define TRIREME_TESTS_UNIT_FP8_CHECK_H

#include "fp8_reference.h"

struct gpu {
    struct device *d;
    struct mem mem;
};

/* Open the GPU; skip the test where there is none. */
struct gpu open_gpu(void);
void close_gpu(struct gpu *gpu);

/* Fail the test with err's text if `failed` is not 0. */
void must(int failed, const struct error *err);

/* Copy to new memory of the GPU, for off_gpu(). */
void *on_gpu(struct gpu *gpu, const void *from, size_t bytes);
/* Copy a block of the GPU to `to`, and free the block. */
void off_gpu(struct gpu *gpu, void *to, size_t bytes, void *block);

/* Allocate memory of the host, for free(), with all bits set: NaN in every format. */
void *poisoned(size_t bytes);

/* Run the tests, all skipped without a GPU; the exit status of the program. */
#define check_main(name, tests) check_group(name, tests, sizeof(tests) / sizeof(tests)[0])
int check_group(const char *name, const struct CMUnitTest *tests, size_t count);

#endif
