/* test_cuda_self_check_kept.c - the file in which verdicts of the self-check are kept, and the key
 * that says what they are for.
 *
 * Built twice: for real GPUs, and for the emulated one.
 */
#include "cuda_check.h"

#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "device/self_check_private.h"

static char folder[64];

static void in_folder(const char *name)
{
    setenv("XDG_CACHE_HOME", name, 1);
}

static char *only_file(void)
{
    char command[160], *path = calloc(1, 512);
    snprintf(command, sizeof command, "ls -A %s/trireme", folder);
    FILE *list = popen(command, "r");
    char name[256] = "", more[256] = "";
    assert_int_equal(fscanf(list, "%255s %255s", name, more), 1);
    pclose(list);
    snprintf(path, 512, "%s/trireme/%s", folder, name);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static struct self_check example(void)
{
    struct self_check check = {.seconds = 0.5};
    for (int i = 0; self_check_families[i].name; i++)
        check.row[check.rows++] = (struct self_check_row){
            .family = self_check_families[i].name, .bit = self_check_bit(&self_check_families[i])};
    check.row[1].verdict = SELF_CHECK_REPLACED;
    check.row[13].verdict = SELF_CHECK_UNUSED;
    check.replaced = check.row[1].bit;
    return check;
}

static void verdicts_are_kept(void **state)
{
    struct self_check check = example(), kept;
    struct error err = {0};
    snprintf(folder, sizeof folder, "self_check.%d", (int)getpid());
    char *place = realpath(".", NULL), all[600];
    snprintf(all, sizeof all, "%s/%s", place, folder);
    in_folder(all);
    assert_int_equal(self_check_load(&kept, "A, driver 1"), -1);
    assert_int_equal(self_check_store(&check, "A, driver 1", &err), 0);
    assert_int_equal(self_check_load(&kept, "A, driver 1"), 0);
    assert_int_equal(kept.rows, check.rows);
    assert_int_equal(kept.replaced, check.replaced);
    assert_int_equal(kept.was_kept, 1);
    for (int i = 0; i < kept.rows; i++)
        assert_int_equal(kept.row[i].verdict, check.row[i].verdict);
    assert_int_equal(self_check_load(&kept, "A, driver 2"), -1);
    char *path = only_file(); /* nothing is left beside it */
    struct js *file = js_read(path, &err);
    char *text = js_text(file, JS_INDENTED, &err);
    size_t length = strlen(text);
    for (size_t end = 0; end + 2 < length; end += 97) { /* cut short anywhere */
        char *cut = strdup(text);
        cut[end] = 0;
        write_file(path, cut);
        free(cut);
        assert_int_equal(self_check_load(&kept, "A, driver 1"), -1);
    }
    const char *const damaged[][2] = {
        {"\"replaced\"", "\"certain\""}, {"\"rmsnorm\"", "\"rmsnorn\""}, {"driver 1", "driver 2"}};
    for (int i = 0; i < 3; i++) {
        char *copy = strdup(text);
        char *at = strstr(copy, damaged[i][0]);
        assert_non_null(at);
        memcpy(at, damaged[i][1], strlen(damaged[i][1]));
        write_file(path, copy);
        free(copy);
        assert_int_equal(self_check_load(&kept, "A, driver 1"), -1);
    }
    assert_int_equal(self_check_store(&check, "A, driver 1", &err), 0);
    assert_int_equal(self_check_load(&kept, "A, driver 1"), 0);
    unlink(path);
    for (int i = 0; i < check.rows;
         i++) /* a check in which a library refused something is not kept */
        check.row[i].is_refused = check.row[i].verdict == SELF_CHECK_REPLACED;
    assert_int_equal(self_check_store(&check, "A, driver 1", &err), 0);
    assert_int_equal(self_check_load(&kept, "A, driver 1"), -1);
    for (int i = 0; i < check.rows; i++)
        check.row[i].is_refused = 0;
    check.row[30].verdict = SELF_CHECK_WRONG; /* such a check is made again */
    check.wrong = 1;
    assert_int_equal(self_check_store(&check, "A, driver 1", &err), 0);
    assert_int_equal(self_check_load(&kept, "A, driver 1"), -1);
    free(path);
    free(text);
    js_free(file);
    free(place);
    snprintf(all, sizeof all, "rmdir %s/trireme %s", folder, folder);
    assert_int_equal(system(all), 0);
}

static void a_folder_that_cannot_be_written_is_no_failure(void **state)
{
    struct self_check check = example(), kept;
    struct error err = {0};
    in_folder("/proc/none");
    assert_int_equal(self_check_store(&check, "A", &err), -1);
    assert_non_null(strstr(err.text, "/proc/none"));
    assert_int_equal(self_check_load(&kept, "A"), -1);
}

static void the_key_names_what_counts(void **state)
{
    char key[1024], again[1024];
    struct error err = {0};
    struct check c = check_open();
    assert_int_equal(self_check_key(key, 0, &err), 0);
    assert_int_equal(self_check_key(again, 0, &err), 0);
    assert_string_equal(key, again);
    printf("%s\n", key);
    assert_non_null(strstr(key, c.gpu->name));
    assert_non_null(strstr(key, c.gpu->level));
    assert_non_null(strstr(key, "CUDA"));
    assert_non_null(strstr(key, "cuBLASLt"));
    const char *build = strstr(key, "build ");
    assert_true(build && strlen(build) > 20);
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_kept),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_no_failure),
        cmocka_unit_test(the_key_names_what_counts),
    };
    return check_main("self-check of the GPU: what is kept", tests);
}
