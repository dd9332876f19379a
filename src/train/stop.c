/* stop.c - a thread that receives the signals which ask a run to save and stop.
 *
 * All threads block the signals and wait_for_signals() takes them.  A library's thread that was
 * started before does not block them: there the handler pass_on() blocks the signal and sends it
 * again.
 *
 *   in training         `asked` is set; the trainer reads it with every step and saves
 *   after it            rank 0 says what is still being done, which goes on
 *   before training     `asked` is set; the ranks end together at the next stop_early(), and a rank
 *                       that makes no such call, because it hangs in open() or in MPI, is ended by
 *                       the thread, rank 0 first
 *   a second SIGINT     has its default effect at once
 *
 * asked, resumable, phase and world are written by one thread and read by the other: atomics.
 */
#include "train/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/launch.h"
#include "comm/ucx.h"
#include "config/config.h"

/* Seconds after which a start that has not noticed the signal is ended.  Rank 0 comes first, so
 * that its line is the one printed. */
enum { EARLY_S = 5, EARLY_OTHERS_S = 7, KILLED = 128 };

static const struct {
    int signal;
    const char *name;
    int may_be_ignored; /* 1: if the program was started with the signal ignored, it stays ignored
                         */
} received[] = {
    {.signal = SIGTERM, .name = "SIGTERM"},
    {.signal = SIGUSR1, .name = "SIGUSR1"},
    {.signal = SIGUSR2, .name = "SIGUSR2"}, /* of LSF at the run limit, of Grid Engine's -notify */
    {.signal = SIGXCPU, .name = "SIGXCPU"}, /* of ulimit -t, of Grid Engine's s_cpu */
    {.signal = SIGINT, .name = "SIGINT", .may_be_ignored = 1},
    {.signal = SIGHUP, .name = "SIGHUP", .may_be_ignored = 1},
};

enum { RECEIVED = sizeof received / sizeof received[0] };

enum phase { STARTING, TRAINING, TRAINED };

struct stop {
    pthread_t thread;
    sigset_t signals;
    struct world *_Atomic world; /* NULL until stop_join() */
    _Atomic int asked, resumable;
    _Atomic enum phase phase;
    char left[CONFIG_TEXT + 256]; /* once trained: what is still being done, or "" */
    struct launch_kill kill;      /* how long mpirun waits before it kills */
    int is_under_srun;
    int64_t deadline_ns; /* used by the thread alone */
    int interrupts;
};

static const char *name_of(int signal)
{
    for (int i = 0; i < RECEIVED; i++)
        if (received[i].signal == signal)
            return received[i].name;
    return "a signal";
}

/* The handler: it runs on threads started before stop_open(), such as a library's.  Block the
 * signal there and send it again, so that wait_for_signals() gets it. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    sigaddset(&((ucontext_t *)context)->uc_sigmask, signal);
    kill(getpid(), signal);
}

static int is_ignored(int signal)
{
    struct sigaction now;
    return !sigaction(signal, NULL, &now) && now.sa_handler == SIG_IGN;
}

/* Let the signal end the process from now on. */
static void restore_default(int signal_)
{
    sigset_t only;
    signal(signal_, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, signal_);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
}

static int rank_of(const struct world *world)
{
    return world ? world_rank(world) : 0;
}

static int is_one_of_several(const struct stop *s)
{
    return s->world && world_size(s->world) > 1;
}

/* Write to text what may follow a SIGTERM.  mpirun passes Ctrl-C on as SIGTERM, and may kill the
 * ranks before a long step is over; SIGUSR1 it only passes on.  mpirun and srun also send SIGTERM
 * where a rank has ended: the others then wait for its part of the step until they are killed. */
static void describe_sigterm(const struct stop *s, char *text, size_t bytes)
{
    if (is_one_of_several(s))
        text_append(text, bytes,
                    "; where another rank has ended, nothing is saved, and the last line of that "
                    "rank or the launcher's says why");
    static const char *const advice[] = {
        [LAUNCH_KILL_FIXED] = ": where a step and saving take longer, send mpirun SIGUSR1, which "
                              "leaves time",
        [LAUNCH_KILL_DEFAULT] = ": where a step and saving take longer, set " LAUNCH_KILL_VARIABLE
                                " to their seconds, or send mpirun SIGUSR1, which leaves time",
        [LAUNCH_KILL_SET] = " (" LAUNCH_KILL_VARIABLE ")",
    };
    if (s->kill.ms >= 0)
        text_append(text, bytes,
                    "; if mpirun was stopped (Ctrl-C), it kills the ranks after %g s%s",
                    s->kill.ms / 1000.0, advice[s->kill.source]);
}

/* Print rank 0's line about a signal, in training and after it. */
static void print_answer(const struct stop *s, int signal)
{
    char text[sizeof s->left + 480] = "";
    if (s->phase == TRAINED)
        text_append(text, sizeof text, "training is over, and its state is saved%s", s->left);
    else
        text_append(text, sizeof text, "the state will be saved after this step");
    if (signal == SIGINT && s->is_under_srun)
        text_append(text, sizeof text,
                    "; if srun was stopped (Ctrl-C twice), it kills the ranks at once: scancel "
                    "--signal=USR1 JOB saves");
    else if (signal == SIGINT)
        text_append(text, sizeof text, "; once more ends at once");
    else if (signal == SIGTERM && s->phase == TRAINING)
        describe_sigterm(s, text, sizeof text);
    log_urgent("%s: %s", name_of(signal), text);
}

static void note(struct stop *s, int signal)
{
    int first = !s->asked, rank = rank_of(s->world);
    if (signal == SIGINT && s->interrupts++) {
        restore_default(signal);
        kill(getpid(), signal);
    }
    if (!first)
        return;
    s->deadline_ns = clock_ns() + (rank ? EARLY_OTHERS_S : EARLY_S) * (int64_t)1000000000;
    s->asked = signal;
    if (s->phase != STARTING && !rank)
        print_answer(s, signal);
}

static int early_code(const struct stop *s, int signal)
{
    return s->resumable ? EXIT_SAVED : KILLED + signal;
}

/* Return a note on who may have sent the signal: launchers stop the other ranks where one has
 * ended.
 */
static const char *sender(const struct stop *s)
{
    return is_one_of_several(s)
               ? " (mpirun or srun also sends signals where another rank has ended)"
               : "";
}

/* End a start that hangs, in opening a file or in MPI: nothing has been trained yet. */
static void end_start(struct stop *s)
{
    log_urgent("%s before training began%s: ended in the midst of the start", name_of(s->asked),
               sender(s));
    world_abort(s->world, early_code(s, s->asked));
}

static void *wait_for_signals(void *arg)
{
    struct stop *s = arg;
    const struct timespec look_every = {.tv_nsec = 200000000};
    for (;;) {
        int early = s->asked && s->phase == STARTING;
        int signal =
            early ? sigtimedwait(&s->signals, NULL, &look_every) : sigwaitinfo(&s->signals, NULL);
        if (signal > 0)
            note(s, signal);
        else if (early && clock_ns() > s->deadline_ns && s->phase == STARTING)
            end_start(s);
    }
    return NULL;
}

int stop_open(struct stop **stop, struct error *err)
{
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_RESTART | SA_SIGINFO};
    struct stop *s = array_make(1, sizeof *s);
    struct launch launch = launch_read();
    *stop = NULL;
    s->kill = launch_kill(&launch);
    s->is_under_srun = launch.kind == LAUNCH_SRUN;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&s->signals);
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < RECEIVED; i++) {
        ucx_release_signal(received[i].signal);
        if (!received[i].may_be_ignored || !is_ignored(received[i].signal)) {
            sigaddset(&s->signals, received[i].signal);
            sigaction(received[i].signal, &action, NULL);
        }
    }
    pthread_sigmask(SIG_BLOCK, &s->signals, NULL);
    int failed = pthread_create(&s->thread, NULL, wait_for_signals, s);
    if (failed) {
        free(s);
        return error_set(err, "cannot start a thread for signals: %s", strerror(failed));
    }
    *stop = s;
    return 0;
}

void stop_end(struct stop *s)
{
    if (!s)
        return;
    pthread_cancel(s->thread);
    pthread_join(s->thread, NULL);
    if (sigismember(&s->signals, SIGINT))
        restore_default(SIGINT);
    free(s);
}

int stop_asked(const struct stop *s)
{
    return s ? s->asked : 0;
}

void stop_join(struct stop *s, struct world *world)
{
    s->world = world;
}

void stop_resumable(struct stop *s, int resumable)
{
    s->resumable = resumable;
}

int stop_early(struct stop *s, struct log *log, struct error *err)
{
    double signal = stop_asked(s);
    if (!s)
        return 0;
    world_all_reduce(s->world, &signal, 1, WORLD_MAX);
    if (signal == 0)
        return 0;
    err->code = early_code(s, (int)signal);
    err->text[0] = 0;
    log_info(log, "%s before training began%s: %s", name_of((int)signal), sender(s),
             err->code == EXIT_SAVED ? "run me again, the newest checkpoint is as it was"
                                     : "there was nothing to save");
    return -1;
}

void stop_begin(struct stop *s)
{
    s->phase = TRAINING;
}

void stop_trained(struct stop *s, const char *left)
{
    if (!s)
        return;
    snprintf(s->left, sizeof s->left, "%s", left);
    s->phase = TRAINED;
}
