/* shared_settings.c - compare settings, data and the run directory among ranks.  See
 * shared_settings.h.
 *
 * Rank 0 broadcasts what it has, each rank compares, all agree on the outcome; the message is that
 * of the lowest rank that differs, and names its host.
 */
#include "train/shared_settings.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"

/* ---- settings ---- */

/* Compare the first lines, version and build: ranks of two programs may compute different numbers.
 */
static int compare_programs(const char *own, const char *first, struct error *err)
{
    const int a = (int)strcspn(own, "\n"), b = (int)strcspn(first, "\n");
    const int key = (int)strcspn(own, "=") + 1;
    if (a == b && !memcmp(own, first, (size_t)a))
        return 0;
    return error_set(err,
                     "this is trireme %.*s, and rank 0 is %.*s: all ranks of a run need the same "
                     "program; do all nodes start the same file, and is it new on all of them?",
                     a - key, own + key, b - key, first + key);
}

/* Compare line by line.  The first line is version and build; of the same build both have the same
 * keys in the same order. */
static int compare(const char *own, const char *first, struct error *err)
{
    if (compare_programs(own, first, err))
        return -1;
    for (;;) {
        size_t a = strcspn(own, "\n"), b = strcspn(first, "\n"), key = strcspn(own, "=");
        if (a != b || memcmp(own, first, a) != 0)
            return error_set(err,
                             "%.*s, and on rank 0 %.*s: all ranks of a run need the same settings; "
                             "do they read the same files and get the same arguments?",
                             (int)a, own, (int)(b > key ? b - key - 1 : 0),
                             b > key ? first + key + 1 : "");
        if (!own[a] || !first[b])
            return 0;
        own += a + 1;
        first += b + 1;
    }
}

int shared_settings_check(struct world *world, const struct config *config, struct error *err)
{
    char *own = config_shared(config), *first = own;
    size_t bytes = strlen(own) + 1;
    world_broadcast(world, &bytes, sizeof bytes, 0);
    if (world_rank(world))
        first = array_make(bytes, 1);
    world_broadcast(world, first, bytes, 0);
    int rc = world_agree(world, first == own ? 0 : compare(own, first, err), err);
    if (first != own)
        free(first);
    free(own);
    return rc;
}

/* ---- data ---- */

static int compare_contents(const char *key, const char *path, const char *own, const char *first,
                            int64_t samples, int64_t first_samples, struct error *err)
{
    char counts[64] = "";
    if (samples != first_samples)
        snprintf(counts, sizeof counts, " (%lld samples, and %lld there)", (long long)samples,
                 (long long)first_samples);
    else if (!strcmp(own, first))
        return 0;
    return error_set(err,
                     "%s: %s is not what rank 0 has under this name%s; all ranks of a run need the "
                     "same data",
                     key, path, counts);
}

int shared_settings_check_data(struct world *world, const struct config_data *config,
                               const struct run_data *data, struct error *err)
{
    struct run_data first = *data;
    world_broadcast(world, &first, sizeof first, 0);
    int rc = compare_contents("data.train", config->train, data->train, first.train,
                              data->sequences, first.sequences, err) ||
             compare_contents("data.valid", config->valid, data->valid, first.valid,
                              data->valid_sequences, first.valid_sequences, err);
    return world_agree(world, rc ? -1 : 0, err);
}

/* ---- the run directory ---- */

#define SEEN ".seen-" /* begins the name of a file that rank 0 makes for the others to look for */

static int make_file(const char *path, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_errno(err, "cannot create %s", path);
    close(fd);
    return 0;
}

/* Rank 0's file must be there, and the first rank of a node can make one beside it. */
static int look_for(struct world *world, const char *folder, const char *file, struct error *err)
{
    if (access(file, F_OK))
        return error_set(err,
                         "%s is not the folder that rank 0 (%s) has under this name; run.dir must "
                         "be one that all nodes see, such as an absolute path on a shared disk",
                         folder, world_host_of(world, 0));
    if (world_local_rank(world))
        return 0;
    char *beside = array_format("%s.%d", file, world_rank(world));
    int rc = make_file(beside, err);
    if (!rc)
        unlink(beside);
    free(beside);
    return rc;
}

/* Remove the files of starts that were killed before they did.  Nobody else looks for one: rank 0
 * holds the lock of the run. */
static void remove_leftovers(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *item;
    while (dir && (item = readdir(dir)))
        if (!strncmp(item->d_name, SEEN, sizeof SEEN - 1))
            unlinkat(dirfd(dir), item->d_name, 0);
    if (dir)
        closedir(dir);
}

/* The file's name is new each time, so that no node's cache can say that there is none. */
int shared_settings_check_folder(struct world *world, const char *folder, struct error *err)
{
    int64_t unique[2] = {clock_ns(), getpid()};
    int rc = 0;
    world_broadcast(world, unique, sizeof unique, 0);
    char *file =
        array_format("%s/" SEEN "%llx-%llx", folder, (long long)unique[0], (long long)unique[1]);
    if (!world_rank(world)) {
        remove_leftovers(folder);
        rc = make_file(file, err);
    }
    if (!(rc = world_agree(world, rc, err))) {
        if (world_rank(world))
            rc = look_for(world, folder, file, err);
        rc = world_agree(world, rc, err);
        if (!world_rank(world))
            unlink(file);
    }
    free(file);
    return rc;
}
