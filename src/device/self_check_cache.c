/* self_check_cache.c - what a self-check found, and that the shapes of a run were found right, in a
 * file of the user for each key.
 *
 * A key is a line of all that the outcome depends on; the file is named by its hash and holds it,
 * so that another GPU, driver, library or build finds no file of its own and checks again.  Ranks
 * that start side by side may write the same file: each writes one of its own name, and renames it.
 */
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/build_id.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "config/defines.h"
#include "device/self_check_private.h"
#include "device/shape_check.h"

static const char *const verdicts[] = {
    [SELF_CHECK_RIGHT] = "right",
    [SELF_CHECK_UNUSED] = "not in use",
    [SELF_CHECK_REPLACED] = "replaced",
};
enum { VERDICTS = sizeof verdicts / sizeof verdicts[0] };

/* ---- the key ---- */

enum { DRIVER = 256 };

/* Where the linker puts no build id: size and time of the program's file. */
static const char *build_of(char text[BUILD_ID])
{
    struct stat program;
    if (!build_id(text)[0] && !stat("/proc/self/exe", &program))
        snprintf(text, BUILD_ID, "%lld bytes of %lld.%09ld", (long long)program.st_size,
                 (long long)program.st_mtim.tv_sec, program.st_mtim.tv_nsec);
    return text;
}

/* A callback of dl_iterate_phdr(): the file of CUDA's driver, when it was changed, to text. */
static int driver_file(struct dl_phdr_info *info, size_t size, void *text)
{
    struct stat file;
    char path[PATH_MAX];
    if (!strstr(info->dlpi_name, "libcuda.so") || !realpath(info->dlpi_name, path) ||
        stat(path, &file))
        return 0;
    snprintf(text, DRIVER, "%.180s of %lld", path, (long long)file.st_mtim.tv_sec);
    return 1;
}

/* The version, or where the system does not give it (WSL, some containers), the file. */
static const char *driver_of(char text[DRIVER])
{
    text[0] = 0;
    text_from_file("/proc/driver/nvidia/version", NULL, text, DRIVER);
    if (!text[0])
        dl_iterate_phdr(driver_file, text);
    return text;
}

int self_check_key(char key[1024], int gpu, struct error *err)
{
    struct device_gpu g;
    char libraries[256], build[BUILD_ID], driver[DRIVER];
    if (device_gpu_describe(gpu, &g, err))
        return -1;
    snprintf(key, 1024, "%s, sm_%d%d; %s; %s; trireme %s, build %s", g.name, g.major, g.minor,
             driver_of(driver), device_gpu_libraries(libraries), PACKAGE_VERSION, build_of(build));
    return 0;
}

/* ---- the file ---- */

enum kept_kind { OF_FAMILIES, OF_SHAPES };

/* free() it; NULL: no folder is named. */
static char *path_of(enum kept_kind kind, const char *key)
{
    static const char *const names[] = {[OF_FAMILIES] = "self-check", [OF_SHAPES] = "shapes"};
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const unsigned long long hash = hash_bytes(key, strlen(key));
    if (cache && cache[0] == '/') /* others are not valid, says the specification */
        return array_format("%s/trireme/%s-%016llx.json", cache, names[kind], hash);
    if (home && home[0])
        return array_format("%s/.cache/trireme/%s-%016llx.json", home, names[kind], hash);
    return NULL;
}

static int verdict_named(const char *name)
{
    for (int i = 0; i < VERDICTS; i++)
        if (!strcmp(name, verdicts[i]))
            return i;
    return -1;
}

/* The row of family i; -1: it is not one that this program could have written. */
static int read_row(struct self_check *check, const struct js *row, int i)
{
    const struct self_check_family *family = &self_check_families[i];
    const int verdict = verdict_named(js_get_string(row, "verdict", ""));
    const unsigned bit = self_check_bit(family);
    if (!family->name || strcmp(js_get_string(row, "family", ""), family->name) || verdict < 0 ||
        (verdict == SELF_CHECK_REPLACED && !bit))
        return -1;
    check->row[check->rows++] =
        (struct self_check_row){.family = family->name, .verdict = verdict, .bit = bit};
    check->replaced |= verdict == SELF_CHECK_REPLACED ? bit : 0;
    return 0;
}

static int read_rows(struct self_check *check, const struct js *file, const char *key)
{
    const struct js *rows = js_get(file, "families");
    int count = js_length(rows);
    if (strcmp(js_get_string(file, "key", ""), key) || count > SELF_CHECK_MOST)
        return -1;
    for (int i = 0; i < count; i++)
        if (read_row(check, js_at(rows, i), i))
            return -1;
    return self_check_families[check->rows].name ? -1 : 0; /* are some missing? */
}

/* js_free() it; NULL: there is none that can be read. */
static struct js *read_file(enum kept_kind kind, const char *key)
{
    char *path = path_of(kind, key);
    struct error unused = {0};
    struct js *file = path ? js_read(path, &unused) : NULL;
    free(path);
    return file;
}

int self_check_load(struct self_check *check, const char *key)
{
    struct js *file = read_file(OF_FAMILIES, key);
    *check = (struct self_check){.was_kept = 1};
    int rc = file ? read_rows(check, file, key) : -1;
    js_free(file);
    return rc;
}

int shape_check_is_kept(const char *key)
{
    struct js *file = read_file(OF_SHAPES, key);
    int is_kept = file && !strcmp(js_get_string(file, "key", ""), key);
    js_free(file);
    return is_kept;
}

/* All folders that path lies in. */
static int make_folders(char *path, struct error *err)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int rc =
            mkdir(path, 0777) && errno != EEXIST ? error_errno(err, "cannot make %s", path) : 0;
        *slash = '/';
        if (rc)
            return -1;
    }
    return 0;
}

static struct js *make_file(const struct self_check *check, const char *key)
{
    struct js *file = js_object(), *rows = js_array();
    js_add_string(file, "key", key);
    js_add_real(file, "seconds", check->seconds);
    for (int i = 0; i < check->rows; i++) {
        struct js *row = js_object();
        js_add_string(row, "family", check->row[i].family);
        js_add_string(row, "verdict", verdicts[check->row[i].verdict]);
        js_add_real(row, "error", check->row[i].error);
        js_add_real(row, "bound", check->row[i].bound);
        js_add(rows, NULL, row);
    }
    js_add(file, "families", rows);
    return file;
}

/* Write a file and free it. */
static int write_file(struct js *file, enum kept_kind kind, const char *key, struct error *err)
{
    char host[64] = "";
    char *path = path_of(kind, key);
    if (!path) {
        js_free(file);
        return error_set(err, "neither XDG_CACHE_HOME nor HOME names a folder");
    }
    gethostname(host, sizeof host - 1);
    char *own = array_format("%s.%s.%ld", path, host, (long)getpid());
    int rc = make_folders(path, err) || js_write(file, JS_INDENTED, WHOLE_FILE_REPORT, own, err);
    if (!rc && rename(own, path)) {
        rc = error_errno(err, "cannot rename %s", own);
        unlink(own);
    }
    js_free(file);
    free(own);
    free(path);
    return rc ? -1 : 0;
}

int self_check_store(const struct self_check *check, const char *key, struct error *err)
{
    for (int i = 0; i < check->rows; i++)
        if (check->row[i].verdict == SELF_CHECK_REPLACED && check->row[i].is_refused)
            return 0;
    return check->wrong ? 0 : write_file(make_file(check, key), OF_FAMILIES, key, err);
}

int shape_check_keep(const char *key, struct error *err)
{
    struct js *file = js_object();
    js_add_string(file, "key", key);
    return write_file(file, OF_SHAPES, key, err);
}
