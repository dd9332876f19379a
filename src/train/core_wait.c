/* core_wait.c - see core_wait.h. */
#include "train/core_wait.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/schedstat.h"
#include "base/text.h"

/* How long a thread has waited for a core; -1: it has ended. */
static int64_t waited_ns(int id)
{
    char path[64], text[96];
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", id);
    if (text_from_file(path, NULL, text, sizeof text))
        return -1;
    return schedstat_waited_ns(text);
}

void core_wait_begin(struct core_wait *w)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    w->threads = 0;
    while (dir && w->threads < CORE_WAIT_THREADS && (entry = readdir(dir))) {
        int id = (int)strtol(entry->d_name, NULL, 10);
        int64_t ns = id > 0 ? waited_ns(id) : -1;
        if (ns < 0)
            continue;
        w->id[w->threads] = id;
        w->ns[w->threads++] = ns;
    }
    if (dir)
        closedir(dir);
}

double core_wait_end(const struct core_wait *w)
{
    int64_t most = 0;
    for (int i = 0; i < w->threads; i++) {
        int64_t ns = waited_ns(w->id[i]) - w->ns[i];
        most = ns > most ? ns : most;
    }
    return (double)most / 1e9;
}
