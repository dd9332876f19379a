/* error.c - see error.h. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Messages are one line: anything that would break it becomes a space. */
static void one_line(char *text)
{
    for (; *text; text++)
        if (*text == '\n' || *text == '\r')
            *text = ' ';
}

static void set_text(struct error *err, const char *fmt, va_list args)
{
    vsnprintf(err->text, sizeof err->text, fmt, args);
    one_line(err->text);
    if (err->code == EXIT_DONE)
        err->code = EXIT_USAGE;
}

int error_set(struct error *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args);
    va_end(args);
    return -1;
}

int error_errno(struct error *err, const char *fmt, ...)
{
    int saved = errno;
    if (!err)
        return -1;
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args);
    va_end(args);
    text_append(err->text, sizeof err->text, ": %s", strerror(saved));
    errno = saved;
    return -1;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    char before[sizeof err->text];
    memcpy(before, err->text, sizeof before);
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args);
    va_end(args);
    text_append(err->text, sizeof err->text, ": %s", before);
    return -1;
}

int error_suffix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    struct error where = {0};
    va_list args;
    va_start(args, fmt);
    set_text(&where, fmt, args);
    va_end(args);
    text_append(err->text, sizeof err->text, " [%s]", where.text);
    return -1;
}
