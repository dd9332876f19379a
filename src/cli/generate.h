/* generate.h - what the files src/cli/generate*.c share.
 *
 *     generate.c          the command: options, what is continued, and how
 *     generate_model.c    the model, of a run, a checkpoint or a folder, and its tokenizer
 *     generate_prompts.c  prompts as tokens
 *     generate_output.c   what comes, as text or as JSON lines
 *     generate_chat.c     a conversation
 *
 * All ranks compute; rank 0 alone has tokenizer and texts, and sends the others the tokens.
 */
#ifndef TRIREME_CLI_GENERATE_H
#define TRIREME_CLI_GENERATE_H

#include "cli/command.h"
#include "io/chat.h"
#include "io/checkpoint.h"
#include "io/token_list.h"
#include "io/tokenizer.h"
#include "train/generator.h"

enum { GENERATE_STOPS = 8 };

struct generate_options {
    const char *from;                          /* run, checkpoint, folder or name of the hub */
    const char *prompt, *prompts;              /* a text; a file of them; NULL: not given */
    const char *tokenizer, *template, *system; /* the same */
    const char *stop[GENERATE_STOPS];          /* texts that end a text */
    int stops, is_chat;
    int64_t seed;
    const char *const *settings; /* "key=value" */
    int setting_count;
    char of_step[CONFIG_TEXT + 48]; /* the checkpoint that checkpoint.resume=STEP names; "": none */
};

/* ---- the model ---- */

struct generate_model {
    struct checkpoint *checkpoint; /* NULL: it is a folder's */
    struct config config;
    struct tokenizer *tokenizer;      /* of rank 0; NULL elsewhere */
    const struct chat_template *chat; /* of rank 0, of a conversation */
    int has_length;                   /* 1: data.seq_len is that of training, or asked for */
};

/* Find what options->from is, and read its configuration and tokenizer.  Collective over the app's
 * world.  Returns 0, or -1 on all ranks with err set; generate_model_close() in any case. */
int generate_model_open(struct generate_model *model, struct app *app,
                        const struct generate_options *options, struct error *err);
/* Open a session with the model's weights, for session_close(); tokens: the longest text that is
 * expected, which sets the context where nothing else does.  Collective over the app's world.
 * Returns 0, or -1 on all ranks with err set. */
int generate_model_load(struct generate_model *model, struct app *app, int64_t tokens,
                        struct session **session, struct error *err);
void generate_model_close(struct generate_model *model);

/* ---- prompts ---- */

/* A prompt as it was given. */
struct generate_given {
    char *text; /* NULL: a conversation */
    size_t bytes;
    char *messages; /* a conversation's, as a list in JSON; NULL: a text, or none are wanted */
    int64_t line;   /* of --prompts; 0: of no file */
};

/* All zero is none. */
struct generate_texts {
    struct generator_prompt *prompt; /* with ids of their own */
    struct generate_given *given;    /* of rank 0 */
    int count, capacity, texts;
};

/* On rank 0: add the prompt of options, else those of its file, else standard input as one.
 * Returns 0, or -1 with err set. */
int generate_texts_read(struct generate_texts *texts, const struct generate_model *model,
                        const struct generate_options *options, struct error *err);
/* On rank 0: add a conversation, to be continued by the assistant.  Returns 0, or -1 with err set.
 */
int generate_texts_chat(struct generate_texts *texts, const struct generate_model *model,
                        const struct chat_message *messages, int count, struct error *err);
/* Broadcast rank 0's texts.  Collective. */
void generate_texts_share(struct generate_texts *texts, struct world *world);
/* The number of tokens of the longest prompt. */
int64_t generate_texts_longest(const struct generate_texts *texts);
/* Warn of a prompt that the context does not hold, and say how much of it is not read.  Returns 1
 * if there is one, else 0. */
int generate_texts_warn(const struct generate_texts *texts, const struct config *config,
                        struct log *log);
void generate_texts_free(struct generate_texts *texts);

/* ---- output ---- */

struct generate_output;

enum generate_form {
    GENERATE_STREAM, /* one text as it comes, its prompt before it */
    GENERATE_ANSWER, /* without the prompt */
    GENERATE_LINES   /* an object a line for each of several, in their order */
};

/* Write what comes of texts to standard output.  On rank 0. */
struct generate_output *generate_output_create(const struct generate_model *model,
                                               const struct generate_options *options,
                                               const struct generate_texts *texts,
                                               enum generate_form form);
void generate_output_destroy(struct generate_output *output); /* NULL allowed */
/* Set the functions of a request, and their user, so that output receives its tokens. */
void generate_output_receive(struct generate_output *output, struct generator_request *request);
/* Returns 0, or -1 with err set where standard output did not take all. */
int generate_output_check(const struct generate_output *output, struct error *err);
/* Log how many tokens came in which time, and after which the first did. */
void generate_output_report(const struct generate_output *output, struct log *log);
/* The text of text number `text` so far, without its prompt; it lives as long as output. */
const char *generate_output_text(const struct generate_output *output, int text, size_t *bytes);

/* ---- a conversation ---- */

/* Read what the user says, a line each, or take the prompt of options alone, and answer.
 * Collective.  Returns 0, or -1 with err set. */
int generate_chat(struct generate_model *model, struct app *app, struct generator *generator,
                  const struct generator_request *request, const struct generate_options *options,
                  struct error *err);

#endif
