/* context.cc - switching stacks: a few instructions on x86-64, ucontext elsewhere. */
#include "context.h"

#include <stdint.h>

#ifdef __x86_64__

/* void swap_stacks(void **save, void *load): registers that a call preserves stay on the stack. */
asm(".text\n"
    ".type emulate_swap_stacks, @function\n"
    "emulate_swap_stacks:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    retq\n"
    ".size emulate_swap_stacks, . - emulate_swap_stacks\n");

extern "C" void emulate_swap_stacks(void **save, void *load);

void emulate_context_make(struct emulate_context *context, char *stack, size_t stack_bytes,
                          void (*entry)(void))
{
    uintptr_t top = ((uintptr_t)stack + stack_bytes) & ~(uintptr_t)15;
    void **at = (void **)top;
    *--at = nullptr; /* entry's return address: it has none, and the stack is aligned for it */
    *--at = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--at = nullptr;
    context->stack_pointer = at;
}

void emulate_context_switch(struct emulate_context *from, struct emulate_context *to)
{
    emulate_swap_stacks(&from->stack_pointer, to->stack_pointer);
}

#else

void emulate_context_make(struct emulate_context *context, char *stack, size_t stack_bytes,
                          void (*entry)(void))
{
    getcontext(&context->context);
    context->context.uc_stack.ss_sp = stack;
    context->context.uc_stack.ss_size = stack_bytes;
    context->context.uc_link = nullptr;
    makecontext(&context->context, entry, 0);
}

void emulate_context_switch(struct emulate_context *from, struct emulate_context *to)
{
    swapcontext(&from->context, &to->context);
}

#endif
