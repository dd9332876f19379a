/* levels.h - plain loops compiled for each level of the instruction set, chosen when the program
 * is loaded.  Kernels of device/cpu have files of their own for each level; this is for the few
 * loops elsewhere whose speed counts.  CPU_X86_LEVELS is what configure found. */
#ifndef TRIREME_BASE_LEVELS_H
#define TRIREME_BASE_LEVELS_H

/* No level fuses a product with a sum, so all levels give the same bits. */
#define LEVEL_LOOPS optimize("O3", "fp-contract=off")

/* The loader chooses the clone before the thread sanitizer is initialised. */
#if defined CPU_X86_LEVELS && !defined __SANITIZE_THREAD__
#define EVERY_LEVEL \
    __attribute__((LEVEL_LOOPS, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_LEVEL __attribute__((LEVEL_LOOPS))
#endif

#endif
