/* fault.cc - accesses of steps to memory that is not theirs.
 *
 * Device memory is closed until a step touches it; the fault opens it.  Any other fault of a
 * step ends that step and fails the GPU, as on the hardware.  When the host itself touches
 * device memory the program dies, with a line that says so.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "private.h"

static sigjmp_buf *guard; /* of the thread that runs steps */
static void *volatile fault_address;
static struct sigaction previous[2];
static pthread_t steps_thread;
static bool steps_thread_known;

static void handle(int number, siginfo_t *info, void *)
{
    char text[160], line[300];
    if (steps_thread_known && pthread_equal(pthread_self(), steps_thread) && guard) {
        if (memory_open(info->si_addr))
            return;
        fault_address = info->si_addr;
        siglongjmp(*guard, 1);
    }
    memory_describe(info->si_addr, text);
    int n = snprintf(line, sizeof line, "trireme emulator: the host touches %p%s%s\n",
                     info->si_addr, *text ? ", " : "", text);
    if (*text && write(STDERR_FILENO, line, (size_t)n) < 0)
        return;
    sigaction(number, &previous[number == SIGBUS], nullptr);
}

static void install(int number)
{
    struct sigaction now, action;
    sigaction(number, nullptr, &now);
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == handle)
        return;
    previous[number == SIGBUS] = now;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(number, &action, nullptr);
}

void fault_install(void)
{
    install(SIGSEGV);
    install(SIGBUS);
}

void fault_thread(void)
{
    static char own_stack[64 << 10];
    stack_t stack = {};
    stack.ss_sp = own_stack;
    stack.ss_size = sizeof own_stack;
    sigaltstack(&stack, nullptr);
    steps_thread = pthread_self();
    steps_thread_known = true;
}

static void report(void)
{
    char where[160], what[160];
    simt_where(where);
    memory_describe(fault_address, what);
    if (simt_is_stack(fault_address))
        emulate_fail(cudaErrorLaunchOutOfResources, "%sits 64 KB of stack are not enough", where);
    else
        emulate_fail(cudaErrorIllegalAddress, "%saccess to %p%s%s", where, fault_address,
                     *what ? ", " : "", what);
}

bool fault_guard(const std::function<void()> &body)
{
    sigjmp_buf here, *volatile outer = guard;
    if (sigsetjmp(here, 0)) {
        guard = outer;
        report();
        return false;
    }
    guard = &here;
    body();
    guard = outer;
    return true;
}
