/* text.c - see text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char *text_append(char *text, size_t size, const char *fmt, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + used, size - used, fmt, args);
    va_end(args);
    return text;
}

char *text_join(char *text, size_t size, const char *separator, const char *fmt, ...)
{
    size_t used = text[0] ? strlen(text_append(text, size, "%s", separator)) : 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + used, size - used, fmt, args);
    va_end(args);
    return text;
}

size_t text_bom_bytes(const char *text, size_t bytes)
{
    return bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
}

int text_is_digits(const char *text)
{
    return text[0] && !text[strspn(text, "0123456789")];
}

int text_from_file(const char *path, const char *key, char *text, size_t size)
{
    char line[512];
    FILE *file = fopen(path, "r");
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file))
        found = !key || !strncmp(line, key, strlen(key));
    if (file)
        fclose(file);
    if (!found)
        return -1;
    char *value = key && strchr(line, ':') ? strchr(line, ':') + 1 : line;
    value += strspn(value, " \t");
    value[strcspn(value, "\n")] = 0;
    snprintf(text, size, "%s", value);
    return 0;
}

int text_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}
