/* jsonl.h - records of JSON lines: one object a line, as data sets have them.
 *
 *   {"text": "..."}                                              a text
 *   {"prompt": "...", "completion": "..."}                       only the completion is learned
 *   {"instruction": "...", "input": "...", "output": "..."}      the same as Alpaca has it
 *   {"messages": [{"role": "user", "content": "..."}, ...]}      a conversation
 *   {"conversations": [{"from": "human", "value": "..."}, ...]}  the same as ShareGPT has it
 *
 * The kind of a record follows from the names of its fields; of several the lowest in this list is
 * taken, so that a text beside a conversation is passed over.  Fields by other names are asked for.
 * A prompt and its completion may be lists of messages, too.  What a conversation has beside its
 * messages and no chat template writes (tools, reasoning, a system text) is refused; other fields
 * are not looked at.
 */
#ifndef TRIREME_IO_JSONL_H
#define TRIREME_IO_JSONL_H

#include <stddef.h>

#include "base/error.h"
#include "io/chat.h"

enum jsonl_kind { JSONL_TEXT, JSONL_PROMPT, JSONL_INSTRUCTION, JSONL_CHAT, JSONL_KINDS };

/* Names of fields, where they are asked for; NULL: as above. */
struct jsonl_fields {
    const char *text; /* holds a text, or a list of messages */
    const char *prompt, *completion;
    const char *advice; /* for a record without any that is known; NULL: tokenize's */
};

/* UTF-8, U+0000 may be in it. */
struct jsonl_text {
    const char *text;
    size_t bytes;
};

/* A record; all zero is an empty one. */
struct jsonl_record {
    enum jsonl_kind kind;
    struct jsonl_text text;                      /* JSONL_TEXT */
    struct jsonl_text prompt, input, completion; /* JSONL_PROMPT, JSONL_INSTRUCTION */
    struct chat_message *messages;               /* JSONL_CHAT */
    int message_count, message_capacity;
    struct js *json; /* private: holds the texts */
};

/* Read a line (its end may be on it) to record, in place of what it holds.  Returns 0, or -1 with
 * err saying what is wrong: no JSON, no object, no UTF-8, a field that is not there or is of
 * another type, messages that trireme cannot use (calls of tools, pictures, reasoning). */
int jsonl_read(struct jsonl_record *record, const struct jsonl_fields *fields, const char *line,
               size_t bytes, struct error *err);
void jsonl_free(struct jsonl_record *record);

/* Does a text, of which these are the first bytes, begin with a line that is a JSON object?  0
 * where the line goes on behind them. */
int jsonl_is_first(const char *text, size_t bytes);

/* Is there nothing but space on the line? */
int jsonl_is_blank(const char *line, size_t bytes);

/* The fields that a kind is known by, for people: "prompt and completion". */
const char *jsonl_kind_fields(enum jsonl_kind kind);

#endif
