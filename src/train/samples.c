/* samples.c - reading the texts once, and letting the model continue them at each evaluation.
 *
 * At the start rank 0 reads the texts from the first file of data.valid: the first documents of it
 * or, where these are too few, windows at equal distances.  Each is cut into what is given and how
 * it goes on there, the reference.  All ranks get what is given, and the ids at which a text ends;
 * the references stay on rank 0.
 *
 * At an evaluation the generator, on all ranks, continues all texts together, and hands each token
 * to take().  Rank 0 then writes the lines, as text where it knows the file's tokenizer, else as
 * ids.
 */
#include "train/samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/line_file.h"
#include "base/round.h"
#include "io/tokens.h"
#include "train/data_tokenizer.h"
#include "train/generator.h"
#include "train/metrics_resume.h"
#include "train/run_record.h"

enum { REPORTED = 60 }; /* tokens of each that the log shows: the last given, the first written */

/* Tokens of a text: first those that are given, then how it goes on. */
struct sample {
    int32_t *ids;
    int64_t given, count; /* how many ids are given, and how many there are */
    int32_t *written;     /* what the model wrote last, written_count of them */
    int64_t written_count;
};

struct samples {
    struct session *s;
    struct generator *generator;
    struct sample *sample;
    int count;
    char *stops;                 /* per id of the model's: 1: a text ends there */
    struct tokenizer *tokenizer; /* of rank 0; NULL: there is none, ids are shown */
    struct line_file file;       /* rank 0's */
};

/* ---- texts, on rank 0 ---- */

/* How many of a text's tokens are its prompt: those that its mask leaves out at its beginning. */
static int64_t prompt_of(const int32_t *targets, int64_t count)
{
    int64_t first = 0, any = 0;
    while (first < count && targets[first] < 0)
        first++;
    for (int64_t i = 0; i < count; i++)
        any |= targets[i] < 0;
    return any && first > 0 && first < count ? first : max_i64(count / 2, 1);
}

/* Read tokens [first, end) of the file, as many as the context and what is generated need. */
static int read_sample(struct sample *sample, struct tokens *tokens, int64_t first, int64_t end,
                       const struct config *config, struct error *err)
{
    int64_t count = min_i64(end - first, config->data.seq_len);
    int32_t *targets = array_make((size_t)count + 1, sizeof *targets);
    sample->ids = array_make((size_t)count + 1, sizeof *sample->ids);
    int rc = tokens_read(tokens, first, count, sample->ids, err);
    memcpy(targets, sample->ids, (size_t)count * sizeof *targets);
    if (!rc && tokens->has_mask)
        rc = tokens_mask(tokens, first, count, targets, err);
    sample->given = prompt_of(targets, count);
    int64_t most = min_i64(count, sample->given + config->generate.tokens);
    for (sample->count = sample->given; sample->count < most; sample->count++)
        if (targets[sample->count] < 0) /* of an answer, its end */
            break;
    free(targets);
    return rc;
}

static int read_documents(struct samples *samples, struct tokens *tokens, struct error *err)
{
    int rc = 0;
    for (int i = 0; !rc && i < samples->count; i++) {
        uint64_t at[2];
        rc = tokens_starts(tokens, i, 2, at, err);
        if (!rc && at[0] == at[1]) { /* an empty one: the text at the beginning of the file */
            at[0] = 0;
            at[1] = (uint64_t)tokens->count;
        }
        if (!rc)
            rc = read_sample(&samples->sample[i], tokens, (int64_t)at[0], (int64_t)at[1],
                             &samples->s->config, err);
    }
    return rc;
}

static int read_places(struct samples *samples, struct tokens *tokens, struct error *err)
{
    int rc = 0;
    for (int i = 0; !rc && i < samples->count; i++)
        rc = read_sample(&samples->sample[i], tokens, tokens->count / samples->count * i,
                         tokens->count, &samples->s->config, err);
    return rc;
}

static int read_texts(struct samples *samples, struct error *err)
{
    struct config_source files[CONFIG_SOURCES];
    struct tokens tokens;
    const struct config *config = &samples->s->config;
    if (config_sources(config->data.valid, files, err) < 1 ||
        tokens_open(&tokens, files[0].path, err))
        return -1;
    struct error why = {0};
    if (data_tokenizer_open(&samples->tokenizer, tokens.tokenizer, config, &why))
        log_warn(samples->s->log,
                 "generate.samples: %s is of tokenizer \"%s\", and samples.jsonl has ids alone: %s",
                 files[0].path, tokens.tokenizer, why.text);
    int rc = tokens.documents >= samples->count ? read_documents(samples, &tokens, err)
                                                : read_places(samples, &tokens, err);
    tokens_close(&tokens);
    return rc;
}

static void share(struct samples *samples)
{
    struct world *world = samples->s->world;
    int64_t vocab = samples->s->config.model.vocab;
    for (int64_t id = 0; id < vocab && samples->tokenizer; id++)
        samples->stops[id] = (char)tokenizer_is_stop(samples->tokenizer, id);
    world_broadcast(world, samples->stops, (size_t)vocab, 0);
    for (int i = 0; i < samples->count; i++) {
        struct sample *sample = &samples->sample[i];
        world_broadcast(world, &sample->given, sizeof sample->given, 0);
        if (!sample->ids)
            sample->ids = array_make((size_t)sample->given + 1, sizeof *sample->ids);
        world_broadcast(world, sample->ids, (size_t)sample->given * sizeof *sample->ids, 0);
    }
}

static int open_file(struct samples *samples, int64_t step, struct error *err)
{
    const char *dir = samples->s->config.run.dir;
    char *path = array_format("%s/" RUN_SAMPLES, dir);
    int rc = metrics_resume(path, step, samples->s->log, err) ||
             line_file_open(&samples->file, path, err);
    free(path);
    return rc ? -1 : 0;
}

int samples_open(struct samples **out, struct session *session, int64_t step, struct error *err)
{
    const struct config *config = &session->config;
    int is_root = world_rank(session->world) == 0;
    *out = NULL;
    if (!config->generate.samples)
        return 0;
    struct samples *samples = array_make(1, sizeof *samples);
    samples->s = session;
    samples->count = (int)config->generate.samples;
    samples->sample = array_make((size_t)samples->count, sizeof *samples->sample);
    samples->stops = array_make((size_t)config->model.vocab, 1);
    for (int i = 0; i < samples->count; i++)
        samples->sample[i].written =
            array_make((size_t)config->generate.tokens + 1, sizeof *samples->sample[i].written);
    int rc = is_root && (read_texts(samples, err) || open_file(samples, step, err)) ? -1 : 0;
    if (world_agree(session->world, rc, err)) {
        samples_close(samples);
        return -1;
    }
    share(samples);
    samples->generator = generator_create(session);
    *out = samples;
    return 0;
}

void samples_close(struct samples *samples)
{
    if (!samples)
        return;
    for (int i = 0; i < samples->count; i++) {
        free(samples->sample[i].ids);
        free(samples->sample[i].written);
    }
    int64_t lost = line_file_close(&samples->file);
    if (lost)
        log_warn(samples->s->log, "samples.jsonl lacks %lld lines that could not be written",
                 (long long)lost);
    tokenizer_close(samples->tokenizer);
    generator_destroy(samples->generator);
    free(samples->sample);
    free(samples->stops);
    free(samples);
}

/* ---- what is written ---- */

static int is_stop(void *user, int64_t id)
{
    const struct samples *samples = user;
    return samples->stops[id];
}

static int take(void *user, int64_t text, int64_t id)
{
    struct samples *samples = user;
    struct sample *sample = &samples->sample[text];
    sample->written[sample->written_count++] = (int32_t)id;
    return 0;
}

/* Add tokens to an object: as text where a tokenizer is known, else as numbers. */
static void add_tokens(const struct samples *samples, struct js *to, const char *key,
                       const int32_t *ids, int64_t count)
{
    size_t bytes, length;
    if (samples->tokenizer) {
        char *text = tokenizer_decode(samples->tokenizer, (const uint32_t *)ids, count,
                                      TOKENIZER_CONTINUED | TOKENIZER_SPECIALS, &bytes);
        char *valid = tokenizer_utf8(text, bytes, &length);
        js_add_bytes(to, key, valid, length);
        free(valid);
        free(text);
        return;
    }
    struct js *list = js_array();
    for (int64_t i = 0; i < count; i++)
        js_add_int(list, NULL, ids[i]);
    js_add(to, key, list);
}

static void report_first(const struct samples *samples, int64_t step)
{
    const struct sample *sample = &samples->sample[0];
    struct js *json = js_object();
    int64_t shown = min_i64(sample->given, REPORTED);
    add_tokens(samples, json, "given", sample->ids + sample->given - shown, shown);
    add_tokens(samples, json, "written", sample->written, min_i64(sample->written_count, REPORTED));
    char *text = js_text(json, JS_ONE_LINE, NULL);
    if (text)
        log_info(samples->s->log, "step %lld writes %.*s", (long long)step,
                 (int)strcspn(text, "\n"), text);
    free(text);
    js_free(json);
}

static void write_line(struct samples *samples, const char *text)
{
    enum line_file_outcome outcome = line_file_append(&samples->file, text);
    if (outcome == LINE_FILE_FAILED)
        log_warn(samples->s->log, "samples.jsonl: %s; lines are kept until there is space",
                 strerror(samples->file.why));
    if (outcome == LINE_FILE_RESUMED)
        log_info(samples->s->log, "samples.jsonl: what could not be written is in the file now");
}

static void write_lines(struct samples *samples, int64_t step)
{
    for (int i = 0; i < samples->count; i++) {
        const struct sample *sample = &samples->sample[i];
        struct js *json = js_object();
        js_add_int(json, "step", step);
        js_add_int(json, "sample", i);
        add_tokens(samples, json, "given", sample->ids, sample->given);
        add_tokens(samples, json, "written", sample->written, sample->written_count);
        add_tokens(samples, json, "reference", sample->ids + sample->given,
                   sample->count - sample->given);
        char *text = js_text(json, JS_ONE_LINE, NULL);
        if (text)
            write_line(samples, text);
        free(text);
        js_free(json);
    }
    report_first(samples, step);
}

/* Broadcast what the generator's root was handed: rank 0 writes it. */
static void share_written(struct samples *samples)
{
    int root = generator_root(samples->generator);
    for (int i = 0; i < samples->count; i++) {
        struct sample *sample = &samples->sample[i];
        world_broadcast(samples->s->world, &sample->written_count, sizeof sample->written_count,
                        root);
        world_broadcast(samples->s->world, sample->written,
                        (size_t)sample->written_count * sizeof *sample->written, root);
    }
}

int samples_write(struct samples *samples, int64_t step, const struct stop *stop, struct error *err)
{
    const struct config *config = &samples->s->config;
    struct generator_prompt *prompts = array_make((size_t)samples->count, sizeof *prompts);
    const struct generator_request request = {.how = config->generate,
                                              .seed = (uint64_t)config->seed,
                                              .vocab = config->model.vocab,
                                              .is_stop = is_stop,
                                              .take = take,
                                              .user = samples,
                                              .stop = stop};
    for (int i = 0; i < samples->count; i++) {
        prompts[i] = (struct generator_prompt){samples->sample[i].ids, samples->sample[i].given};
        samples->sample[i].written_count = 0;
    }
    generator_forget(samples->generator);
    int rc = generator_run(samples->generator, &request, prompts, samples->count, err);
    free(prompts);
    if (rc)
        return rc == GENERATOR_STOPPED ? SAMPLES_STOPPED : -1;
    share_written(samples);
    if (world_rank(samples->s->world) == 0)
        write_lines(samples, step);
    return 0;
}
