/* test_run_record.c - run.json outlives a failing machine once it is said to, and any file a copy
 * over it that fails.
 *
 * fsync() and rename() here take the place of the C library's: they do the same, and are listed. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "io/disk.h"
#include "train/run_record.h"

static char calls[512];

static void list_call(const char *name, const char *path)
{
    const char *last = strrchr(path, '/');
    text_join(calls, sizeof calls, ", ", "%s %s", name, last ? last + 1 : path);
}

int fsync(int fd)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    assert_true(length > 0);
    list_call("fsync", path);
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    list_call("rename", from);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static void write_record(const char *dir, struct run_record *record, enum whole_file_care care)
{
    struct error err = {0};
    calls[0] = 0;
    assert_int_equal(run_record_write(record, dir, RUN_RECORD, care, &err), 0);
}

/* The file is on the disk before it has its name, and the name is before the function returns. */
static void durable(void **state)
{
    struct error err = {0};
    struct run_record record, again;
    char dir[] = "run.XXXXXX", wanted[128];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(run_record_new(&record, "node7", &err), 0);
    write_record(dir, &record, WHOLE_FILE_REPORT);
    assert_string_equal(calls, "rename run.json.partial");
    record.saved = 20;
    write_record(dir, &record, WHOLE_FILE_DURABLE);
    snprintf(wanted, sizeof wanted, "fsync run.json.partial, rename run.json.partial, fsync %s",
             dir);
    assert_string_equal(calls, wanted);
    assert_int_equal(run_record_read(&again, dir, RUN_RECORD, &err), 0);
    assert_string_equal(again.run, record.run);
    assert_string_equal(again.writer, "node7");
    assert_int_equal(again.saved, 20);
    assert_int_equal(disk_remove(dir, &err), 0);
}

static void assert_holds(const char *path, const char *text)
{
    char got[16] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(got, sizeof got, file));
    fclose(file);
    assert_string_equal(got, text);
}

/* Reading a folder fails when the copy has begun. */
static void a_failed_copy_leaves_the_file(void **state)
{
    struct error err = {0};
    char dir[] = "copy.XXXXXX", to[64], from[64], partial[64];
    assert_non_null(mkdtemp(dir));
    snprintf(to, sizeof to, "%s/to", dir);
    snprintf(from, sizeof from, "%s/from", dir);
    snprintf(partial, sizeof partial, "%s/to.partial", dir);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(i ? from : to, "w");
        assert_non_null(file);
        fputs(i ? "new" : "old", file);
        fclose(file);
    }
    assert_int_equal(disk_copy(dir, to, &err), -1);
    assert_true(err.text[0]);
    assert_holds(to, "old");
    assert_int_equal(disk_copy(from, to, &err), 0);
    assert_holds(to, "new");
    assert_int_not_equal(access(partial, F_OK), 0);
    assert_int_equal(disk_remove(dir, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(durable),
                                       cmocka_unit_test(a_failed_copy_leaves_the_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
