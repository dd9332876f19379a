/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum { LINE = 2100 };

static const char erase[] = "\r\033[K"; /* back to the first column, and erase the line */

int log_file(struct log *log, const char *path, struct error *err)
{
    line_file_close(&log->file);
    return line_file_open(&log->file, path, err);
}

void log_close(struct log *log)
{
    if (log->live)
        fputc('\n', stderr);
    log->live = 0;
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
                "trireme: warning: log.txt cannot be written (%s); its lines are kept in memory "
                "until it can\n",
                strerror(log->file.why));
        break;
    case LINE_FILE_RESUMED: fprintf(stderr, "trireme: log.txt is written again\n"); break;
    default: break;
    }
}

enum target { TARGET_BOTH, TARGET_FILE }; /* stderr and log.txt, or log.txt alone */

static void put(struct log *log, const char *kind, const char *text, enum target target)
{
    char line[LINE], rank[32] = "";
    if (log->rank > 0)
        snprintf(rank, sizeof rank, "[rank %d] ", log->rank);
    snprintf(line, sizeof line, "trireme: %s%s%s\n", rank, kind, text);
    if (target == TARGET_BOTH) {
        fprintf(stderr, "%s%s", log->live ? erase : "", line);
        log->live = 0;
    }
    write_file(log, line);
}

static void print_line(struct log *log, enum log_level level, const char *fmt, va_list args)
{
    static const char *const kind[] = {
        [LOG_ERROR] = "error: ", [LOG_WARN] = "warning: ", [LOG_INFO] = ""};
    struct log plain = {.level = LOG_INFO, .rank = -1};
    char text[LINE - 64];
    if (!log)
        log = &plain;
    if (level > log->level || (log->rank > 0 && level > LOG_WARN))
        return;
    vsnprintf(text, sizeof text, fmt, args);
    put(log, kind[level], text, TARGET_BOTH);
}

void log_error(struct log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_line(log, LOG_ERROR, fmt, args);
    va_end(args);
}

void log_warn(struct log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_line(log, LOG_WARN, fmt, args);
    va_end(args);
}

void log_info(struct log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_line(log, LOG_INFO, fmt, args);
    va_end(args);
}

void log_record(struct log *log, const char *fmt, ...)
{
    char text[LINE - 64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (log->level >= LOG_INFO && log->rank <= 0)
        put(log, "", text, TARGET_FILE);
}

void log_live(struct log *log, const char *text)
{
    fprintf(stderr, "%s%s", erase, text);
    log->live = 1;
}
