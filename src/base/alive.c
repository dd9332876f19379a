/* alive.c - see alive.h.  One count for the process, which any of its threads may raise. */
#include "base/alive.h"

#include <signal.h>

static volatile sig_atomic_t pieces;

void alive_note(void)
{
    __atomic_add_fetch(&pieces, 1, __ATOMIC_RELAXED);
}

int alive_count(void)
{
    return __atomic_load_n(&pieces, __ATOMIC_RELAXED);
}
