/* generate_chat.c - a conversation; see generate.h.
 *
 * Each answer is generated from all messages before it.  The generator keeps the keys and values of
 * the part that it has computed for the answer before (generator.h), so that only new messages are
 * computed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/generate.h"
#include "comm/world.h"
#include "io/jsonl.h"

struct conversation {
    struct chat_message *messages; /* [count], each with a text of its own; on rank 0 alone, but for
                                      a system message, which all ranks add */
    int count, capacity;
    int has_warned; /* 1: rank 0 has warned that the conversation is longer than the context */
};

/* Append a message, which owns text from now on. */
static void add_message(struct conversation *c, enum chat_role role, char *text)
{
    c->messages = array_grow(c->messages, c->count, &c->capacity, sizeof *c->messages);
    c->messages[c->count++] =
        (struct chat_message){.role = role, .text = text, .bytes = strlen(text)};
}

static void end(struct conversation *c)
{
    for (int i = 0; i < c->count; i++)
        free((char *)c->messages[i].text);
    free(c->messages);
}

/* Read the user's next line on rank 0, after a prompt where a person types it.  Lines of nothing
 * but blanks are passed over.  Returns it for free(); NULL: the input has ended. */
static char *listen(void)
{
    int is_typed = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    do {
        if (is_typed) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        bytes = getline(&line, &capacity, stdin);
    } while (bytes >= 0 && jsonl_is_blank(line, strlen(line)));
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
        line[--bytes] = 0;
    if (bytes >= 0)
        return line;
    free(line);
    return NULL;
}

/* Generate and print an answer to the conversation, and append it.  Collective. */
static int answer(struct conversation *c, struct generate_model *model, struct app *app,
                  struct generator *generator, const struct generator_request *request,
                  const struct generate_options *options, struct error *err)
{
    int is_root = world_rank(app->world) == 0;
    struct generate_texts texts = {0};
    struct generate_output *output = NULL;
    struct generator_request own = *request;
    own.seed += (uint64_t)c->count; /* so that answers are drawn with different random numbers */
    size_t bytes;
    int rc = is_root ? generate_texts_chat(&texts, model, c->messages, c->count, err) : 0;
    if (world_agree(app->world, rc, err)) {
        generate_texts_free(&texts);
        return -1;
    }
    generate_texts_share(&texts, app->world);
    if (is_root) {
        if (!c->has_warned)
            c->has_warned = generate_texts_warn(&texts, &model->config, &app->log);
        output = generate_output_create(model, options, &texts, GENERATE_ANSWER);
        generate_output_receive(output, &own);
    }
    rc = generator_run(generator, &own, texts.prompt, texts.count, err);
    if (is_root && !rc) {
        const char *text = generate_output_text(output, 0, &bytes);
        add_message(c, CHAT_ASSISTANT, array_format("%.*s", (int)bytes, text));
        rc = generate_output_check(output, err);
    }
    rc = world_agree(app->world, rc, err);
    generate_output_destroy(output);
    generate_texts_free(&texts);
    return rc;
}

int generate_chat(struct generate_model *model, struct app *app, struct generator *generator,
                  const struct generator_request *request, const struct generate_options *options,
                  struct error *err)
{
    struct conversation c = {0};
    int is_root = world_rank(app->world) == 0, rc = 0, goes_on = 1;
    if (options->system)
        add_message(&c, CHAT_SYSTEM, array_text(options->system));
    while (!rc && goes_on) {
        world_watch(app->world, 0); /* a person may take any time */
        char *line = !is_root ? NULL : options->prompt ? array_text(options->prompt) : listen();
        goes_on = line != NULL;
        world_broadcast(app->world, &goes_on, sizeof goes_on, 0);
        world_watch(app->world, (int)model->config.run.hang_seconds);
        if (!goes_on)
            break;
        if (is_root)
            add_message(&c, CHAT_USER, line);
        rc = answer(&c, model, app, generator, request, options, err);
        goes_on = !options->prompt;
    }
    end(&c);
    return rc;
}
