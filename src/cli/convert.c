/* convert.c - trireme convert: a checkpoint's model as a folder for Hugging Face's programs. */
#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/command.h"
#include "comm/world.h"
#include "io/disk.h"
#include "train/export_folder.h"
#include "train/run_checkpoint.h"

/* What the command line asks for. */
struct asked {
    const char *from, *folder; /* a run or a checkpoint; the folder to write */
    const char *dtype;         /* name of the files' format; NULL: not given */
    double file_gb;            /* most 10^9 bytes of a file */
    int is_merged;             /* 1: adapters are added to their model */
    const char *tokenizer;     /* as --tokenizer names it; NULL: not given */
    const char *model_path;    /* where the model of adapters is now; NULL: where it was */
};

/* Refuse to write a model's files into a run or a checkpoint, which trireme reads as such. */
static int check_folder(const char *folder, struct error *err)
{
    int is_checkpoint = disk_has(folder, "COMMIT");
    if (!is_checkpoint && !arguments_is_run(folder))
        return 0;
    return error_set(err, "%s is %s: name another folder, which the model gets to itself", folder,
                     is_checkpoint ? "a checkpoint" : "the directory of a run");
}

static int parse(struct asked *asked, int argc, char **argv, struct error *err)
{
    static const char model_path[] = "model.path=";
    asked->dtype = arguments_option("--dtype", &argc, argv);
    asked->is_merged = arguments_flag("--merge", &argc, argv);
    asked->tokenizer = arguments_option("--tokenizer", &argc, argv);
    if (arguments_number("--file-gb", &argc, argv, 1e-6, 1e6, &asked->file_gb, EXPORT_FILE_GB, err))
        return -1;
    if (argc < 3 || argc > 4)
        return error_set(err, "convert wants a run or a checkpoint, and a folder to write: trireme "
                              "convert runs/default model-hf");
    asked->from = argv[1];
    asked->folder = argv[2];
    if (!asked->folder[0])
        return error_set(err, "convert %s '': name a folder, which is written", asked->from);
    if (argc == 4 && strncmp(argv[3], model_path, strlen(model_path)) != 0)
        return error_set(err,
                         "convert takes no \"%s\" after the folder to write, but "
                         "model.path=FOLDER, where the model of adapters is now",
                         argv[3]);
    asked->model_path = argc == 4 ? argv[3] + strlen(model_path) : NULL;
    return check_folder(asked->folder, err);
}

/* Choose the format of the files: the one asked for, or the one in which the run computed. */
static int find_dtype(const struct asked *asked, const struct config *config,
                      enum weights_what what, enum dtype *dtype, struct error *err)
{
    int found = asked->dtype ? dtype_find(asked->dtype) : (int)export_folder_dtype(config, what);
    if (found < 0 || !dtype_is_narrow_float((enum dtype)found))
        return error_set(err, "--dtype is fp32, bf16 or fp16, not %s", asked->dtype);
    *dtype = (enum dtype)found;
    return 0;
}

static int convert(const struct asked *asked, struct checkpoint *checkpoint, struct log *log,
                   struct error *err)
{
    struct config config;
    struct weights_export how = {.folder = asked->folder,
                                 .file_bytes = (int64_t)(asked->file_gb * 1e9)};
    if (run_checkpoint_config(checkpoint, &config, NULL, 0, err))
        return -1;
    if (asked->is_merged && !config.lora.r)
        return error_set(err, "--merge adds adapters to their model, and %s has none",
                         checkpoint->path);
    if (asked->model_path && !config.lora.r)
        return error_set(err,
                         "model.path is where the model of adapters is, and %s has none: all its "
                         "weights are its own",
                         checkpoint->path);
    if (asked->tokenizer && config.lora.r && !asked->is_merged)
        return error_set(err, "--tokenizer goes with a whole model: adapters are written without "
                              "one, unless --merge adds them to their model");
    if (asked->model_path) /* the weights alone: what the model is, the checkpoint says */
        snprintf(config.model_path, sizeof config.model_path, "%s", asked->model_path);
    how.what = config.lora.r && !asked->is_merged ? EXPORT_ADAPTER : EXPORT_MODEL;
    if (find_dtype(asked, &config, how.what, &how.dtype, err) ||
        export_folder(&how, asked->tokenizer, checkpoint, &config, err))
        return -1;
    printf("%s: %d tensors in %s, of step %lld of %s\n", asked->folder, how.tensors,
           dtype_name(how.dtype), (long long)checkpoint->step, checkpoint->path);
    export_folder_report(log, asked->folder, how.what, checkpoint, &config);
    return 0;
}

int command_convert(struct app *app, int argc, char **argv, struct error *err)
{
    struct asked asked;
    struct checkpoint *checkpoint = NULL;
    if (parse(&asked, argc, argv, err) || app_start_world(app, err))
        return -1;
    if (world_size(app->world) > 1)
        return error_set(err, "convert is for one process; start it without srun or mpirun");
    if (run_checkpoint_open(&checkpoint, app->world, asked.from, &app->log, err))
        return -1;
    int rc = convert(&asked, checkpoint, &app->log, err);
    checkpoint_close(checkpoint);
    return rc;
}
