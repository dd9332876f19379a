/* last_start.c - a run directory has plan.json at its top, its configuration beside that, and a
 * checkpoint two folders below: RUN/checkpoints/step-00000020. */
#include "cli/last_start.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "cli/arguments.h"
#include "io/disk.h"

/* Remove the last part of an absolute path. */
static void leave_folder(char *path)
{
    char *slash = strrchr(path, '/');
    slash[slash == path] = 0;
}

int last_start_read(struct last_start *last, const char *path)
{
    struct error ignored;
    char full[PATH_MAX];
    if (!realpath(path, full))
        return -1;
    if (disk_has(full, "COMMIT")) {
        leave_folder(full);
        leave_folder(full);
    } else if (!arguments_is_run(full)) {
        leave_folder(full);
    }
    if (!arguments_is_run(full))
        return -1;
    char *file = array_format("%s/plan.json", full);
    struct js *js = js_read(file, &ignored);
    int64_t ranks = js_get_int(js, "ranks", 0), nodes = js_get_int(js, "nodes", 0);
    free(file);
    js_free(js);
    if (ranks < 1 || ranks > INT_MAX)
        return -1;
    *last = (struct last_start){.ranks = (int)ranks,
                                .nodes = nodes >= 1 && nodes <= ranks ? (int)nodes : 0};
    snprintf(last->run, sizeof last->run, "%s", path);
    return 0;
}
