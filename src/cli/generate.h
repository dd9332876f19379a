/* generate.h - what the files src/cli/generate*.c share.
 *
 *     generate.c          the command: its options, and the order of what follows
 *     generate_model.c    the model, of a run, a checkpoint or a folder, and its tokenizer
 *     generate_prompts.c  prompts as tokens
 *     generate_output.c   the generated tokens, printed as text or as JSON lines
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
    const char *from;                 /* run, checkpoint, folder or name of the hub */
    const char *prompt, *prompts;     /* a text to continue; a file of texts; NULL: not given */
    const char *tokenizer;            /* a file, folder or name; NULL: not given */
    const char *template;             /* name of a chat template; NULL: not given */
    const char *system;               /* first message of a conversation; NULL: not given */
    const char *stop[GENERATE_STOPS]; /* [stops] strings at which a generated text ends */
    int stops;
    int is_chat; /* 1: --chat */
    int64_t seed;
    const char *const *settings; /* [setting_count] "key=value" */
    int setting_count;
    char of_step[CONFIG_TEXT + 48]; /* path of the checkpoint that checkpoint.resume=STEP names, to
                                       which `from` points then; "": not given */
};

/* ---- the model ---- */

struct generate_model {
    struct checkpoint *checkpoint; /* NULL: the weights are in the folder config.model_path */
    struct config config;
    struct tokenizer *tokenizer;      /* on rank 0; NULL on the others */
    const struct chat_template *chat; /* on rank 0, for conversations; else NULL */
    const char *chat_from;            /* who has this template; NULL: --chat-template names it */
    int has_length; /* 1: data.seq_len is that of training, or was asked for; 0: to be chosen */
};

/* Find what options->from is, and read its configuration and tokenizer.  Collective over the app's
 * world.  model, all zero before, is for generate_model_close(), also after a failure.  Returns 0,
 * or -1 on all ranks with err set. */
int generate_model_open(struct generate_model *model, struct app *app,
                        const struct generate_options *options, struct error *err);
/* Open a session with the model's weights; *session, NULL before, is for session_close(), also
 * after a failure.  tokens: length of the longest text with its prompt, 0: not known; it sets the
 * context where !has_length.  Collective.  Returns 0, or -1 on all ranks with err set. */
int generate_model_load(struct generate_model *model, struct app *app, int64_t tokens,
                        struct session **session, struct error *err);
void generate_model_close(struct generate_model *model);

/* ---- prompts ---- */

/* A prompt as the user gave it, to be printed again. */
struct generate_given {
    char *text;     /* NULL: the prompt is a conversation */
    size_t bytes;   /* of text */
    char *messages; /* of a conversation that came from a file, as a list in JSON; else NULL */
    int64_t line;   /* line of the file of --prompts; 0: it came from no file */
};

/* Prompts; all zero is none.  For generate_texts_free(). */
struct generate_texts {
    struct generator_prompt *prompt; /* [count], with ids of their own, on every rank */
    struct generate_given *given;    /* [texts] on rank 0; NULL on the others */
    int count, capacity;             /* of prompt */
    int texts;                       /* of given; 0 on ranks without it */
};

/* Add the prompt of options, else those of the file of options, else standard input as one prompt.
 * For rank 0.  Returns 0, or -1 with err set. */
int generate_texts_read(struct generate_texts *texts, const struct generate_model *model,
                        const struct generate_options *options, struct error *err);
/* Add a conversation of `count` messages, to be continued by the assistant.  For rank 0.  Returns
 * 0, or -1 with err set. */
int generate_texts_chat(struct generate_texts *texts, const struct generate_model *model,
                        const struct chat_message *messages, int count, struct error *err);
/* Broadcast rank 0's prompts to all ranks.  Collective. */
void generate_texts_share(struct generate_texts *texts, struct world *world);
/* Return the tokens of the longest prompt; 0: there is none. */
int64_t generate_texts_longest(const struct generate_texts *texts);
/* Warn of a prompt that the context does not hold, and say how much of it is not read.  For rank 0,
 * as any other rank would print the warning again.  Returns 1 if there is one, else 0. */
int generate_texts_warn(const struct generate_texts *texts, const struct config *config,
                        struct log *log);
void generate_texts_free(struct generate_texts *texts);

/* ---- output ---- */

struct generate_output;

enum generate_form {
    GENERATE_STREAM, /* one text, as its tokens come, its prompt before it */
    GENERATE_ANSWER, /* one text, as its tokens come, without the prompt */
    GENERATE_LINES   /* several texts: a line with a JSON object for each, in their order */
};

/* Make an output that writes texts to standard output while they are generated; model, options and
 * texts have to outlive it.  For rank 0, as all that follows. */
struct generate_output *generate_output_create(const struct generate_model *model,
                                               const struct generate_options *options,
                                               const struct generate_texts *texts,
                                               enum generate_form form);
void generate_output_destroy(struct generate_output *output); /* NULL allowed */
/* Set the callbacks of a request so that output receives the tokens. */
void generate_output_receive(struct generate_output *output, struct generator_request *request);
/* Return 0, or -1 with err set where a write to standard output failed. */
int generate_output_check(const struct generate_output *output, struct error *err);
/* Log the number of tokens, the time that they took, and the time until the first one. */
void generate_output_report(const struct generate_output *output, struct log *log);
/* Return what was generated of text number `text` so far, without its prompt, in memory of output;
 * *bytes: its length. */
const char *generate_output_text(const struct generate_output *output, int text, size_t *bytes);

/* ---- a conversation ---- */

/* Hold a conversation: read lines of the user from standard input until it ends, or take the prompt
 * of options alone, and generate an answer to each.  Collective.  Returns 0, or -1 with err set. */
int generate_chat(struct generate_model *model, struct app *app, struct generator *generator,
                  const struct generator_request *request, const struct generate_options *options,
                  struct error *err);

#endif
