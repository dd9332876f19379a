/* test_run_spared.c - which checkpoint run_directory_note_loss() spares, by the training loss after
 * each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train/run_directory.h"

/* The step that is spared of checkpoints of steps 10, 20, ..., whose losses these are. */
static int64_t spared(const double *loss, int count)
{
    struct run_directory d = {.saved_step = -1, .best_step = -1};
    for (int i = 0; i < count; i++) {
        d.saved_step = 10 * (i + 1);
        run_directory_note_loss(&d, d.saved_step, 0.01); /* of the step that it has: none's */
        run_directory_note_loss(&d, d.saved_step + 1, loss[i]);
        run_directory_note_loss(&d, d.saved_step + 2, 0.01);
    }
    return d.best_step;
}

static void the_newest_while_losses_fall(void **state)
{
    (void)state;
    assert_int_equal(spared((double[]){4, 3, 2}, 3), 30);
    assert_int_equal(spared((double[]){4, 2, 2.1}, 3), 30); /* within a tenth */
}

static void the_lowest_before_losses_jump(void **state)
{
    (void)state;
    assert_int_equal(spared((double[]){4, 3, 2, 9, 8, 7}, 6), 30);
    assert_int_equal(spared((double[]){4, 3, NAN, INFINITY}, 4), 20);
}

/* Each loss is within a tenth of the one before. */
static void the_lowest_before_losses_rise_slowly(void **state)
{
    double loss[20] = {2};
    (void)state;
    for (int i = 1; i < 20; i++)
        loss[i] = 1.09 * loss[i - 1];
    assert_int_equal(spared(loss, 20), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_while_losses_fall),
        cmocka_unit_test(the_lowest_before_losses_jump),
        cmocka_unit_test(the_lowest_before_losses_rise_slowly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
