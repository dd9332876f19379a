/* product_file.c - products.json: what product_table.h keeps of a run, for its next start.
 *
 *   { "format": 1, "library": "NVIDIA H200, cuBLASLt 13.1.0", "products": [
 *     { "shape": {"m": ...}, "setting": {"id": ...}, "algorithm": "128 hexadecimal digits", ... },
 *     ... ] }
 *
 * The digits are the algorithm as the library stores it; the settings say to people what it is, and
 * are compared with the digits when it is taken.
 */
#include "train/product_file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"

enum { FORMAT = 1, DIGITS = 16 };

static void add_numbers(struct js *to, const char *key, const char *const *names,
                        const int64_t *values, int count)
{
    struct js *numbers = js_object();
    for (int i = 0; i < count; i++)
        js_add_int(numbers, names[i], values[i]);
    js_add(to, key, numbers);
}

static struct js *choice_json(const struct product_choice *c)
{
    struct js *js = js_object();
    char digits[PRODUCT_WORDS * DIGITS + 1];
    for (int i = 0; i < PRODUCT_WORDS; i++)
        snprintf(digits + i * DIGITS, DIGITS + 1, "%016" PRIx64, c->word[i]);
    add_numbers(js, "shape", product_shape_names, c->shape, PRODUCT_SHAPE);
    add_numbers(js, "setting", product_setting_names, c->setting, PRODUCT_SETTINGS);
    js_add_string(js, "algorithm", digits);
    js_add_int(js, "workspace_bytes", c->workspace_bytes);
    js_add_int(js, "tried", c->tried);
    js_add_int(js, "ns", c->ns);
    js_add_int(js, "first_ns", c->first_ns);
    return js;
}

int product_file_write(const struct product_table *table, const char *library, const char *path,
                       struct error *err)
{
    struct js *js = js_object(), *products = js_array();
    js_add_int(js, "format", FORMAT);
    js_add_string(js, "library", library);
    for (int i = 0; i < table->count; i++)
        js_add(products, NULL, choice_json(&table->choice[i]));
    js_add(js, "products", products);
    int rc = js_write(js, JS_INDENTED, WHOLE_FILE_DURABLE, path, err);
    js_free(js);
    return rc;
}

/* Read the numbers of an object under `key` by their names.  The first `least` have to be there;
 * others that are not become 0. */
static int read_numbers(const struct js *from, const char *key, const char *const *names,
                        int64_t *values, int count, int least)
{
    const struct js *numbers = js_get(from, key);
    for (int i = 0; i < count; i++) {
        int may_lack = i >= least && numbers && !js_get(numbers, names[i]);
        int64_t otherwise = may_lack ? 0 : INT64_MIN;
        values[i] = numbers ? js_get_int(numbers, names[i], otherwise) : INT64_MIN;
        if (values[i] == INT64_MIN)
            return -1;
    }
    return 0;
}

static int read_digits(const char *digits, uint64_t word[PRODUCT_WORDS])
{
    char one[DIGITS + 1] = "";
    if (strlen(digits) != PRODUCT_WORDS * DIGITS)
        return -1;
    for (int i = 0; digits[i]; i++)
        if (!isxdigit((unsigned char)digits[i]))
            return -1;
    for (int i = 0; i < PRODUCT_WORDS; i++) {
        memcpy(one, digits + i * DIGITS, DIGITS);
        word[i] = strtoull(one, NULL, 16);
    }
    return 0;
}

static int read_choice(struct product_choice *c, const struct js *from)
{
    memset(c, 0, sizeof *c);
    c->workspace_bytes = js_get_int(from, "workspace_bytes", -1);
    c->tried = js_get_int(from, "tried", -1);
    c->ns = js_get_int(from, "ns", -1);
    c->first_ns = js_get_int(from, "first_ns", -1);
    if (read_numbers(from, "shape", product_shape_names, c->shape, PRODUCT_SHAPE,
                     PRODUCT_SHAPE_LEAST) ||
        read_numbers(from, "setting", product_setting_names, c->setting, PRODUCT_SETTINGS,
                     PRODUCT_SETTINGS) ||
        read_digits(js_get_string(from, "algorithm", ""), c->word))
        return -1;
    return c->workspace_bytes < 0 || c->tried < 1 || c->ns < 0 || c->first_ns < 0 ? -1 : 0;
}

static int read_all(struct product_table *table, const struct js *js, const char *library,
                    const char *path, struct error *err)
{
    const char *of = js_get_string(js, "library", NULL);
    const struct js *products = js_get(js, "products");
    int count = products ? js_length(products) : 0;
    if (js_get_int(js, "format", 0) != FORMAT || !of || !products)
        return error_set(err, "%s is not a table of products, or one of another version", path);
    if (strcmp(of, library) != 0)
        return error_set(err, "%s is of %s, and this is %s", path, of, library);
    for (int i = 0; i < count; i++) {
        const struct js *one = js_at(products, i);
        table->choice =
            array_grow(table->choice, table->count, &table->capacity, sizeof *table->choice);
        if (!one || read_choice(&table->choice[table->count], one))
            return error_set(err, "%s: product %d is damaged", path, i + 1);
        table->count++;
    }
    return 0;
}

int product_file_read(struct product_table *table, const char *library, const char *path,
                      struct error *err)
{
    if (access(path, F_OK))
        return 0;
    struct js *js = js_read(path, err);
    if (!js)
        return -1;
    int rc = read_all(table, js, library, path, err);
    js_free(js);
    if (rc)
        table->count = 0;
    return rc;
}
