/* generate.c - trireme generate: continuing texts, and conversations; generate.h lists the files.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/round.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/generate.h"
#include "cli/unused.h"
#include "comm/world.h"

/* Options that are keys of the configuration, too; -1: not given. */
struct sampling_options {
    int64_t tokens, min_tokens, top_k, batch;
    double temperature, top_p, repetition_penalty;
};

static int read_sampling(struct sampling_options *s, int *argc, char **argv, struct error *err)
{
    const int64_t most = 1000000000;
    return arguments_count("--tokens", argc, argv, 1, most, &s->tokens, -1, err) ||
                   arguments_count("--min-tokens", argc, argv, 0, most, &s->min_tokens, -1, err) ||
                   arguments_count("--top-k", argc, argv, 0, most, &s->top_k, -1, err) ||
                   arguments_count("--batch", argc, argv, 1, 4096, &s->batch, -1, err) ||
                   arguments_number("--temperature", argc, argv, 0, 100, &s->temperature, -1,
                                    err) ||
                   arguments_number("--top-p", argc, argv, 0, 1, &s->top_p, -1, err) ||
                   arguments_number("--repetition-penalty", argc, argv, 0.01, 100,
                                    &s->repetition_penalty, -1, err)
               ? -1
               : 0;
}

/* Replace the values of keys by those of options that were given. */
static void apply_sampling(struct config_generate *to, const struct sampling_options *s)
{
    to->tokens = s->tokens < 0 ? to->tokens : s->tokens;
    to->min_tokens = s->min_tokens < 0 ? to->min_tokens : s->min_tokens;
    to->top_k = s->top_k < 0 ? to->top_k : s->top_k;
    to->batch = s->batch < 0 ? to->batch : s->batch;
    to->temperature = s->temperature < 0 ? to->temperature : s->temperature;
    to->top_p = s->top_p < 0 ? to->top_p : s->top_p;
    to->repetition_penalty =
        s->repetition_penalty < 0 ? to->repetition_penalty : s->repetition_penalty;
}

static int read_stops(struct generate_options *o, int *argc, char **argv, struct error *err)
{
    o->stops = arguments_list("--stop", argc, argv, o->stop, GENERATE_STOPS);
    if (o->stops > GENERATE_STOPS)
        return error_set(err, "--stop: %d texts, at most %d", o->stops, GENERATE_STOPS);
    for (int i = 0; i < o->stops; i++)
        if (!o->stop[i][0])
            return error_set(err, "--stop: an empty text ends every text");
    return 0;
}

static int begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static int check(const struct generate_options *o, int argc, int has_other, struct error *err)
{
    if (argc < 2 || has_other)
        return error_set(err, argc < 2
                                  ? "generate wants the path of a checkpoint, run or model: "
                                    "trireme generate runs/default --prompt TEXT"
                                  : "generate takes one checkpoint, run or model, and options: "
                                    "trireme generate --help");
    if (o->prompt && o->prompts)
        return error_set(err, "--prompt and --prompts both say what is to be continued");
    if (!o->is_chat && (o->template || o->system))
        return error_set(err, "%s is of conversations: --chat",
                         o->template ? "--chat-template" : "--system");
    if (o->system && o->prompts)
        return error_set(err, "--system: the conversations of --prompts have their own");
    for (int i = 0; i < o->setting_count; i++) {
        if (begins(o->settings[i], "parallel."))
            return error_set(err,
                             "%.60s has no effect: generate divides every layer among all of its "
                             "ranks",
                             o->settings[i]);
        if (begins(o->settings[i], "seed="))
            return error_set(err,
                             "%.60s has no effect: that is the seed of training; tokens are drawn "
                             "by that of --seed",
                             o->settings[i]);
    }
    if (!o->prompt && !o->prompts && !o->is_chat && isatty(STDIN_FILENO))
        return error_set(err,
                         "generate wants a text to continue: --prompt TEXT, or standard input");
    return 0;
}

/* Refuse settings that name a second run, checkpoint or model beside the first argument. model.path
 * is not refused here: beside a checkpoint of adapters it says where the frozen tensors are
 * (generate_model.c). */
static int refuse_names(const struct generate_options *o, struct error *err)
{
    static const char *const names[] = {"run.dir=", "checkpoint.resume=", "model.preset="};
    for (int i = 0; i < o->setting_count; i++)
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if (begins(o->settings[i], names[k]))
                return error_set(err,
                                 "%.400s has no effect here: the weights are those of %.400s; "
                                 "leave out one or the other",
                                 o->settings[i], o->from);
    return 0;
}

/* Read a configuration with the settings beside it, and set o->from to the run or checkpoint that
 * they name. */
static int follow_config(struct generate_options *o, int argc, char **argv, struct config *config,
                         struct error *err)
{
    if (arguments_config(config, ARGUMENTS_EVALUATE, argc, argv, err))
        return -1;
    const char *asked = config->checkpoint.resume;
    if (!strcmp(asked, "none"))
        return error_set(err, "checkpoint.resume is none: there is nothing to generate with");
    if (text_is_digits(asked))
        snprintf(o->of_step, sizeof o->of_step, "%s/checkpoints/step-%08lld", config->run.dir,
                 atoll(asked));
    o->from = o->of_step[0] ? o->of_step : strcmp(asked, "auto") ? asked : config->run.dir;
    return 0;
}

static int parse(struct generate_options *o, struct sampling_options *sampling, int argc,
                 char **argv, struct config *config, struct error *err)
{
    static const char *const path_keys[] = {"run.dir=", "checkpoint.resume=", "model.path="};
    int has_other = 0;
    o->prompt = arguments_option("--prompt", &argc, argv);
    o->prompts = arguments_option("--prompts", &argc, argv);
    o->tokenizer = arguments_option("--tokenizer", &argc, argv);
    o->template = arguments_option("--chat-template", &argc, argv);
    o->system = arguments_option("--system", &argc, argv);
    o->is_chat = arguments_flag("--chat", &argc, argv);
    if (read_stops(o, &argc, argv, err) || read_sampling(sampling, &argc, argv, err) ||
        arguments_count("--seed", &argc, argv, 0, INT64_C(1000000000000000), &o->seed, 0, err))
        return -1;
    for (int i = 2; i < argc; i++)
        has_other |= !strchr(argv[i], '=');
    o->settings = (const char *const *)argv + 2;
    o->setting_count = argc < 2 ? 0 : argc - 2;
    if (check(o, argc, has_other, err))
        return -1;
    o->from = argv[1];
    for (size_t k = 0; k < sizeof path_keys / sizeof path_keys[0]; k++)
        if (begins(o->from, path_keys[k]) && arguments_is_setting(o->from))
            return error_set(err, "generate takes the path alone: trireme generate %s",
                             o->from + strlen(path_keys[k]));
    return strstr(argv[1], ".yaml") ? follow_config(o, argc, argv, config, err)
                                    : refuse_names(o, err);
}

/* Read the prompts on rank 0 and share them; set the number of texts at a time, at most that of the
 * prompts, and the length of the longest one in model->config.generate.  Collective. */
static int share_prompts(struct generate_model *model, struct app *app,
                         const struct generate_options *options, struct generate_texts *texts,
                         struct error *err)
{
    int is_reader = world_rank(app->world) == 0 && !(options->is_chat && !options->prompts);
    int rc = is_reader ? generate_texts_read(texts, model, options, err) : 0;
    if (world_agree(app->world, rc, err))
        return -1;
    generate_texts_share(texts, app->world);
    model->config.generate.batch = min_i64(model->config.generate.batch, max_i64(texts->count, 1));
    model->config.generate.longest = generate_texts_longest(texts);
    return 0;
}

static int run(struct generate_model *model, struct app *app,
               const struct generate_options *options, const struct generate_texts *texts,
               struct session *session, struct error *err)
{
    int is_root = world_rank(app->world) == 0;
    struct generator_request request = {.how = model->config.generate,
                                        .seed = (uint64_t)options->seed,
                                        .vocab = is_root ? model->tokenizer->vocab
                                                         : model->config.model.vocab};
    struct generator *generator = generator_create(session);
    struct generate_output *output = NULL;
    int rc;
    if (!world_rank(app->world)) {
        unused_warn(&app->log, UNUSED_OF_GENERATE, options->settings, options->setting_count);
        generate_texts_warn(texts, &model->config, &app->log);
    }
    if (options->is_chat && !options->prompts) {
        rc = generate_chat(model, app, generator, &request, options, err);
    } else {
        if (is_root) {
            output = generate_output_create(model, options, texts,
                                            options->prompts ? GENERATE_LINES : GENERATE_STREAM);
            generate_output_receive(output, &request);
        }
        rc = generator_run(generator, &request, texts->prompt, texts->count, err);
        if (output && !rc)
            rc = generate_output_check(output, err);
        if (output && !rc)
            generate_output_report(output, &app->log);
        rc = world_agree(app->world, rc, err);
    }
    generate_output_destroy(output);
    generator_destroy(generator);
    return rc;
}

int command_generate(struct app *app, int argc, char **argv, struct error *err)
{
    struct generate_options options = {0};
    struct sampling_options sampling;
    struct generate_model model = {0};
    struct generate_texts texts = {0};
    struct session *session = NULL;
    struct config config;
    if (app_start_world(app, err))
        return -1;
    int rc = world_agree(app->world, parse(&options, &sampling, argc, argv, &config, err), err) ||
             generate_model_open(&model, app, &options, err);
    if (!rc) {
        apply_sampling(&model.config.generate, &sampling);
        if (model.config.generate.min_tokens > model.config.generate.tokens)
            rc = error_set(err, "--min-tokens (%lld) is above --tokens (%lld)",
                           (long long)model.config.generate.min_tokens,
                           (long long)model.config.generate.tokens);
    }
    if (!rc)
        rc = share_prompts(&model, app, &options, &texts, err);
    if (!rc) {
        const struct config_generate *how = &model.config.generate;
        int64_t tokens = texts.count ? how->longest + how->tokens : 0;
        rc = generate_model_load(&model, app, tokens, &session, err) ||
             run(&model, app, &options, &texts, session, err);
    }
    session_close(session);
    generate_texts_free(&texts);
    generate_model_close(&model);
    return rc ? -1 : 0;
}
