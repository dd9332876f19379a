/* fuzz_json.c - bytes as JSON: as text, as a file, and asked for what meta.json holds. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "config/config.h"
#include "tests/fuzz/fuzz.h"

static void visit(const struct js *js, int depth)
{
    js_get_int(js, "step", 0);
    js_get_real(js, "scale", 0);
    js_get_string(js, "config", "");
    if (depth < 3 && js_get(js, "mesh"))
        visit(js_get(js, "mesh"), depth + 1);
}

static void load_config(const struct js *js)
{
    struct config config;
    struct error err = {0};
    const char *text = js_get_string(js, "config", NULL);
    if (text && config_load(&config, fuzz_file("c.yaml", text, strlen(text)), NULL, 0, &err))
        fuzz_check_error(&err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct error err = {0};
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = 0;
    struct js *js = js_parse(text, &err);
    free(text);
    if (js) {
        visit(js, 0);
        free(js_text(js, JS_ONE_LINE, &err));
    } else {
        fuzz_check_error(&err);
    }
    js_free(js);
    js = js_read(fuzz_file("meta.json", data, bytes), &err);
    if (js) {
        visit(js, 0);
        load_config(js);
    }
    js_free(js);
    return 0;
}
