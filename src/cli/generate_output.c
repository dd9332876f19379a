/* generate_output.c - printing generated texts; see generate.h.
 *
 * The characters of each text so far are kept.  A stream prints characters as soon as they cannot
 * be the begin of a string of --stop any more; with --stop END:
 *
 *     "the E"   prints "the ", and holds "E" back
 *     "the End" prints "End"
 *     "the END" ends the text after "the "
 *
 * A line of JSON is written when its text and all texts before it have ended.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/generate.h"

/* A text that is being generated, without its prompt. */
struct written {
    char *text; /* [bytes] */
    size_t bytes, capacity;
    size_t shown;   /* bytes of text that a stream has printed */
    size_t limit;   /* offset in text at which a string of --stop begins; SIZE_MAX: none has come */
    int64_t tokens; /* generated so far */
    int stopped;    /* 1: it ended with a token or string that stops, not for its length */
    int has_ended;  /* 1: no token comes any more */
    struct tokenizer_decoder *decoder;
};

struct generate_output {
    const struct generate_model *model;
    const struct generate_options *options;
    const struct generate_texts *texts;
    enum generate_form form;
    struct written *written; /* [texts->count] */
    int lines;               /* of JSON, written so far */
    int why;                 /* errno of the first write to standard output that failed; 0: none */
    int64_t start_ns;        /* clock_ns() at its creation, */
    int64_t first_ns, last_ns; /* and when the first token and the last one came; 0: none did */
};

/* Write to standard output, unbuffered. */
static void put(struct generate_output *o, const char *text, size_t bytes)
{
    if (o->why)
        return;
    errno = EIO;
    if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout))
        o->why = errno;
}

struct generate_output *generate_output_create(const struct generate_model *model,
                                               const struct generate_options *options,
                                               const struct generate_texts *texts,
                                               enum generate_form form)
{
    struct generate_output *o = array_make(1, sizeof *o);
    *o = (struct generate_output){
        .model = model, .options = options, .texts = texts, .form = form, .start_ns = clock_ns()};
    o->written = array_make((size_t)texts->count, sizeof *o->written);
    for (int i = 0; i < texts->count; i++) {
        o->written[i].limit = SIZE_MAX;
        tokenizer_decoder_create(&o->written[i].decoder, model->tokenizer,
                                 form == GENERATE_ANSWER ? 0 : TOKENIZER_CONTINUED);
    }
    if (form == GENERATE_STREAM && texts->given[0].text)
        put(o, texts->given[0].text, texts->given[0].bytes);
    return o;
}

void generate_output_destroy(struct generate_output *o)
{
    if (!o)
        return;
    for (int i = 0; i < o->texts->count; i++) {
        tokenizer_decoder_destroy(o->written[i].decoder);
        free(o->written[i].text);
    }
    free(o->written);
    free(o);
}

static void append(struct written *w, const char *text, size_t bytes)
{
    if (w->bytes + bytes + 1 > w->capacity) {
        w->capacity = 2 * (w->bytes + bytes + 1);
        w->text = array_need(realloc(w->text, w->capacity), w->capacity);
    }
    memcpy(w->text + w->bytes, text, bytes);
    w->bytes += bytes;
    w->text[w->bytes] = 0;
}

/* Set w->limit to where the first string of --stop begins.  Bytes before `from` were searched
 * before; a string may begin among them and end after. */
static void find_stop(const struct generate_options *options, struct written *w, size_t from)
{
    for (int i = 0; i < options->stops; i++) {
        size_t length = strlen(options->stop[i]);
        size_t first = from > length ? from - length : 0;
        for (size_t at = first; at + length <= w->bytes && at < w->limit; at++)
            if (!memcmp(w->text + at, options->stop[i], length))
                w->limit = at;
    }
}

/* Return how many bytes at the end of the text may be the begin of a string of --stop. */
static size_t held_back(const struct generate_options *options, const struct written *w)
{
    size_t most = 0;
    for (int i = 0; i < options->stops; i++)
        for (size_t n = 1; n < strlen(options->stop[i]) && n <= w->bytes; n++)
            if (n > most && !memcmp(w->text + w->bytes - n, options->stop[i], n))
                most = n;
    return most;
}

static size_t length_of(const struct written *w)
{
    return w->limit < w->bytes ? w->limit : w->bytes;
}

static void show(struct generate_output *o, struct written *w)
{
    size_t end = length_of(w);
    if (w->limit == SIZE_MAX && !w->has_ended)
        end -= held_back(o->options, w);
    if (o->form == GENERATE_LINES || end <= w->shown)
        return;
    put(o, w->text + w->shown, end - w->shown);
    w->shown = end;
}

static int is_stop(void *user, int64_t id)
{
    const struct generate_output *o = user;
    const struct tokenizer *tokenizer = o->model->tokenizer;
    if (tokenizer_is_stop(tokenizer, id))
        return 1;
    /* In a conversation, a token that begins another message ends this one. */
    for (int i = 0; o->model->chat && chat_token(o->model->chat, i); i++)
        if (tokenizer_id(tokenizer, chat_token(o->model->chat, i)) == id)
            return 1;
    return 0;
}

static int take(void *user, int64_t text, int64_t id)
{
    struct generate_output *o = user;
    struct written *w = &o->written[text];
    size_t bytes, before = w->bytes;
    const char *piece = tokenizer_decoder_add(w->decoder, (uint32_t)id, &bytes);
    append(w, piece, bytes);
    w->tokens++;
    o->last_ns = clock_ns();
    o->first_ns = o->first_ns ? o->first_ns : o->last_ns;
    find_stop(o->options, w, before);
    show(o, w);
    w->stopped = w->limit != SIZE_MAX;
    return w->stopped || o->why; /* nobody reads the rest */
}

static void add_text(struct js *to, const char *key, const char *text, size_t bytes)
{
    size_t length;
    char *valid = tokenizer_utf8(text, bytes, &length);
    js_add_bytes(to, key, valid, length);
    free(valid);
}

static struct js *line_of(const struct generate_output *o, int text)
{
    const struct written *w = &o->written[text];
    const struct generate_given *given = &o->texts->given[text];
    struct js *json = js_object();
    js_add_int(json, "line", given->line);
    if (given->text)
        add_text(json, "prompt", given->text, given->bytes);
    if (given->messages)
        js_add(json, "messages", js_parse(given->messages, NULL));
    add_text(json, "completion", w->text ? w->text : "", length_of(w));
    js_add_int(json, "tokens", w->tokens);
    js_add_string(json, "end", w->stopped ? "stop" : "length");
    return json;
}

/* Write the lines of texts that have ended, up to the first text that has not. */
static void write_lines(struct generate_output *o)
{
    for (; o->lines < o->texts->count && o->written[o->lines].has_ended; o->lines++) {
        struct js *json = line_of(o, o->lines);
        char *text = js_text(json, JS_ONE_LINE, NULL);
        put(o, text ? text : "\n", text ? strlen(text) : 1);
        free(text);
        js_free(json);
    }
}

static void ended(void *user, int64_t text)
{
    struct generate_output *o = user;
    struct written *w = &o->written[text];
    size_t bytes, before = w->bytes;
    const char *rest = tokenizer_decoder_finish(w->decoder, &bytes);
    append(w, rest, bytes);
    find_stop(o->options, w, before);
    w->stopped |= w->tokens < o->model->config.generate.tokens;
    w->has_ended = 1;
    show(o, w);
    if (o->form == GENERATE_LINES)
        write_lines(o);
    else
        put(o, "\n", 1);
}

int generate_output_check(const struct generate_output *o, struct error *err)
{
    if (!o->why)
        return 0;
    errno = o->why;
    return error_errno(err, "standard output");
}

void generate_output_receive(struct generate_output *output, struct generator_request *request)
{
    request->is_stop = is_stop;
    request->take = take;
    request->ended = ended;
    request->user = output;
}

void generate_output_report(const struct generate_output *o, struct log *log)
{
    int64_t tokens = 0;
    for (int i = 0; i < o->texts->count; i++)
        tokens += o->written[i].tokens;
    double first = (double)(o->first_ns - o->start_ns) / 1e9;
    double all = (double)(o->last_ns - o->start_ns) / 1e9;
    if (tokens)
        log_info(log, "%lld tokens in %.2f s, the first after %.3f s, then %.1f tokens/s",
                 (long long)tokens, all, first,
                 all > first ? (double)(tokens - 1) / (all - first) : 0);
}

const char *generate_output_text(const struct generate_output *o, int text, size_t *bytes)
{
    *bytes = length_of(&o->written[text]);
    return o->written[text].text ? o->written[text].text : "";
}
