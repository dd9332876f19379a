/* test_cgroup.c - limits of control groups, on a node whose files this test makes up. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/cgroup.h"

/* The files of a node. */
static const struct made {
    const char *path, *text;
} * made; /* path NULL behind the last */

/* In place of libc's, for files that are read: no control group but those made up. */
FILE *fopen(const char *path, const char *mode)
{
    for (const struct made *file = made; file && file->path; file++)
        if (!strcmp(path, file->path))
            return fmemopen((char *)file->text, strlen(file->text), "r");
    int fd = !made && *mode == 'r' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    return fd < 0 ? NULL : fdopen(fd, "r");
}

static double cores(const struct made *files)
{
    made = files;
    double found = cgroup_cores();
    made = NULL;
    return found;
}

/* Version 1 has controllers that are mounted together, in an order of its own on each system. */
static void a_controller_is_found_among_others(void **state)
{
    static const char *const lines[] = {"4:cpu:/job\n", "4:cpu,cpuacct:/job\n",
                                        "4:cpuacct,cpu:/job\n", "4:cpuset,cpuacct,cpu:/job\n"};
    static const char *const others[] = {"4:cpuacct:/job\n", "4:cpuset,cpuacct:/job\n",
                                         "4:name=cpu:/job\n"};
    struct made files[] = {{"/proc/self/cgroup", NULL},
                           {"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n"},
                           {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"},
                           {NULL, NULL}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        files[0].text = lines[i];
        assert_true(cores(files) == 1.5);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        files[0].text = others[i];
        assert_true(cores(files) == 0);
    }
}

/* The least limit on the path counts. */
static void folders_above_limit_too(void **state)
{
    static const struct made files[] = {{"/proc/self/cgroup", "0::/job/step/task\n"},
                                        {"/sys/fs/cgroup/job/cpu.max", "200000 100000\n"},
                                        {"/sys/fs/cgroup/job/step/cpu.max", "max 100000\n"},
                                        {"/sys/fs/cgroup/job/step/task/cpu.max", "700000 100000\n"},
                                        {NULL, NULL}};
    assert_true(cores(files) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_controller_is_found_among_others),
        cmocka_unit_test(folders_above_limit_too),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
