/* json.c - jansson's one home; see json.h. */
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/special_file.h"
#include "base/text.h"

/* struct js is never defined: a pointer to it is a json_t in disguise. */
static json_t *in(const struct js *js)
{
    return (json_t *)js;
}

static struct js *out(json_t *json)
{
    return (struct js *)json;
}

struct js *js_object(void)
{
    return out(json_object());
}

struct js *js_array(void)
{
    return out(json_array());
}

void js_free(struct js *js)
{
    json_decref(in(js));
}

static void add(struct js *to, const char *key, json_t *value)
{
    if (key)
        json_object_set_new(in(to), key, value);
    else
        json_array_append_new(in(to), value);
}

void js_add_int(struct js *to, const char *key, int64_t value)
{
    add(to, key, json_integer(value));
}

void js_add_real(struct js *to, const char *key, double value)
{
    add(to, key, isfinite(value) ? json_real(value) : json_null());
}

void js_add_bool(struct js *to, const char *key, int value)
{
    add(to, key, json_boolean(value));
}

void js_add_null(struct js *to, const char *key)
{
    add(to, key, json_null());
}

void js_add_string(struct js *to, const char *key, const char *value)
{
    json_t *string = json_string(value);
    add(to, key, string ? string : json_string("(not UTF-8)"));
}

void js_add_bytes(struct js *to, const char *key, const char *text, size_t bytes)
{
    json_t *string = json_stringn(text, bytes);
    add(to, key, string ? string : json_string("(not UTF-8)"));
}

void js_add(struct js *to, const char *key, struct js *child)
{
    add(to, key, in(child));
}

/* Returns 1 if every real number in json is the same again when it is written with 15 digits. */
static int are_short(const json_t *json)
{
    char text[32];
    const char *key;
    json_t *member;
    size_t i;
    int all = 1;
    if (json_is_real(json)) {
        snprintf(text, sizeof text, "%.15g", json_real_value(json));
        return strtod(text, NULL) == json_real_value(json);
    }
    json_object_foreach((json_t *)json, key, member) all &= are_short(member);
    json_array_foreach(json, i, member) all &= are_short(member);
    return all;
}

char *js_text(const struct js *js, enum js_layout layout, struct error *err)
{
    size_t flags = layout == JS_ONE_LINE ? 0 : JSON_INDENT(2);
    flags |= JSON_REAL_PRECISION(layout != JS_EXACT || are_short(in(js)) ? 15 : 17);
    char *text = json_dumps(in(js), flags);
    size_t length = text ? strlen(text) : 0;
    char *line = text ? realloc(text, length + 2) : NULL;
    if (!line) {
        free(text);
        error_set(err, "out of memory writing JSON");
        return NULL;
    }
    memcpy(line + length, "\n", 2);
    return line;
}

int js_write(const struct js *js, enum js_layout layout, enum whole_file_care care,
             const char *path, struct error *err)
{
    struct whole_file file;
    char *text = js_text(js, layout, err);
    if (!text || whole_file_begin(&file, path, err)) {
        free(text);
        return -1;
    }
    fputs(text, file.out);
    free(text);
    return whole_file_end(&file, care, err);
}

/* Replace each real number in json that is whole and at most 2^53 by an integer. */
static json_t *with_integers(json_t *json)
{
    const double most = 9007199254740992; /* 2^53 */
    const char *key;
    json_t *member;
    size_t i;
    double value = json_real_value(json);
    if (json_is_real(json) && fabs(value) <= most && value == floor(value)) {
        json_decref(json);
        return json_integer((json_int_t)value);
    }
    json_object_foreach(json, key, member)
        json_object_set_new(json, key, with_integers(json_incref(member)));
    json_array_foreach(json, i, member)
        json_array_set_new(json, i, with_integers(json_incref(member)));
    return json;
}

/* jansson refuses integers beyond 64 bits, which Python writes.  With JSON_DECODE_INT_AS_REAL it
 * reads all integers as real numbers, of any size. */
enum { BIG = JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL };

static int is_too_big(const json_t *json, const json_error_t *why)
{
    return !json && json_error_code(why) == json_error_numeric_overflow;
}

/* Returns 1 if the file begins with U+FEFF, as text files of Windows programs may. */
static int begins_with_bom(FILE *in)
{
    char front[3];
    rewind(in);
    return text_bom_bytes(front, fread(front, 1, sizeof front, in)) > 0;
}

/* Read an open file.  Returns NULL where that fails, with errno, or where it is not JSON, with
 * *why.  For jansson a read that fails is the end of the file. */
static json_t *load(FILE *in, json_error_t *why)
{
    json_t *json = json_loadf(in, JSON_REJECT_DUPLICATES, why);
    if (is_too_big(json, why)) {
        rewind(in);
        json = with_integers(json_loadf(in, BIG, why));
    }
    if (!ferror(in))
        return json;
    json_decref(json);
    return NULL;
}

struct js *js_read(const char *path, struct error *err)
{
    json_error_t why;
    if (special_file_refuse(path, err))
        return NULL;
    FILE *in = fopen(path, "rb");
    if (!in) {
        error_file(err, "cannot open", path);
        return NULL;
    }
    json_t *json = load(in, &why);
    if (!json && ferror(in))
        error_errno(err, "cannot read %s", path);
    else if (!json && begins_with_bom(in))
        error_set(err,
                  "%s begins with a byte order mark (U+FEFF), which JSON does not have; take it "
                  "out: sed -i '1s/^\\xef\\xbb\\xbf//' %s",
                  path, path);
    else if (!json)
        error_set(err, "%s:%d:%d: %s", path, why.line, why.column, why.text);
    fclose(in);
    return out(json);
}

struct js *js_parse(const char *text, struct error *err)
{
    json_error_t why;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (is_too_big(json, &why))
        json = with_integers(json_loads(text, BIG, &why));
    if (!json)
        error_set(err, "JSON line %d column %d: %s", why.line, why.column, why.text);
    return out(json);
}

struct js *js_parse_data(const char *text, size_t bytes, struct error *err)
{
    const size_t flags =
        JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY;
    json_error_t why;
    json_t *json = json_loadb(text, bytes, flags, &why);
    if (!json)
        error_set(err, "not JSON: column %d: %s", why.column, why.text);
    return out(json);
}

struct js *js_get(const struct js *js, const char *key)
{
    return out(json_object_get(in(js), key));
}

const char *js_next_key(const struct js *js, const char *key)
{
    void *at = key ? json_object_iter_next(in(js), json_object_key_to_iter(key))
                   : json_object_iter(in(js));
    return at ? json_object_iter_key(at) : NULL;
}

int js_length(const struct js *js)
{
    return (int)json_array_size(in(js));
}

struct js *js_at(const struct js *js, int i)
{
    return i < 0 ? NULL : out(json_array_get(in(js), (size_t)i));
}

const char *js_string(const struct js *js)
{
    return json_string_value(in(js));
}

int64_t js_int(const struct js *js, int64_t otherwise)
{
    return json_is_integer(in(js)) ? json_integer_value(in(js)) : otherwise;
}

int64_t js_at_int(const struct js *js, int i, int64_t otherwise)
{
    json_t *value = json_array_get(in(js), (size_t)i);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

const char *js_at_string(const struct js *js, int i, const char *otherwise)
{
    const char *text = json_string_value(json_array_get(in(js), (size_t)i));
    return text ? text : otherwise;
}

const char *js_bytes(const struct js *js, size_t *bytes)
{
    *bytes = json_string_length(in(js));
    return json_string_value(in(js));
}

const char *js_kind(const struct js *js)
{
    if (!js)
        return "nothing";
    switch (json_typeof(in(js))) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    default: return "null";
    }
}

/* Returns 1 if the type of value is the wanted one. */
static int is_wanted(const json_t *value, enum js_want want)
{
    switch (want) {
    case JS_WHOLE: return json_is_integer(value);
    case JS_NUMBER: return json_is_number(value);
    case JS_TRUTH: return json_is_boolean(value);
    case JS_TEXT: return json_is_string(value);
    case JS_LIST: return json_is_array(value);
    case JS_NAMES: return json_is_string(value) || json_is_array(value);
    case JS_OBJECT: return json_is_object(value);
    }
    return 0;
}

int js_check(const struct js *js, const char *key, enum js_want want, struct error *err)
{
    static const char *const wants[] = {
        [JS_WHOLE] = "a whole number", [JS_NUMBER] = "a number", [JS_TRUTH] = "true or false",
        [JS_TEXT] = "a text",          [JS_LIST] = "a list",     [JS_NAMES] = "a list of names",
        [JS_OBJECT] = "an object",
    };
    const json_t *value = json_object_get(in(js), key);
    char shown[64] = "";
    if (!value || json_is_null(value) || is_wanted(value, want))
        return 0;
    if (json_is_string(value))
        snprintf(shown, sizeof shown, ", \"%.40s\"", json_string_value(value));
    else if (json_is_number(value))
        snprintf(shown, sizeof shown, ", %g", json_number_value(value));
    return error_set(err, "%.60s is %s%s; %s is wanted", key, js_kind(js_get(js, key)), shown,
                     wants[want]);
}

int js_has(const struct js *js, const char *key)
{
    json_t *value = json_object_get(in(js), key);
    return value && !json_is_null(value);
}

int js_get_bool(const struct js *js, const char *key, int otherwise)
{
    json_t *value = json_object_get(in(js), key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

int64_t js_get_int(const struct js *js, const char *key, int64_t otherwise)
{
    json_t *value = json_object_get(in(js), key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

double js_get_real(const struct js *js, const char *key, double otherwise)
{
    json_t *value = json_object_get(in(js), key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

const char *js_get_string(const struct js *js, const char *key, const char *otherwise)
{
    json_t *value = json_object_get(in(js), key);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}
