/* arguments.c - command lines: options, and [CONFIG | RUN | CHECKPOINT] [key=value ...].
 *
 * load_from() finds out what a path is and passes a list of settings to config_load(), of which
 * later ones win:
 *
 *     of RUN, to evaluate it       run.dir=RUN                where the run lies now
 *                                  checkpoint.resume=auto
 *                                  device=auto, ...           here[]: this machine's settings
 *     of the command line          data.valid=x.h5
 *     of no training               train.optimizer=adamw, ...  untrained[]: nothing is updated
 *
 *     of a file, to evaluate with  comm.min_ctas=0, ...        the last of here[]: the file is for
 *                                                              training, perhaps on other devices
 *     of the command line          device=cpu
 *     of no training               train.optimizer=adamw, ...
 *
 * split() writes the settings of the command line from list + FIRST on.  load_from() writes its own
 * from the beginning of the list, and moves those of the command line after them.
 */
#include "cli/arguments.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "config/adapter.h"
#include "config/hf.h"
#include "config/hub.h"
#include "config/schema.h"
#include "io/disk.h"
#include "io/h5.h"
#include "train/run_checkpoint.h"

/* A run of an older version has no run.json; it is known by its checkpoints. */
int arguments_is_run(const char *path)
{
    struct checkpoint_entry *entries;
    if (disk_has(path, "run.json"))
        return 1;
    char *folder = array_format("%s/checkpoints", path);
    int count = checkpoint_list(&entries, folder, NULL);
    checkpoint_list_free(entries, count > 0 ? count : 0);
    free(folder);
    return count > 0;
}

/* Settings that replace those of a run or checkpoint, so that it can be evaluated, or generate, on
 * this machine. */
static const char *const here[ARGUMENTS_HERE] = {
    "device=auto",
    "parallel.shard=0",
    "parallel.replicate=0",
    "run.threads=0",
    "parallel.pipeline=1",
    "parallel.pipeline_reshard=false",
    "parallel.tensor=1",
    "parallel.tensor_overlap=auto",
    "parallel.tensor_reduce_dtype=auto",
    "parallel.context=1",
    "parallel.stages=",
    "parallel.virtual_stages=0",
    "parallel.schedule=1f1b",
    "generate.samples=0",
    "recompute=none",
    "recompute_every=1",
    "comm.min_ctas=0",
    "comm.max_ctas=0",
    "comm.spare_sms=0",
    "comm.copy_engines=false",
    "comm.nvls=false",
};
enum {
    OF_GPUS = 5,                /* the last of here[], of transfers between GPUs alone */
    FIRST = 2 + ARGUMENTS_HERE, /* most settings that load_from() puts before those of the command
                                   line */
};

int arguments_add_here(const char **list, int count)
{
    for (int i = 0; i < ARGUMENTS_HERE; i++)
        list[count++] = here[i];
    return count;
}

/* At their defaults, the keys of the update, and of the loss that balances experts, which is a
 * gradient only.  They come last: with an optimizer of the command line, too, nothing is updated.
 */
static const char *const untrained[ARGUMENTS_UNTRAINED] = {
    "train.optimizer=adamw",         "train.optimizer_dtype=fp32",   "train.grad_dtype=fp32",
    "train.overlap_update=false",    "train.momentum=0.9",           "train.muon_momentum=0.95",
    "train.muon_nesterov=true",      "train.muon_ns_steps=5",        "train.muon_dtype=fp32",
    "train.muon_adjust_lr=original", "model.router_aux_loss_coef=0",
};

int arguments_add_untrained(const char **list, int count)
{
    for (int i = 0; i < ARGUMENTS_UNTRAINED; i++)
        list[count++] = untrained[i];
    return count;
}

static int load_checkpoint(struct config *config, const char *path, const char *const *list,
                           int count, struct error *err)
{
    struct checkpoint *checkpoint;
    if (checkpoint_open(&checkpoint, path, err))
        return -1;
    int rc = run_checkpoint_config(checkpoint, config, list, count, err);
    checkpoint_close(checkpoint);
    return rc;
}

/* Load the configuration that the newest committed checkpoint of a folder was saved with. */
static int load_newest(struct config *config, const char *folder, const char *const *list,
                       int count, struct error *err)
{
    struct checkpoint_entry *entries;
    int found = checkpoint_list(&entries, folder, err), i = 0;
    if (found < 0)
        return -1;
    while (i < found && !entries[i].committed)
        i++;
    int rc;
    if (i < found)
        rc = load_checkpoint(config, entries[i].path, list, count, err);
    else if (hf_has_config(folder))
        rc = error_set(err, "%s holds no checkpoint; it is a model's folder: model.path=%s", folder,
                       folder);
    else if (adapter_has_config(folder))
        rc = error_set(err,
                       "%s holds no checkpoint; it is an adapter's folder, which goes beside its "
                       "model: model.path=MODEL lora.path=%s",
                       folder, folder);
    else
        rc = error_set(err, "%s holds no checkpoint", folder);
    checkpoint_list_free(entries, found);
    return rc;
}

static int load_run(struct config *config, const char *dir, const char **list, int count,
                    struct error *err)
{
    char *file = array_format("%s/config.yaml", dir);
    char *folder = array_format("%s/checkpoints", dir);
    int rc = !access(file, F_OK)     ? config_load(config, file, list, count, err)
             : !access(folder, F_OK) ? load_newest(config, folder, list, count, err)
                                     : load_newest(config, dir, list, count, err);
    free(folder);
    free(file);
    return rc;
}

/* Return, for free(), the directory of the run whose config.yaml is at path; NULL: path is not the
 * config.yaml of a run. */
static char *run_of_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, "config.yaml") != 0)
        return NULL;
    char *dir = slash ? array_format("%.*s", (int)(slash - path), path) : array_text(".");
    if (arguments_is_run(dir))
        return dir;
    free(dir);
    return NULL;
}

/* Load a file, or settings alone where path is NULL.  Where path is the name of a model of the hub,
 * the error says by which key a model is named. */
static int load_file(struct config *config, enum arguments_use use, const char *path,
                     const char *const *list, int count, struct error *err)
{
    char folder[CONFIG_TEXT];
    int is_missing = path && access(path, F_OK);
    if (path && !is_missing && h5_is_file(path))
        return error_set(err,
                         "%s is an HDF5 file, as token files are, and no configuration; a token "
                         "file is named by a key: data.%s=%s",
                         path, use == ARGUMENTS_EVALUATE ? "valid" : "train", path);
    if (is_missing && hub_find(path, folder))
        return error_set(err,
                         "%s is a model in the cache of Hugging Face's hub; it is named by a key: "
                         "model.path=%s",
                         path, path);
    int rc = config_load(config, path, list, count, err);
    if (rc && is_missing && strchr(path, '/') && hub_is_name(path) && !strstr(path, ".yaml"))
        text_append(err->text, sizeof err->text, "; a model of the hub is model.path=%s", path);
    return rc;
}

/* Refuse to train on a checkpoint's path, with the command that starts a new run from the
 * checkpoint. Returns -1. */
static int refuse_checkpoint(const char *path, struct error *err)
{
    const char *inside = strstr(path, "/checkpoints/");
    char *run = array_format("%.*s", inside ? (int)(inside - path) : 0, path);
    int rc = error_set(err,
                       "%s is a checkpoint; a new run starts from it by: trireme train %s "
                       "checkpoint.resume=%s run.dir=NEW",
                       path, inside && arguments_is_run(run) ? run : "CONFIG.yaml", path);
    free(run);
    return rc;
}

/* Refuse to train in a folder of checkpoints: it is not a run, and a run that began in it would lie
 * inside of another one.  Returns 0 for other folders, or -1 with err set. */
static int refuse_checkpoints(const char *path, struct error *err)
{
    struct checkpoint_entry *entries;
    int count = arguments_is_run(path) ? 0 : checkpoint_list(&entries, path, NULL);
    if (count <= 0)
        return 0;
    checkpoint_list_free(entries, count);
    int length = (int)strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return error_set(err,
                     "%.*s holds checkpoints, and is no run: training goes on by the folder above "
                     "it, trireme train %.*s/..",
                     length, path, length, path);
}

/* Load the configuration of path (NULL: settings alone).  The settings of the command line are
 * list[first] to list[first + count - 1], with space for ARGUMENTS_UNTRAINED after them.  run.dir
 * becomes where the run lies now, whatever its config.yaml says. */
static int load_from(struct config *config, enum arguments_use use, const char *path,
                     const char **list, int first, int count, struct error *err)
{
    struct stat info;
    int is_folder = path && !stat(path, &info) && S_ISDIR(info.st_mode);
    char *run = !path ? NULL : is_folder ? array_text(path) : run_of_file(path), *place;
    if (use == ARGUMENTS_EVALUATE)
        count = arguments_add_untrained(list + first, count);
    if (!run) {
        int added = path && use == ARGUMENTS_EVALUATE ? OF_GPUS : 0;
        first -= added;
        memcpy(list + first, here + ARGUMENTS_HERE - added, (size_t)added * sizeof *list);
        return load_file(config, use, path, list + first, added + count, err);
    }
    int is_checkpoint = disk_has(run, "COMMIT"), used = 0, rc;
    if (is_checkpoint && use == ARGUMENTS_TRAIN) {
        free(run);
        return refuse_checkpoint(path, err);
    }
    if (use == ARGUMENTS_TRAIN && is_folder && refuse_checkpoints(run, err)) {
        free(run);
        return -1;
    }
    place = array_format(is_checkpoint ? "checkpoint.resume=%s" : "run.dir=%s", run);
    list[used++] = place;
    if (!is_checkpoint)
        list[used++] = "checkpoint.resume=auto";
    if (use == ARGUMENTS_EVALUATE)
        used = arguments_add_here(list, used);
    memmove(list + used, list + first, (size_t)count * sizeof *list);
    rc = is_checkpoint ? load_checkpoint(config, run, list, used + count, err)
                       : load_run(config, run, list, used + count, err);
    free(place);
    free(run);
    return rc;
}

int arguments_is_setting(const char *argument)
{
    const char *equals = strchr(argument, '=');
    if (!equals || access(argument, F_OK))
        return equals != NULL;
    char *name = array_format("%.*s", (int)(equals - argument), argument);
    int is_key = key_find(name) != NULL;
    free(name);
    return is_key;
}

/* Was argv[i] meant as a key whose '=' stands apart, as in "train.lr = 1e-3" or "train.lr =1e-3"?
 */
static int is_key_apart(int i, int argc, char **argv)
{
    return i + 1 < argc && argv[i + 1][0] == '=' && key_find(argv[i]);
}

/* Set err for argv[i], which is not key=value, and which "=" or a key with one may stand before.
 * Returns -1. */
static int not_setting(int i, int argc, char **argv, struct error *err)
{
    size_t before = strlen(argv[i - 1]);
    if (is_key_apart(i, argc, argv)) {
        const char *value = argv[i + 1] + 1;
        return error_set(err, "write it without blanks: %s=%s", argv[i],
                         *value         ? value
                         : i + 2 < argc ? argv[i + 2]
                                        : "...");
    }
    if (i > 1 && before > 1 && argv[i - 1][before - 1] == '=')
        return error_set(err, "write it without blanks: %s%s", argv[i - 1], argv[i]);
    return error_set(err, "argument \"%s\" is not key=value; a config file comes first", argv[i]);
}

/* Split the command line into a path, NULL where none is given, and the settings.  Returns the
 * number of settings, or -1 with err set. */
static int split(enum arguments_use use, int argc, char **argv, const char **list,
                 const char **path, struct error *err)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        if (i == 1 ? arguments_is_setting(argv[i]) : strchr(argv[i], '=') != NULL)
            list[count++] = argv[i];
        else if (i == 1 && !(is_key_apart(i, argc, argv) && access(argv[i], F_OK)))
            *path = argv[i];
        else
            return not_setting(i, argc, argv, err);
        if (use == ARGUMENTS_EVALUATE && !*path && !strncmp(argv[i], "run.dir=", 8) &&
            arguments_is_run(argv[i] + 8))
            *path = argv[i] + 8;
    }
    return count;
}

int arguments_config(struct config *config, enum arguments_use use, int argc, char **argv,
                     struct error *err)
{
    const char *path = NULL;
    const char **list = array_make((size_t)(FIRST + argc + ARGUMENTS_UNTRAINED), sizeof *list);
    int count = split(use, argc, argv, list + FIRST, &path, err);
    int rc = count < 0 ? -1 : load_from(config, use, path, list, FIRST, count, err);
    free(list);
    return rc;
}

/* Remove arguments from argv. */
static void take(int at, int how_many, int *argc, char **argv)
{
    for (int i = at; i + how_many < *argc; i++)
        argv[i] = argv[i + how_many];
    *argc -= how_many;
}

int arguments_list(const char *name, int *argc, char **argv, const char **values, int most)
{
    size_t length = strlen(name);
    int count = 0;
    for (int i = 1; i < *argc; i++) {
        const char *value = NULL;
        if (strncmp(argv[i], name, length))
            continue;
        if (argv[i][length] == '=') {
            value = argv[i] + length + 1;
            take(i--, 1, argc, argv);
        } else if (!argv[i][length] && i + 1 < *argc) {
            value = argv[i + 1];
            take(i--, 2, argc, argv);
        }
        if (value && count < most)
            values[count] = value;
        count += value != NULL;
    }
    return count;
}

const char *arguments_option(const char *name, int *argc, char **argv)
{
    const char **values = array_make((size_t)*argc, sizeof *values), *last;
    int count = arguments_list(name, argc, argv, values, *argc);
    last = count ? values[count - 1] : NULL;
    free(values);
    return last;
}

int arguments_flag(const char *name, int *argc, char **argv)
{
    int found = 0;
    for (int i = 1; i < *argc; i++)
        if (!strcmp(argv[i], name)) {
            found = 1;
            take(i--, 1, argc, argv);
        }
    return found;
}

int arguments_number(const char *name, int *argc, char **argv, double least, double most,
                     double *value, double otherwise, struct error *err)
{
    const char *text = arguments_option(name, argc, argv);
    char *end;
    *value = text ? strtod(text, &end) : otherwise;
    if (!text || (*text && !*end && *value >= least && *value <= most))
        return 0;
    return error_set(err, "%s %s: a number from %g to %g is wanted", name, text, least, most);
}

int arguments_count(const char *name, int *argc, char **argv, int64_t least, int64_t most,
                    int64_t *value, int64_t otherwise, struct error *err)
{
    const char *text = arguments_option(name, argc, argv);
    char *end;
    double number = text ? strtod(text, &end) : 0;
    int good = text && *text && !*end && number >= (double)least && number <= (double)most &&
               number == (double)(int64_t)number;
    *value = good ? (int64_t)number : otherwise;
    if (!text || good)
        return 0;
    return error_set(err, "%s %s: a whole number from %" PRId64 " to %" PRId64 " is wanted", name,
                     text, least, most);
}
