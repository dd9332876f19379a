/* json.h - JSON values, written and read (jansson's one home is json.c).
 * Names begin with js_, because json_ is jansson's own prefix.
 *
 * A struct js is an object or an array; whoever made it frees it with
 * js_free(), except one handed to js_add(), which then belongs to its parent.
 * Building functions do not fail visibly: running out of memory makes
 * js_write() and js_text() fail.
 */
#ifndef TRIREME_BASE_JSON_H
#define TRIREME_BASE_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/whole_file.h"

struct js;

struct js *js_object(void);
struct js *js_array(void);
void js_free(struct js *json);

/* Members of an object (key given) or elements of an array (key NULL).
 * A double that is not finite is written as null. */
void js_add_int(struct js *to, const char *key, int64_t value);
void js_add_real(struct js *to, const char *key, double value);
void js_add_bool(struct js *to, const char *key, int value);
void js_add_null(struct js *to, const char *key);
void js_add_string(struct js *to, const char *key, const char *value);
/* A text of so many bytes of UTF-8, U+0000 among them; of others "(not UTF-8)". */
void js_add_bytes(struct js *to, const char *key, const char *text, size_t bytes);
void js_add(struct js *to, const char *key, struct js *child);

/* JS_EXACT: indented, with 17 digits where 15 do not give back every number. */
enum js_layout { JS_ONE_LINE, JS_INDENTED, JS_EXACT };

/* Text of json, newline at the end; free() it.  NULL with err set when memory is out. */
char *js_text(const struct js *json, enum js_layout layout, struct error *err);

/* Replace the file at path by the text of json, as a whole_file.  Returns 0, or -1 with err set. */
int js_write(const struct js *json, enum js_layout layout, enum whole_file_care care,
             const char *path, struct error *err);

/* Parse a file (js_read) or a text.  An integer beyond 64 bits becomes a real number, and the other
 * whole numbers beside it, up to 2^53, integers.  err names file, line and column.  NULL on
 * failure.
 */
struct js *js_read(const char *path, struct error *err);
struct js *js_parse(const char *text, struct error *err);
/* Parse one value of so many bytes, from data: texts in it may hold U+0000, and a number beyond
 * 64 bits is a real one.  err names the column.  NULL on failure. */
struct js *js_parse_data(const char *text, size_t bytes, struct error *err);

/* Reading members of an object; what js_get() returns belongs to json.
 * Wrong type or absence: js_get() returns NULL, the others `otherwise`. */
struct js *js_get(const struct js *json, const char *key);
/* The key behind `key` of an object, the first one for NULL; NULL behind the last.  key is one that
 * this function returned. */
const char *js_next_key(const struct js *json, const char *key);
/* The elements of an array: how many (0 of what is none), the i-th (NULL: there is none), and the
 * i-th if it is a whole number, or a string. */
int js_length(const struct js *json);
struct js *js_at(const struct js *json, int i);
int64_t js_at_int(const struct js *json, int i, int64_t otherwise);
const char *js_at_string(const struct js *json, int i, const char *otherwise);
/* What json itself is: a text, or NULL; a whole number, or `otherwise`. */
const char *js_string(const struct js *json);
int64_t js_int(const struct js *json, int64_t otherwise);
/* The bytes of a text, in UTF-8, U+0000 among them; NULL of what is none. */
const char *js_bytes(const struct js *json, size_t *bytes);
/* What it is: "an object", "an array", "a text", "a number", "true", "false", "null", "nothing". */
const char *js_kind(const struct js *json);
/* Is a member what is wanted, or null, or absent?  JS_NAMES is a list, or one name.  0, or -1 with
 * err set: it is of another kind. */
enum js_want { JS_WHOLE, JS_NUMBER, JS_TRUTH, JS_TEXT, JS_LIST, JS_NAMES, JS_OBJECT };
int js_check(const struct js *json, const char *key, enum js_want want, struct error *err);
/* Is a member there, and not null? */
int js_has(const struct js *json, const char *key);
int js_get_bool(const struct js *json, const char *key, int otherwise);
int64_t js_get_int(const struct js *json, const char *key, int64_t otherwise);
double js_get_real(const struct js *json, const char *key, double otherwise);
const char *js_get_string(const struct js *json, const char *key, const char *otherwise);

#endif
