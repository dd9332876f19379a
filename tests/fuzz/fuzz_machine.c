/* fuzz_machine.c - bytes as a file of machines.  Each machine that is taken is written, read again,
 * and written the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"
#include "simulate/machine_file.h"
#include "simulate/machine_reader.h"
#include "tests/fuzz/fuzz.h"

static void same_files(const char *one, const char *other)
{
    char *a, *b;
    size_t of_a, of_b;
    struct error err = {0};
    if (config_file_text(one, &a, &of_a, &err) || config_file_text(other, &b, &of_b, &err))
        fuzz_fail("%s", err.text);
    if (of_a != of_b || memcmp(a, b, of_a))
        fuzz_fail("what was written and read again is written otherwise");
    free(a);
    free(b);
}

/* Times are numbers, or infinite where a machine has no such products. */
static void check_times(const struct machine *machine)
{
    if (!(machine_product_s(machine, DTYPE_BF16, PRODUCT_FORWARD, 3000, 2000, 1000) > 0) ||
        !(machine_memory_s(machine, "swiglu", DTYPE_BF16, 1e6) >= 0) ||
        !(machine_attention_s(machine, "attention", DTYPE_BF16, 1e9, 1000, MACHINE_ATTENTION_OWN) >=
          0) ||
        !(machine_transfer_s(machine, MACHINE_ALL_REDUCE, 16, 2, 2, 1e6) > 0))
        fuzz_fail("a time is no time");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct machine_list list = {0}, known = {0};
    struct machine again;
    struct error err = {0};
    if (machine_list_read(&list, &known, "machines.yaml", (const char *)data, bytes, &err))
        fuzz_check_error(&err);
    for (int i = 0; !err.text[0] && i < list.count; i++) {
        char one[512], other[512];
        snprintf(one, sizeof one, "%s", fuzz_path("one.yaml"));
        snprintf(other, sizeof other, "%s", fuzz_path("other.yaml"));
        check_times(&list.machine[i]);
        if (machine_write(&list.machine[i], one, NULL, &err))
            fuzz_fail("%s", err.text);
        if (machine_read(&again, one, NULL, &err))
            fuzz_fail("what was written is not taken: %s", err.text);
        if (machine_write(&again, other, NULL, &err))
            fuzz_fail("%s", err.text);
        same_files(one, other);
        machine_free(&again);
    }
    machine_list_free(&list);
    return 0;
}
