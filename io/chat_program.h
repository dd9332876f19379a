/* chat_program.h - chat templates' programs in Jinja, compared by what they do. */
#ifndef TRIREME_IO_CHAT_PROGRAM_H
#define TRIREME_IO_CHAT_PROGRAM_H

/* A program in one form of the many that do the same; free() it.  Equal forms write equal texts;
 * programs that write equal texts may have different forms. */
char *chat_program_form(const char *jinja);

#endif
