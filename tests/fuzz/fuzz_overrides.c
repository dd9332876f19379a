/* fuzz_overrides.c - lines as key=value arguments. */
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *arguments[64];
    int count = 0;
    struct config config;
    struct error err = {0};
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = 0;
    for (char *line = strtok(text, "\n"); line && count < 64; line = strtok(NULL, "\n"))
        arguments[count++] = line;
    if (config_load(&config, NULL, arguments, count, &err))
        fuzz_check_error(&err);
    free(text);
    return 0;
}
