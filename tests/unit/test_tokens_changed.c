/* test_tokens_changed.c - a token file that is written to while it is open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "io/disk.h"
#include "io/h5.h"
#include "io/tokens.h"
#include "tests/unit/test_folder.h"

/* Two documents of 700 and 40000 tokens; files of one size, whatever the factor. */
static void write_file(const char *path, uint32_t factor)
{
    struct tokens_writer *writer;
    struct error err = {0};
    uint32_t *ids = malloc(40000 * sizeof *ids);
    for (uint32_t i = 0; i < 40000; i++)
        ids[i] = i * factor % 300;
    if (tokens_create(&writer, path, "bytes", 300, "a test", &err) ||
        tokens_append(writer, ids, 700, &err) || tokens_append(writer, ids, 40000, &err) ||
        tokens_finish(writer, &err))
        fail_msg("%s", err.text);
    free(ids);
}

/* Write the contents of one file over those of another, which stays the same file. */
static void overwrite(const char *path, const char *with)
{
    char command[300];
    snprintf(command, sizeof command,
             "cat %s >%s.whole && dd if=%s.whole of=%s conv=notrunc status=none", with, path, path,
             path);
    usleep(20000); /* the times of files advance in steps */
    assert_int_equal(system(command), 0);
}

static int unchanged(struct tokens *tokens, struct error *err)
{
    *err = (struct error){0};
    return tokens_check_unchanged(tokens, err);
}

static void files_that_are_overwritten_are_noticed(void **state)
{
    struct tokens tokens;
    struct error err = {0};
    char path[128], other[128], same[128];
    strcpy(path, in_folder("open.h5"));
    strcpy(other, in_folder("other.h5"));
    strcpy(same, in_folder("same.h5"));
    write_file(path, 7);
    write_file(same, 7);
    write_file(other, 11);
    assert_int_equal(tokens_open(&tokens, path, &err), 0);
    assert_int_equal(unchanged(&tokens, &err), 0);
    usleep(20000);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(unchanged(&tokens, &err), 0);
    overwrite(path, same);
    assert_int_equal(unchanged(&tokens, &err), 0);
    overwrite(path, other);
    assert_int_equal(unchanged(&tokens, &err), -1);
    assert_non_null(strstr(err.text, "open.h5 was changed at 2"));
    assert_int_equal(unchanged(&tokens, &err), 0); /* once */
    overwrite(path, same);
    assert_int_equal(unchanged(&tokens, &err), 0); /* it is what it was */
    /* times that were set back */
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    overwrite(path, other);
    const struct timespec times[] = {info.st_atim, info.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(unchanged(&tokens, &err), -1);
    overwrite(path, same);
    assert_int_equal(unchanged(&tokens, &err), 0);
    /* another name, another file of its name, and none */
    usleep(20000);
    assert_int_equal(link(path, in_folder("second.h5")), 0);
    assert_int_equal(unchanged(&tokens, &err), 0);
    usleep(20000);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(unchanged(&tokens, &err), 0);
    usleep(20000);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unchanged(&tokens, &err), 0);
    tokens_close(&tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_overwritten_are_noticed),
    };
    h5_setup();
    return cmocka_run_group_tests_name("tokens_changed", tests, make_folder, remove_folder);
}
