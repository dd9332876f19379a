/* test_large.c - programs as large as they come: Llama-3-70B on 512 ranks, in every strategy, is
 * compiled for all ranks and passes verification, each rank's program and all together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "plan/report.h"
#include "plan/variant.h"
#include "tests/unit/rig.h"

enum { RANKS = 512, NODES = 64 };

static void test_70b(void **state)
{
    struct config config = rig_config("model.preset=llama3-70b precision=bf16 device=cpu "
                                      "data.seq_len=8192 train.global_batch=512 recompute=full");
    for (int s = 0; s < CONFIG_STRATEGIES; s++) {
        char name[CONFIG_TEXT];
        struct error err = {0};
        struct report report;
        assert_int_equal(variant_strategy(&config, s, &err), 0);
        int64_t start = clock_ns();
        if (report_make(&report, &config, RANKS, NODES, 1, &err))
            fail_msg("%s", err.text);
        print_message("# %s: %d instructions on %d ranks compiled and verified in %.1f s\n",
                      variant_name(s, name), report.rank[0].instrs, RANKS,
                      (double)(clock_ns() - start) / 1e9);
        if (!report.verified)
            fail_msg("%s: %s", name, report.verdict.text);
        assert_int_equal(report.measured, RANKS);
        report_free(&report);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_70b)};
    return cmocka_run_group_tests_name("large", tests, NULL, NULL);
}
