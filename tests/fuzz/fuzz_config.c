/* fuzz_config.c - bytes as a config file.  What is taken is written, read again, and the same. */
#include <string.h>

#include "config/config.h"
#include "config/schema.h"
#include "tests/fuzz/fuzz.h"

static void same_settings(const struct config *one, const struct config *other)
{
    char a[CONFIG_TEXT], b[CONFIG_TEXT];
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        if (strcmp(key_text(one, key, a), key_text(other, key, b)))
            fuzz_fail("%s is %s, and when read again %s", key->name, a, b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct config config, again;
    struct error err = {0};
    if (config_load(&config, fuzz_file("config.yaml", data, bytes), NULL, 0, &err)) {
        fuzz_check_error(&err);
        return 0;
    }
    const char *written = fuzz_path("written.yaml");
    if (config_write(&config, CONFIG_OF_RUN, written, &err) ||
        config_load(&again, written, NULL, 0, &err))
        fuzz_fail("what was written is not taken: %s", err.text);
    same_settings(&config, &again);
    return 0;
}
