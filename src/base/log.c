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
    if (level != LOG_RECORD) {
        fprintf(stderr, "%s%s", log->live ? erase : "", line);
        log->live = 0;
    }
    write_file(log, line);
}

void log_live(struct log *log, const char *text)
{
    fprintf(stderr, "%s%s", erase, text);
    log->live = 1;
}
