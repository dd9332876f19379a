/* chat_program.h - a common form for chat templates' programs in Jinja, so that programs can be
 * compared that differ in spelling only. */
#ifndef TRIREME_IO_CHAT_PROGRAM_H
#define TRIREME_IO_CHAT_PROGRAM_H

/* Returns the common form of a program, to be free()d.  Programs of equal forms write equal texts;
 * programs that write equal texts may still have different forms. */
char *chat_program_form(const char *jinja);

#endif
