/* log.c - see log.h. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Bytes of a line of log_print(), and of one of log_urgent(), which names a rank and its host. */
enum { LINE = 2100, URGENT = LINE + 320 };

static const char erase[] = "\r\033[K"; /* back to the first column, and erase the line */

/* One for the process, as stderr and log.txt are: any thread may print, but only the main thread
 * has the struct log. */
static struct {
    _Atomic int live;    /* 1: a line of log_live() stands on the terminal */
    _Atomic int fd;      /* log.txt for log_urgent(), another descriptor than log's; -1: none */
    _Atomic int waiting; /* lines of log_urgent() that are being written */
} shared = {.fd = -1};

/* Returns what the next line on stderr has to begin with: `erase` where a line of log_live() stands
 * on the terminal, which is then gone. */
static const char *before_line(void)
{
    return atomic_exchange(&shared.live, 0) ? erase : "";
}

/* Use fd for lines of log_urgent().  It takes over the number of the descriptor used before, so
 * that a thread that is about to write to that number never finds it closed. */
static void take_urgent(int fd)
{
    if (shared.fd < 0) {
        shared.fd = fd;
        return;
    }
    dup3(fd, shared.fd, O_CLOEXEC);
    close(fd);
}

int log_file(struct log *log, const char *path, struct error *err)
{
    line_file_close(&log->file);
    if (line_file_open(&log->file, path, err))
        return -1;
    log_urgent_file(path);
    return 0;
}

void log_urgent_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0)
        take_urgent(fd);
}

void log_close(struct log *log)
{
    if (atomic_exchange(&shared.live, 0))
        fputc('\n', stderr);
    if (!shared.waiting && shared.fd >= 0)
        close(atomic_exchange(&shared.fd, -1));
    line_file_close(&log->file);
}

/* Append line to log.txt with the time of day before it.  Print on stderr when writing begins to
 * fail, and when it works again. */
static void write_file(struct log *log, const char *line)
{
    char time[CLOCK_TIME_OF_DAY], timed[LINE + CLOCK_TIME_OF_DAY];
    snprintf(timed, sizeof timed, "%s %s", clock_time_of_day(time), line);
    switch (line_file_append(&log->file, timed)) {
    case LINE_FILE_FAILED:
        fprintf(stderr,
                "%strireme: warning: log.txt cannot be written (%s); its lines are kept in memory "
                "until it can\n",
                before_line(), strerror(log->file.why));
        break;
    case LINE_FILE_RESUMED:
        fprintf(stderr, "%strireme: log.txt is written again\n", before_line());
        break;
    default: break;
    }
}

void log_print(struct log *log, enum log_level level, const char *fmt, ...)
{
    static const char *const kind[] = {
        [LOG_ERROR] = "error: ", [LOG_WARN] = "warning: ", [LOG_INFO] = "", [LOG_RECORD] = ""};
    struct log plain = {.level = LOG_INFO, .rank = -1};
    char text[LINE - 64], line[LINE], rank[32] = "";
    va_list args;
    if (!log)
        log = &plain;
    if (level > log->level || (log->rank > 0 && level > LOG_WARN))
        return;
    if (log->rank > 0)
        snprintf(rank, sizeof rank, "[rank %d] ", log->rank);
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(line, sizeof line, "trireme: %s%s%s\n", rank, kind[level], text);
    if (level != LOG_RECORD)
        fprintf(stderr, "%s%s", before_line(), line);
    write_file(log, line);
}

/* The thread that log_urgent() starts: append a line to log.txt and free it.  The write may never
 * return where the disk or its server is stuck. */
static void *append_urgent(void *arg)
{
    char *line = arg;
    while (write(shared.fd, line, strlen(line)) < 0 && errno == EINTR)
        ;
    free(line);
    shared.waiting--;
    return NULL;
}

/* Start a thread that appends text to log.txt; do nothing where memory is out or no thread can be
 * started. */
static void start_append(const char *text)
{
    char time[CLOCK_TIME_OF_DAY], *line;
    pthread_t thread;
    if (shared.fd < 0 || asprintf(&line, "%s trireme: %s\n", clock_time_of_day(time), text) < 0)
        return;
    shared.waiting++;
    if (!pthread_create(&thread, NULL, append_urgent, line)) {
        pthread_detach(thread);
        return;
    }
    shared.waiting--;
    free(line);
}

void log_urgent_wait(void)
{
    const struct timespec look_every = {.tv_nsec = 1000000};
    while (shared.waiting)
        nanosleep(&look_every, NULL);
}

void log_urgent(const char *fmt, ...)
{
    char text[URGENT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    dprintf(STDERR_FILENO, "%strireme: %s\n", before_line(), text);
    start_append(text);
}

void log_live(const char *text)
{
    fprintf(stderr, "%s%s", erase, text);
    shared.live = 1;
}
