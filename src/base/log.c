/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>

int log_file(struct log *log, const char *path, struct error *err)
{
    log_close(log);
    log->file = fopen(path, "a");
    if (!log->file)
        return error_errno(err, "cannot open log file %s", path);
    return 0;
}

void log_close(struct log *log)
{
    if (log->file)
        fclose(log->file);
    log->file = NULL;
}

static void put(FILE *file, const char *kind, int rank, const char *fmt, va_list args)
{
    char line[2048];
    vsnprintf(line, sizeof line, fmt, args);
    if (rank > 0)
        fprintf(file, "trireme: [rank %d] %s%s\n", rank, kind, line);
    else
        fprintf(file, "trireme: %s%s\n", kind, line);
    fflush(file);
}

static void say(struct log *log, enum log_level level, const char *fmt, va_list args)
{
    static const char *const kind[] = {"error: ", "warning: ", "", ""};
    struct log plain = {LOG_INFO, -1, NULL};
    if (!log)
        log = &plain;
    if (level > log->level || (log->rank > 0 && level > LOG_WARN))
        return;
    va_list again;
    va_copy(again, args);
    put(stderr, kind[level], log->rank, fmt, args);
    if (log->file)
        put(log->file, kind[level], log->rank, fmt, again);
    va_end(again);
}

void log_error(struct log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(log, LOG_ERROR, fmt, args);
    va_end(args);
}

void log_warn(struct log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(log, LOG_WARN, fmt, args);
    va_end(args);
}

void log_info(struct log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(log, LOG_INFO, fmt, args);
    va_end(args);
}

void log_debug(struct log *log, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(log, LOG_DEBUG, fmt, args);
    va_end(args);
}
