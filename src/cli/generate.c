/* generate.c - trireme generate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "comm/world.h"
#include "train/generate.h"
#include "train/run_checkpoint.h"
#include "train/weights.h"

struct asked {
    struct generate_request request;
    const char *tokenizer, *from;
    const char *const *settings; /* "key=value" */
    int setting_count;
    struct config config;
    char *input; /* the prompt where it was read, to be freed; else NULL */
};

enum { MOST_BYTES = 1 << 20 };

/* Standard input as one text, to be freed; NULL with err set. */
static char *read_input(struct error *err)
{
    char *text = malloc(MOST_BYTES + 1);
    size_t bytes = text ? fread(text, 1, MOST_BYTES + 1, stdin) : 0;
    if (text && !ferror(stdin) && bytes <= MOST_BYTES) {
        text[bytes] = 0;
        return text;
    }
    error_set(err, "standard input cannot be a prompt: %s",
              !text           ? "out of memory"
              : ferror(stdin) ? "it cannot be read"
                              : "it has more than 1 MiB");
    free(text);
    return NULL;
}

/* The text to continue where it is no option: rank 0 reads it and sends it to the others.
 * Collective. */
static int read_prompt(struct asked *asked, struct world *world, struct error *err)
{
    int is_reader = world_rank(world) == 0;
    size_t bytes = 0;
    if (asked->request.prompt)
        return 0;
    asked->input = is_reader ? read_input(err) : calloc(1, MOST_BYTES + 1);
    if (world_agree(world, asked->input ? 0 : -1, err))
        return -1;
    if (is_reader)
        bytes = strlen(asked->input);
    world_broadcast(world, &bytes, sizeof bytes, 0);
    world_broadcast(world, asked->input, bytes, 0);
    asked->request.prompt = asked->input;
    return 0;
}

static int parse(struct asked *asked, int argc, char **argv, struct error *err)
{
    struct generate_request *request = &asked->request;
    int64_t seed;
    int has_other = 0;
    request->prompt = arguments_option("--prompt", &argc, argv);
    asked->tokenizer = arguments_option("--tokenizer", &argc, argv);
    if (arguments_count("--tokens", &argc, argv, 1, 1000000000, &request->tokens, 128, err) ||
        arguments_number("--temperature", &argc, argv, 0, 100, &request->temperature, 0.8, err) ||
        arguments_count("--top-k", &argc, argv, 0, 1000000000, &request->top_k, 0, err) ||
        arguments_count("--seed", &argc, argv, 0, INT64_C(1000000000000000), &seed, 0, err))
        return -1;
    request->seed = (uint64_t)seed;
    for (int i = 2; i < argc; i++)
        has_other |= !strchr(argv[i], '=');
    asked->settings = (const char *const *)argv + 2;
    asked->setting_count = argc - 2;
    if (argc < 2 || has_other)
        return error_set(err, argc < 2 ? "generate wants the path of a checkpoint or run: trireme "
                                         "generate runs/default --prompt TEXT"
                                       : "generate takes one checkpoint or run, and options: "
                                         "trireme generate --help");
    asked->from = argv[1];
    if (strstr(argv[1], ".yaml")) { /* a configuration: of the run it names */
        if (arguments_config(&asked->config, ARGUMENTS_EVALUATE, 2, argv, err))
            return -1;
        asked->from = asked->config.run.dir;
    }
    if (!request->prompt && isatty(STDIN_FILENO))
        return error_set(err,
                         "generate wants a text to continue: --prompt TEXT, or standard input");
    return 0;
}

/* The model as it was saved, its layers divided among the ranks. */
static int open_session(struct app *app, const struct asked *asked, struct checkpoint *checkpoint,
                        struct session **session, struct error *err)
{
    struct config config, own;
    if (run_checkpoint_config(checkpoint, &own, NULL, 0, err) ||
        run_checkpoint_config(checkpoint, &config, asked->settings, asked->setting_count, err))
        return -1;
    if (config.device == own.device) /* the device is this machine's, whatever trained the model */
        config.device = CONFIG_DEVICE_AUTO;
    if (config.run.threads == own.run.threads)
        config.run.threads = 0;
    if (config.model.heads < world_size(app->world))
        return error_set(err,
                         "generate divides layers among its %d ranks, and model.heads is %lld; "
                         "start it on %lld at most",
                         world_size(app->world), (long long)config.model.heads,
                         (long long)config.model.heads);
    config.parallel = (struct config_parallel){.strategy = STRATEGY_NO_SHARD,
                                               .shard = 1,
                                               .replicate = 1,
                                               .context = 1,
                                               .tensor = world_size(app->world),
                                               .pipeline = 1,
                                               .schedule = "naive",
                                               .prefetch_units = 1};
    config.offload = (struct config_offload){OFFLOAD_NONE};
    config.train.global_batch = config.train.micro_batch = 1;
    config.train.eval_micro_batch = 0;
    if (session_open(session, app->world, &app->log, &app->mem, &config, SESSION_GENERATE, NULL,
                     err))
        return -1;
    return weights_load(*session, checkpoint, NULL, err);
}

static int run(struct app *app, const struct asked *asked, struct checkpoint *checkpoint,
               const struct tokenizer *tokenizer, struct error *err)
{
    struct session *session = NULL;
    int rc = open_session(app, asked, checkpoint, &session, err);
    if (!rc && tokenizer->vocab > session->config.model.vocab)
        rc = error_set(err, "tokenizer %s has %lld tokens, the model knows %lld", tokenizer->name,
                       (long long)tokenizer->vocab, (long long)session->config.model.vocab);
    if (!rc)
        rc = generate(session, tokenizer, &asked->request, world_rank(app->world) ? NULL : stdout,
                      err);
    session_close(session);
    return rc;
}

/* Is there a tokenizer of this name in the folder of path (or that is path)?  Then it is opened. */
static int is_beside(struct tokenizer **tokenizer, const char *path, const char *name)
{
    struct stat info;
    int is_folder = !stat(path, &info) && S_ISDIR(info.st_mode);
    const char *slash = strrchr(path, '/');
    int folder = is_folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    char *file = array_format("%.*s%stokenizer.json", folder, path, folder ? "/" : "");
    int found = *path && !access(file, F_OK) && !tokenizer_open(tokenizer, file, NULL);
    free(file);
    if (found && strcmp((*tokenizer)->name, name)) {
        tokenizer_close(*tokenizer);
        *tokenizer = NULL;
        found = 0;
    }
    return found;
}

/* The tokenizer that made the data, by its name: one of trireme's own, the one of the folder that
 * the model came from, or the one beside the data. */
static int find_trained(struct tokenizer **tokenizer, const char *name,
                        const struct checkpoint *checkpoint, struct error *err)
{
    struct config config;
    struct config_source files[CONFIG_SOURCES];
    if (!strcmp(name, "bytes"))
        return tokenizer_open(tokenizer, name, err);
    if (!run_checkpoint_config(checkpoint, &config, NULL, 0, NULL)) {
        int count = config_sources(config.data.train, files, NULL);
        if (is_beside(tokenizer, config.model_path, name))
            return 0;
        for (int i = 0; i < count; i++)
            if (is_beside(tokenizer, files[i].path, name))
                return 0;
    }
    return error_set(err,
                     "%s was trained on tokens of \"%s\", a tokenizer that lies neither in "
                     "model.path nor beside data.train; give its tokenizer.json: --tokenizer FILE "
                     "(--tokenizer bytes takes each token below 256 for a byte)",
                     checkpoint->path, name);
}

/* The tokenizer of --tokenizer, else the one of the data that the checkpoint was trained on. */
static int open_tokenizer(struct tokenizer **tokenizer, const char *asked,
                          const struct checkpoint *checkpoint, struct log *log, struct error *err)
{
    const char *trained = run_data_tokenizer(checkpoint->meta);
    if (!asked && trained)
        return find_trained(tokenizer, trained, checkpoint, err);
    if (tokenizer_open(tokenizer, asked ? asked : "bytes", err))
        return -1;
    if (trained && strcmp((*tokenizer)->name, trained))
        log_warn(log, "%s was trained on tokens of \"%s\", and --tokenizer is \"%s\"",
                 checkpoint->path, trained, (*tokenizer)->name);
    return 0;
}

int command_generate(struct app *app, int argc, char **argv, struct error *err)
{
    struct asked asked = {0};
    struct tokenizer *tokenizer = NULL;
    struct checkpoint *checkpoint = NULL;
    if (app_start_world(app, err))
        return -1;
    struct world *world = app->world;
    int rc =
        world_agree(world, parse(&asked, argc, argv, err), err) ||
        read_prompt(&asked, world, err) ||
        run_checkpoint_open(&checkpoint, world, asked.from, &app->log, err) ||
        world_agree(world, open_tokenizer(&tokenizer, asked.tokenizer, checkpoint, &app->log, err),
                    err) ||
        run(app, &asked, checkpoint, tokenizer, err);
    checkpoint_close(checkpoint);
    tokenizer_close(tokenizer);
    free(asked.input);
    return rc ? -1 : 0;
}
