/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { LINE = 2100, URGENT = LINE + 320 }; /* the latter with a rank and its host */

static const char erase[] = "\r\033[K"; /* back to the first column, and erase the line */

/* Does a line of log_live() stand on the terminal?  One for the process, as stderr is. */
static _Atomic int live;

/* What a line on stderr begins with. */
static const char *before_line(void)
{
    return atomic_exchange(&live, 0) ? erase : "";
}

int log_file(struct log *log, const char *path, struct error *err)
{
    line_file_close(&log->file);
    return line_file_open(&log->file, path, err);
}

void log_close(struct log *log)
{
    if (atomic_exchange(&live, 0))
        fputc('\n', stderr);
    line_file_close(&log->file);
}

/* That log.txt cannot be written is printed on stderr alone. */
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

void log_urgent(const char *fmt, ...)
{
    char text[URGENT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    dprintf(STDERR_FILENO, "%strireme: %s\n", before_line(), text);
}

void log_live(const char *text)
{
    fprintf(stderr, "%s%s", erase, text);
    live = 1;
}
