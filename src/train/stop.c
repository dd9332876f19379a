/* stop.c - see stop.h.  The flag is the one variable a signal handler can reach. */
#include "train/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void note(int signal)
{
    asked = 1;
}

void stop_watch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int stop_asked(void)
{
    return asked;
}
