/* fp8_check.h - what the tests of products in fp8 on a GPU share: the GPU, and memory of it. */
#ifndef TRIREME_TESTS_UNIT_FP8_CHECK_H
#define TRIREME_TESTS_UNIT_FP8_CHECK_H

#include "fp8_reference.h"

struct gpu {
    struct device *d;
    struct mem mem;
};

/* Skips the test where there is none. */
struct gpu open_gpu(void);
void close_gpu(struct gpu *gpu);

/* Fail the test with err. */
void must(int failed, const struct error *err);

/* Memory of the GPU with a copy; off_gpu() copies it to `to` and frees it. */
void *on_gpu(struct gpu *gpu, const void *from, size_t bytes);
void off_gpu(struct gpu *gpu, void *to, size_t bytes, void *block);

/* For free(): all bits set, NaN in every format. */
void *poisoned(size_t bytes);

/* Run the tests, all skipped without a GPU; the exit status of the program. */
#define check_main(name, tests) check_group(name, tests, sizeof(tests) / sizeof(tests)[0])
int check_group(const char *name, const struct CMUnitTest *tests, size_t count);

#endif
