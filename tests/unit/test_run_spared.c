/* test_run_spared.c - which checkpoint run_directory_note_loss() spares, by the training loss after
 * each, and that a later start spares the same one, by the losses in their meta.json. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "io/checkpoint.h"
#include "io/disk.h"
#include "train/run_directory_private.h"

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

/* A committed checkpoint as far as its meta.json goes. */
static void write_checkpoint(const char *dir, int64_t step, double loss)
{
    struct error err = {0};
    char folder[64], meta[80], commit[80], digest[DISK_DIGEST];
    struct js *json = js_object(), *sums = js_object();
    snprintf(folder, sizeof folder, "%s/step-%08lld", dir, (long long)step);
    snprintf(meta, sizeof meta, "%s/meta.json", folder);
    snprintf(commit, sizeof commit, "%s/COMMIT", folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    js_add_real(json, "loss", loss);
    assert_int_equal(js_write(json, JS_INDENTED, WHOLE_FILE_REPORT, meta, &err), 0);
    assert_int_equal(disk_digest(meta, digest, &err), 0);
    js_add_string(sums, "meta", digest);
    assert_int_equal(js_write(sums, JS_ONE_LINE, WHOLE_FILE_REPORT, commit, &err), 0);
    js_free(json);
    js_free(sums);
}

/* Losses that end within a tenth of the lowest, that jump, and whose last checkpoint is of a step
 * after the one that the start resumes. */
static void a_later_start_spares_the_same(void **state)
{
    static const struct {
        double loss[6];
        int count, resumed;
    } rows[] = {{{4, 2, 2.1}, 3, 3}, {{4, 3, 2, 9, 8, 7}, 6, 6}, {{4, 3, 2, 1}, 4, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = {0};
        struct run_directory d = {.saved_step = -1, .best_step = -1};
        struct run_list list = {0};
        char dir[] = "spared.XXXXXX";
        assert_non_null(mkdtemp(dir));
        for (int k = 0; k < rows[i].count; k++)
            write_checkpoint(dir, 10 * (k + 1), rows[i].loss[k]);
        list.count = checkpoint_list(&list.entry, dir, &err);
        assert_int_equal(list.count, rows[i].count);
        run_directory_recall_losses(&d, &list, 10 * rows[i].resumed);
        assert_int_equal(d.best_step, spared(rows[i].loss, rows[i].resumed));
        checkpoint_list_free(list.entry, list.count);
        assert_int_equal(disk_remove(dir, &err), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_while_losses_fall),
        cmocka_unit_test(the_lowest_before_losses_jump),
        cmocka_unit_test(the_lowest_before_losses_rise_slowly),
        cmocka_unit_test(a_later_start_spares_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
