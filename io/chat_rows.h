/* chat_rows.h - what a row of the table of chat templates says. */
#ifndef TRIREME_IO_CHAT_ROWS_H
#define TRIREME_IO_CHAT_ROWS_H

#include "io/chat.h"

/* Where the system message goes. */
enum chat_system {
    CHAT_SYSTEM_OWN,        /* it is a message like others */
    CHAT_SYSTEM_FIRST_USER, /* in front of the first user message's text */
    CHAT_SYSTEM_LAST_USER,  /* in front of the last one's */
    CHAT_SYSTEM_REFUSED
};

/* A message is: before, lead, its text, end, after.  Where it is trained, lead to end are. */
struct chat_wrap {
    const char *before, *lead, *end, *after; /* NULL: nothing */
    int trims;                               /* its text without space around it */
};

enum { CHAT_TOKENS = 5, CHAT_PHRASES = 4, CHAT_PROGRAMS = 4 };

struct chat_template {
    const char *name;
    const char *begin; /* before the first message */
    struct chat_wrap role[CHAT_ROLES];
    enum chat_system system;
    /* The system message where a conversation has none; NULL: none then. */
    const char *system_default;
    int alternates; /* user, assistant, user, ... */
    /* Before the text of an assistant's last message, and at the end of a prompt. */
    const char *last_answer;
    const char *refused; /* a text that messages of the assistant may not hold: it has a meaning */
    const char *tokens[CHAT_TOKENS];
    /* Known by its Jinja text, which is one of `program` in another form (chat_program.h); where
     * there are none, a text that holds all of `has` and none of `lacks`. */
    const char *program[CHAT_PROGRAMS];
    const char *has[CHAT_PHRASES], *lacks[CHAT_PHRASES];
};

extern const struct chat_template chat_rows[];
extern const int chat_row_count;

#endif
