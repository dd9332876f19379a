/* ucx.c - signals that UCX takes.
 *
 * Where libmpi is linked with UCX (Debian 13, HPC-X), UCX is loaded before main(), and then sets a
 * handler for SIGHUP (its UCX_DEBUG_SIGNO) and for faults.  A program that nohup started with
 * SIGHUP ignored would not see that it was.  UCX remembers the action before its own and has a
 * function that sets it again, but which warns about a signal that UCX does not handle: so it is
 * called only where the handler and the function lie in the same library.
 */
#include "comm/ucx.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>

/* Returns where the library that holds the address was loaded, NULL if none does. */
static const void *library_of(uintptr_t address)
{
    Dl_info info;
    return address && dladdr((const void *)address, &info) ? info.dli_fbase : NULL;
}

void ucx_release_signal(int signal)
{
    void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "ucs_debug_disable_signal");
    struct sigaction now;
    if (!release || sigaction(signal, NULL, &now) || now.sa_handler == SIG_IGN)
        return;
    if (library_of((uintptr_t)now.sa_handler) == library_of((uintptr_t)release))
        release(signal);
}
