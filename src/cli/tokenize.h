/* tokenize.h - what the files src/cli/tokenize*.c share: the job, from its options to its results.
 *
 *     tokenize.c          the command: making, verifying and sealing token files
 *     tokenize_options.c  reading the options, and checking that the inputs have a use for them
 *     tokenize_make.c     the job: opens what it needs, does the work, reports
 *     tokenize_work.c     inputs of text and of JSON lines, in blocks, by several threads
 *     tokenize_record.c   one record of JSON lines to tokens
 *     tokenize_numbers.c  inputs of token ids
 *     tokenize_join.c     inputs that are token files
 *     tokenize_output.c   the token files that are written
 *     tokenize_train.c    --train-bpe: making a tokenizer of texts (tokenize_train.h)
 */
#ifndef TRIREME_CLI_TOKENIZE_H
#define TRIREME_CLI_TOKENIZE_H

#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/inputs.h"
#include "io/chat.h"
#include "io/chat_encode.h"
#include "io/tokens.h"
#include "io/jsonl.h"
#include "io/token_list.h"
#include "io/tokenizer.h"

struct app;

/* Options */

enum tokenize_use { TOKENIZE_MAKE, TOKENIZE_VERIFY, TOKENIZE_SEAL };
enum tokenize_loss { TOKENIZE_COMPLETION, TOKENIZE_ALL }; /* which tokens are targets */

struct tokenize_options {
    enum tokenize_use use;
    const char *tokenizer;      /* a file, folder or name; NULL: not given */
    const char *chat;           /* name of a chat template; NULL: not given */
    const char *eos;            /* --eos: an id, or the text of a token; NULL: not given */
    struct jsonl_fields fields; /* names of the members that records of JSON lines have */
    enum inputs_format format;
    enum tokenize_loss loss;
    int64_t vocab;      /* of token ids without a tokenizer; 0: not given */
    int64_t max_tokens; /* most tokens of a document; 0: any number */
    int drops_long;     /* 1: longer documents are left out; 0: they are cut */
    int skips_bad;      /* 1: lines that cannot be used are counted; 0: they are errors */
    int specials;       /* 1: names of special tokens in texts become these tokens */
    int threads;
    const char *train, *valid; /* paths of the outputs; valid NULL: not asked for */
    double valid_fraction;     /* share of the documents, or of a text's end, for valid */
};

/* Read the options, and leave the files in argv.  Returns 0, or -1 with err set. */
int tokenize_options_read(struct tokenize_options *options, int *argc, char **argv,
                          struct error *err);
/* Refuse an option that no input has a use for.  Returns 0, or -1 with err set. */
int tokenize_options_check(const struct tokenize_options *options, const struct inputs *inputs,
                           struct error *err);

/* Outputs */

struct tokenize_output {
    const char *path; /* NULL: not asked for */
    struct tokens_writer *writer;
    int64_t tokens, documents, targets; /* written so far */
    int has_mask;                       /* 1: some token so far is not a target */
};

/* Begin a document.  Returns 0, or -1 with err set. */
int tokenize_output_begin(struct tokenize_output *output, struct error *err);
/* Add tokens to the document that was begun last.  mask: [count] 1 for a target, else 0; NULL: all
 * are targets.  Returns 0, or -1 with err set. */
int tokenize_output_add(struct tokenize_output *output, const uint32_t *ids, const uint8_t *mask,
                        int64_t count, struct error *err);
/* Finish the file, whose conversations are by this chat template ("": there are none).  Returns 0,
 * or -1 with err set. */
int tokenize_output_finish(struct tokenize_output *output, const char *chat, struct error *err);
/* Print a line with what was written, after the text `before`. */
void tokenize_output_print(const struct tokenize_output *output, const char *before);
/* Remove unfinished files that killed `tokenize` commands left beside this path (NULL: none), and
 * log those that cannot be removed. */
void tokenize_output_sweep(const char *path, struct log *log);

/* The job */

struct tokenize_counts {
    int64_t records[JSONL_KINDS]; /* of JSON lines that became documents, by kind */
    int64_t empty;                /* documents without content, left out */
    int64_t bad;                  /* lines that cannot be used */
    int64_t cut, dropped;         /* documents longer than max_tokens: cut; left out */
    int64_t untrained;            /* documents without a target, left out */
    int64_t broken;               /* bytes of texts that are not UTF-8 */
    int64_t zeros;                /* bytes of texts that are 0 */
};

struct tokenize_job {
    struct tokenize_options options;
    struct inputs inputs;
    struct tokenizer *tokenizer;   /* NULL: the inputs are token ids, of options.vocab */
    const char *name;              /* of the tokenizer, for the token files */
    char *joined;                  /* that name, where inputs are token files; else NULL */
    char joined_chat[TOKENS_CHAT]; /* the chat template of token files that are joined; "": none */
    int64_t vocab;
    int64_t end_of_text;              /* id that is put after each text; -1: none */
    int64_t cut_after;                /* id after which documents of token ids end; -1: none */
    struct tokenizer_wrap wrap;       /* ids before and after the text of a document */
    const struct chat_template *chat; /* NULL: none is known, and no_chat says why */
    struct error no_chat;
    struct chat_specials *specials;
    struct tokenize_output train, valid;
    struct tokenize_counts counts;
    struct error first_bad;   /* what is wrong with the first line that was left out */
    const char *first_broken; /* path of the first text that is not all UTF-8 */
    const char *first_zero;   /* path of the first text with bytes of 0 */
    const char *first_json;   /* path of the first text that begins with a line of JSON */
    int64_t texts, others;    /* documents so far: texts; those of JSON lines and token ids */
    int64_t line;             /* lines so far of the file that is read */
};

/* Choose the output of the next document: with a valid_fraction F, every 1/F-th document is for
 * validation.  *seen: the number of documents before it, which is advanced. */
struct tokenize_output *tokenize_output_choose(struct tokenize_job *job, int64_t *seen);

/* tokenize_work.c: read all inputs and write their tokens.  Returns 0, or -1 with err set. */
int tokenize_work(struct tokenize_job *job, struct error *err);

/* tokenize_numbers.c: read an input of token ids and write them.  Returns 0, or -1 with err set. */
int tokenize_numbers(struct tokenize_job *job, const struct inputs_file *input, struct error *err);

/* tokenize_join.c: where inputs are token files, check that all are, of one tokenizer, and set the
 * job's name, joined, joined_chat and vocab; warn where their chat templates differ.  Returns 0, or
 * -1 with err set. */
int tokenize_join_check(struct tokenize_job *job, struct log *log, struct error *err);

/* tokenize_join.c: read a token file and write its documents.  Returns 0, or -1 with err set. */
int tokenize_join(struct tokenize_job *job, const struct inputs_file *input, struct error *err);

/* tokenize_record.c: what a thread needs to make tokens of records; for tokenize_record_free(). */
struct tokenize_record {
    const struct tokenize_job *job;
    struct tokenizer_encoder *encoder; /* the caller's */
    struct jsonl_record record;        /* the line that is read */
    struct chat_text text;             /* a conversation as text */
    struct chat_encoder chat;
    char *scratch; /* parts of a prompt, end to end */
};

/* Make a document of a line of JSON and append its tokens to list.  Returns 1; 0 where the line is
 * left out, which counts says; or -1 with err set: the line cannot be used.  Unless 1 is returned,
 * list is as it was. */
int tokenize_record_add(struct tokenize_record *record, const char *line, size_t bytes,
                        struct token_list *list, struct tokenize_counts *counts, struct error *err);
void tokenize_record_free(struct tokenize_record *record);
/* Check that the tokenizer has a token to put after a text.  Returns 0, or -1 with err set. */
int tokenize_record_check_end(const struct tokenize_job *job, struct error *err);

/* tokenize_make.c: make token files of the files that the arguments name, and report.  Returns 0,
 * or -1 with err set. */
int tokenize_make(struct app *app, const struct tokenize_options *options, char **arguments,
                  int count, struct error *err);

#endif
