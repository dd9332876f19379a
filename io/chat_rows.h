/* chat_rows.h - what a row of the table of chat templates says. */
#ifndef TRIREME_IO_CHAT_ROWS_H
#define TRIREME_IO_CHAT_ROWS_H

#include <stdint.h>

#include "io/chat.h"

/* Where the system message goes. */
enum chat_system {
    CHAT_SYSTEM_OWN,        /* it is a message like others */
    CHAT_SYSTEM_FIRST_USER, /* in front of the first user message's text */
    CHAT_SYSTEM_LAST_USER,  /* in front of the last one's */
    CHAT_SYSTEM_REFUSED
};

/* What is written around the text of a message: before, lead, the text, end, after.  Of a trained
 * message lead, text and end are trained. */
struct chat_wrap {
    const char *before, *lead, *end, *after; /* NULL: nothing */
    int trims; /* 1: white space at the ends of the text is left out */
};

enum { CHAT_TOKENS = 5, CHAT_PROGRAMS = 4 };

struct chat_template {
    const char *name;
    const char *begin; /* text before the first message */
    struct chat_wrap role[CHAT_ROLES];
    enum chat_system system;
    /* The system message where a conversation has none; NULL: none then. */
    const char *system_default;
    int alternates; /* 1: roles must be user, assistant, user, ... after the system message */
    /* Text between `before` and `lead` of an assistant's last message, if something is asked before
     * it (is_question()), and at the end of a prompt. */
    const char *last_answer;
    const char *refused; /* a text that the assistant's messages may not hold: it has a meaning */
    const char *keeps;   /* the template of the same tokens that keeps this text as it is */
    const char *tokens[CHAT_TOKENS]; /* those that a tokenizer needs for this template */
    /* A program in Jinja is this template's if its common form (chat_program.h) is that of one of
     * `program`, or if the XXH3 of that form is one of `form`: a phrase more or less in it may
     * write another text. */
    const char *program[CHAT_PROGRAMS];
    uint64_t form[CHAT_PROGRAMS]; /* 0: none */
};

extern const struct chat_template chat_rows[];
extern const int chat_row_count;

#endif
