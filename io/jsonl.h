/* jsonl.h - records of JSON lines: one object a line, as data sets have them.
 *
 *   {"text": "..."}                                              a text
 *   {"prompt": "...", "completion": "..."}                       only the completion is learned
 *   {"instruction": "...", "input": "...", "output": "..."}      the same as Alpaca has it
 *   {"messages": [{"role": "user", "content": "..."}, ...]}      a conversation
 *   {"conversations": [{"from": "human", "value": "..."}, ...]}  the same as ShareGPT has it
 *
 * The kind of a record follows from the names of its fields.  A record that fits several kinds is
 * of the one that is lowest in this list: the text beside a conversation is ignored.  Other names
 * of fields can be given (struct jsonl_fields).  A prompt and its completion may also be lists of
 * messages.  A conversation with a field that no chat template here writes (tools, reasoning, a
 * system text) is refused; other fields are ignored.
 */
#ifndef TRIREME_IO_JSONL_H
#define TRIREME_IO_JSONL_H

#include <stddef.h>

#include "base/error.h"
#include "io/chat.h"

enum jsonl_kind { JSONL_TEXT, JSONL_PROMPT, JSONL_INSTRUCTION, JSONL_CHAT, JSONL_KINDS };

/* Names of fields that the user gave; NULL: those above. */
struct jsonl_fields {
    const char *text; /* holds a text, or a list of messages */
    const char *prompt, *completion;
    const char *advice; /* end of the message for a record without known fields; NULL: tokenize's */
};

/* UTF-8, which may hold U+0000. */
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

/* Read a line, with or without its newline, into record, in place of what the record holds.  Texts
 * in it live until the next call or jsonl_free().  Returns 0, or -1 with err saying what is wrong:
 * not JSON, not an object, not UTF-8, a field is absent or of another type, messages that trireme
 * cannot use (calls of tools, pictures, reasoning). */
int jsonl_read(struct jsonl_record *record, const struct jsonl_fields *fields, const char *line,
               size_t bytes, struct error *err);
void jsonl_free(struct jsonl_record *record);

/* Returns 1 if the first line of a text is a JSON object, by the text's first `bytes` bytes; 0
 * where the line does not end within these bytes. */
int jsonl_is_first(const char *text, size_t bytes);

/* Returns 1 if the line holds nothing but white space. */
int jsonl_is_blank(const char *line, size_t bytes);

/* Returns the fields that a kind is known by, for messages: "prompt and completion". */
const char *jsonl_kind_fields(enum jsonl_kind kind);

#endif
