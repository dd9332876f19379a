/* test_folder.h - a folder for the files of a test program, made and removed by its group of tests.
 */
#ifndef TRIREME_TESTS_UNIT_TEST_FOLDER_H
#define TRIREME_TESTS_UNIT_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"

static char folder[64]; /* its path */

/* Returns the path of a file in it, which is good until the next call. */
static inline const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Set up and tear down the group. */
static inline int make_folder(void **state)
{
    strcpy(folder, "/tmp/trireme-unit-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    return disk_remove(folder, NULL);
}

#endif
