/* context.h - a stack that can be left and entered again. */
#ifndef TRIREME_EMULATE_CONTEXT_H
#define TRIREME_EMULATE_CONTEXT_H

#include <stddef.h>

#ifdef __x86_64__
struct emulate_context {
    void *stack_pointer;
};
#else
#include <ucontext.h>
struct emulate_context {
    ucontext_t context;
};
#endif

/* Make context one that begins in entry(), which never returns, on the given stack. */
void emulate_context_make(struct emulate_context *context, char *stack, size_t stack_bytes,
                          void (*entry)(void));

/* Keep where we are in from and go on in to. */
void emulate_context_switch(struct emulate_context *from, struct emulate_context *to);

#endif
