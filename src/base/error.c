/* error.c - see error.h. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* Replace line ends in text by spaces: a message is one line. */
static void one_line(char *text)
{
    for (; *text; text++)
        if (*text == '\n' || *text == '\r')
            *text = ' ';
}

/* Set the text of err (NULL: drop the text), followed by ": " and `after` unless that is NULL. */
static void set_text(struct error *err, const char *fmt, va_list args, const char *after)
{
    if (!err)
        return;
    vsnprintf(err->text, sizeof err->text, fmt, args);
    one_line(err->text);
    if (after)
        text_append(err->text, sizeof err->text, ": %s", after);
    if (err->code == EXIT_DONE)
        err->code = EXIT_USAGE;
}

int error_set(struct error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args, NULL);
    va_end(args);
    if (err)
        err->by_system = 0;
    return -1;
}

int error_is_system(int number)
{
    return number != ENOENT && number != ENOTDIR && number != EISDIR && number != ELOOP;
}

int error_errno(struct error *err, const char *fmt, ...)
{
    int saved = errno;
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args, strerror(saved));
    va_end(args);
    if (err)
        err->by_system = error_is_system(saved);
    errno = saved;
    return -1;
}

int error_file(struct error *err, const char *what, const char *path)
{
    int saved = errno;
    char *here = saved == ENOENT && path[0] != '/' ? getcwd(NULL, 0) : NULL;
    errno = saved;
    error_errno(err, "%s %s", what, path);
    if (err && here)
        text_append(err->text, sizeof err->text,
                    "; a relative path begins at the working directory, %s", here);
    free(here);
    errno = saved;
    return -1;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    struct error before = err ? *err : (struct error){0};
    va_list args;
    va_start(args, fmt);
    set_text(err, fmt, args, before.text);
    va_end(args);
    return -1;
}

int error_suffix(struct error *err, const char *fmt, ...)
{
    struct error where = {0};
    va_list args;
    va_start(args, fmt);
    set_text(&where, fmt, args, NULL);
    va_end(args);
    if (err)
        text_append(err->text, sizeof err->text, " [%s]", where.text);
    return -1;
}
