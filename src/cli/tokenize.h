/* tokenize.h - what the files src/cli/tokenize*.c share: the job, from its options to its results.
 *
 *     tokenize.c          the command: token files made, verified, sealed
 *     tokenize_options.c  options, and whether the inputs have a use for them
 *     tokenize_make.c     the job from inputs to outputs
 *     tokenize_work.c     blocks of text and of lines, by several threads
 *     tokenize_record.c   one record of JSON lines to tokens
 *     tokenize_numbers.c  files of numbers
 *     tokenize_output.c   the token files that are written
 */
#ifndef TRIREME_CLI_TOKENIZE_H
#define TRIREME_CLI_TOKENIZE_H

#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/inputs.h"
#include "io/chat.h"
#include "io/chat_encode.h"
#include "io/jsonl.h"
#include "io/token_list.h"
#include "io/tokenizer.h"

struct app;

/* Options */

enum tokenize_use { TOKENIZE_MAKE, TOKENIZE_VERIFY, TOKENIZE_SEAL };
enum tokenize_loss { TOKENIZE_COMPLETION, TOKENIZE_ALL }; /* which tokens are targets */

struct tokenize_options {
    enum tokenize_use use;
    const char *tokenizer, *chat, *eos; /* NULL: not given */
    struct jsonl_fields fields;
    enum inputs_format format;
    enum tokenize_loss loss;
    int64_t vocab;      /* of numbers without a tokenizer; 0: not given */
    int64_t max_tokens; /* of a document; 0: any number */
    int drops_long;     /* longer documents are left out, not cut */
    int skips_bad;      /* lines that cannot be used are counted */
    int specials;       /* special tokens in texts are those tokens */
    int threads;
    const char *train, *valid; /* paths; valid NULL: not asked for */
    double valid_fraction;
};

/* Read the options, and leave the files in argv.  Returns 0, or -1 with err set. */
int tokenize_options_read(struct tokenize_options *options, int *argc, char **argv,
                          struct error *err);
/* Refuse an option that no input has a use for. */
int tokenize_options_check(const struct tokenize_options *options, const struct inputs *inputs,
                           struct error *err);

/* Outputs */

struct tokenize_output {
    const char *path; /* NULL: not asked for */
    struct tokens_writer *writer;
    int64_t tokens, documents, targets;
    int has_mask; /* some token is no target */
};

/* Begin a document, and add tokens to the last one; without a mask all are targets.  Return 0, or
 * -1 with err set. */
int tokenize_output_begin(struct tokenize_output *output, struct error *err);
int tokenize_output_add(struct tokenize_output *output, const uint32_t *ids, const uint8_t *mask,
                        int64_t count, struct error *err);
int tokenize_output_finish(struct tokenize_output *output, struct error *err);
void tokenize_output_print(const struct tokenize_output *output, const char *before);
/* Remove unfinished files that killed `tokenize` commands left beside this path (NULL: none), and
 * log those that cannot be removed. */
void tokenize_output_sweep(const char *path, struct log *log);

/* The job */

struct tokenize_counts {
    int64_t records[JSONL_KINDS];
    int64_t empty, bad, cut, dropped, untrained;
    int64_t broken; /* bytes of texts that are no UTF-8 */
};

struct tokenize_job {
    struct tokenize_options options;
    struct inputs inputs;
    struct tokenizer *tokenizer; /* NULL: numbers with a vocabulary of their own */
    const char *name;            /* of the tokenizer, for the file */
    int64_t vocab;
    int64_t end_of_text;              /* behind each text; -1: none */
    int64_t cut_behind;               /* of token ids: documents end behind it; -1: none */
    struct tokenizer_wrap wrap;       /* around the text of a document */
    const struct chat_template *chat; /* NULL: none is known, no_chat says why */
    struct error no_chat;
    struct chat_specials *specials;
    struct tokenize_output train, valid;
    struct tokenize_counts counts;
    struct error first_bad;   /* of the lines that were left out */
    const char *first_broken; /* the first text that is not all UTF-8 */
    const char *first_json;   /* the first text that begins with a line of JSON */
    int64_t texts, others;    /* documents so far: texts, and of other files */
    int64_t line;             /* lines so far of the file that is read */
};

/* The output of the next document: every 1/F-th one is for validation.  seen counts them. */
struct tokenize_output *tokenize_output_choose(struct tokenize_job *job, int64_t *seen);

/* tokenize_work.c: all inputs to outputs.  Returns 0, or -1 with err set. */
int tokenize_work(struct tokenize_job *job, struct error *err);

/* tokenize_numbers.c: the input is a file of numbers. */
int tokenize_numbers(struct tokenize_job *job, const struct inputs_file *input, struct error *err);

/* tokenize_record.c: what a thread needs to make tokens of records. */
struct tokenize_record {
    const struct tokenize_job *job;
    struct tokenizer_encoder *encoder; /* the caller's */
    struct jsonl_record record;
    struct chat_text text;
    struct chat_encoder chat;
    char *scratch;
};

/* Append a line's document to list.  Returns 1; 0 where there is none, counted in counts; -1 with
 * err set: the line cannot be used. */
int tokenize_record_add(struct tokenize_record *record, const char *line, size_t bytes,
                        struct token_list *list, struct tokenize_counts *counts, struct error *err);
void tokenize_record_free(struct tokenize_record *record);
/* Does the tokenizer have something to put behind a text?  Returns 0, or -1 with err set. */
int tokenize_record_check_end(const struct tokenize_job *job, struct error *err);

/* tokenize_make.c: make token files of the arguments. */
int tokenize_make(struct app *app, const struct tokenize_options *options, char **arguments,
                  int count, struct error *err);

#endif
