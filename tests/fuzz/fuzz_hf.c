/* fuzz_hf.c - bytes as config.json of a model's folder, or as adapter_config.json of an adapter's,
 * as the first byte chooses.  What is taken, and makes a configuration, is the same when it is
 * written and read again.
 */
#include <stdio.h>
#include <string.h>

#include "config/adapter.h"
#include "config/hf.h"
#include "config/schema.h"
#include "tests/fuzz/fuzz.h"

static void same(const struct config *one, const struct config *other, const char *group)
{
    char a[CONFIG_TEXT], b[CONFIG_TEXT];
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        if (!strncmp(key->name, group, strlen(group)) &&
            strcmp(key_text(one, key, a), key_text(other, key, b)))
            fuzz_fail("%s is %s, and when read again %s", key->name, a, b);
    }
}

static void folder_of(const char *path, char *folder, size_t bytes)
{
    snprintf(folder, bytes, "%.*s", (int)(strrchr(path, '/') - path), path);
}

static void check_model(const char *folder, struct config *config)
{
    struct config again = *config;
    struct error err = {0};
    if (config_finish(config, &err)) {
        fuzz_check_error(&err);
        return;
    }
    if (hf_write_config(config, DTYPE_F32, NULL, folder, &err) ||
        hf_read_config(&again, folder, &err) || config_finish(&again, &err))
        fuzz_fail("what was written is not taken: %s", err.text);
    same(config, &again, "model.");
}

static void check_adapter(const char *folder, struct config *config)
{
    struct config again = *config;
    struct error err = {0};
    if (adapter_write_config(config, config->lora.target_modules, config->lora.modules_to_save,
                             folder, &err) ||
        adapter_read_config(&again, folder, &err))
        fuzz_fail("what was written is not taken: %s", err.text);
    same(config, &again, "lora.");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct config config;
    struct error err = {0};
    char folder[160];
    int is_adapter = (int)(fuzz_take(&data, &bytes, 1) % 2);
    const char *path = fuzz_file(is_adapter ? "adapter_config.json" : "config.json", data, bytes);
    folder_of(path, folder, sizeof folder);
    static const char *const shape[] = {"model.preset=llama-tiny"};
    if (config_load(&config, NULL, shape, 1, &err))
        fuzz_fail("%s", err.text);
    config.model.preset[0] = 0;
    int rc = is_adapter ? adapter_read_config(&config, folder, &err)
                        : hf_read_config(&config, folder, &err);
    if (rc)
        fuzz_check_error(&err);
    else if (is_adapter)
        check_adapter(folder, &config);
    else
        check_model(folder, &config);
    return 0;
}
