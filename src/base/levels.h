/* levels.h - plain loops compiled for each level of x86-64's instruction set (v4 has AVX-512, v3
 * AVX2).
 *
 * EVERY_LEVEL before a function makes the compiler build it once per level; the loader takes the
 * one for the processor.  Kernels of device/cpu are in files of their own, compiled per level; this
 * is for the few loops elsewhere whose speed counts.  configure defines CPU_X86_LEVELS where the
 * compiler can do so. */
#ifndef TRIREME_BASE_LEVELS_H
#define TRIREME_BASE_LEVELS_H

/* No level fuses a product with a sum, so all levels give the same bits.  clang has it for what
 * follows in a file. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#define LEVEL_LOOPS
#else
#define LEVEL_LOOPS optimize("O3", "fp-contract=off")
#endif

/* Before a loop: no iteration reads what another one writes. */
#ifdef __clang__
#define ITERATIONS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define ITERATIONS_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Not with the thread sanitizer: the loader chooses a clone before the sanitizer is initialised. */
#if defined CPU_X86_LEVELS && !defined __SANITIZE_THREAD__
#define EVERY_LEVEL \
    __attribute__((LEVEL_LOOPS, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_LEVEL __attribute__((LEVEL_LOOPS))
#endif

#endif
