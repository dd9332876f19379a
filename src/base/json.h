/* json.h - JSON values, written and read (jansson's one home is json.c).
 * Names begin with js_, because json_ is jansson's own prefix.
 *
 * A struct js is any JSON value; functions that make one return an object, an array, or what was
 * parsed.  The caller frees it with js_free(), unless it was handed to js_add(): then it belongs to
 * its parent.  What js_get() and js_at() return belongs to the value it is in.
 *
 * Functions that build return nothing: memory that runs out shows when js_text() or js_write()
 * fails.  Functions that read take NULL for a value that is not there, and values of any type, and
 * return `otherwise` (or NULL) where the type is not the one they look for; so
 * js_get_int(js_get(js_get(json, "a"), "b"), "c", 0) needs no checks on the way.
 */
#ifndef TRIREME_BASE_JSON_H
#define TRIREME_BASE_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/whole_file.h"

struct js;

/* Return an empty object or array. */
struct js *js_object(void);
struct js *js_array(void);
void js_free(struct js *json); /* NULL allowed */

/* Set the member `key` of an object, or, with key NULL, append to an array.  A double that is not
 * finite becomes null, a string that is not UTF-8 "(not UTF-8)". */
void js_add_int(struct js *to, const char *key, int64_t value);
void js_add_real(struct js *to, const char *key, double value);
void js_add_bool(struct js *to, const char *key, int value);
void js_add_null(struct js *to, const char *key);
void js_add_string(struct js *to, const char *key, const char *value);
/* Add a string of `bytes` bytes, which may hold U+0000. */
void js_add_bytes(struct js *to, const char *key, const char *text, size_t bytes);
/* Add child, which belongs to `to` from then on. */
void js_add(struct js *to, const char *key, struct js *child);

/* How a value is written.  Real numbers have 15 digits; with JS_EXACT, which is indented too, all
 * of them have 17 where 15 do not give back every number. */
enum js_layout { JS_ONE_LINE, JS_INDENTED, JS_EXACT };

/* Returns the text of json with a newline at the end, to be free()d; NULL with err set when memory
 * is out. */
char *js_text(const struct js *json, enum js_layout layout, struct error *err);

/* Replace the file at path by js_text(), whole or not at all (base/whole_file.h).  Returns 0, or -1
 * with err set. */
int js_write(const struct js *json, enum js_layout layout, enum whole_file_care care,
             const char *path, struct error *err);

/* Parse a file (js_read) or a text that ends in 0: an object or an array.  A member that an object
 * has twice is an error.  Integers beyond 64 bits become real numbers; in a file or text that has
 * one, so do all integers above 2^53, and a real number that is whole (2.0) becomes an integer.
 * Returns a value for js_free(), or NULL with err naming file, line and column, or saying why the
 * file cannot be read. */
struct js *js_read(const char *path, struct error *err);
struct js *js_parse(const char *text, struct error *err);
/* Parse one value of any type, a record of a data file: strings may hold U+0000, and all numbers
 * become real ones.  Returns a value for js_free(), or NULL with err naming the column. */
struct js *js_parse_data(const char *text, size_t bytes, struct error *err);

/* ---- members of an object, elements of an array ---- */

/* Returns the member `key`, or NULL. */
struct js *js_get(const struct js *json, const char *key);
/* Returns the key that follows `key` in an object, the first key for NULL; NULL after the last
 * one.  key is a pointer that this function returned. */
const char *js_next_key(const struct js *json, const char *key);
/* Return the number of elements of an array (0 for another type), the i-th element (NULL: there is
 * none), the i-th element if it is an integer, and if it is a string. */
int js_length(const struct js *json);
struct js *js_at(const struct js *json, int i);
int64_t js_at_int(const struct js *json, int i, int64_t otherwise);
const char *js_at_string(const struct js *json, int i, const char *otherwise);
/* Return the value itself if it is a string, or if it is an integer. */
const char *js_string(const struct js *json);
int64_t js_int(const struct js *json, int64_t otherwise);
/* Returns the UTF-8 of a string, which may hold U+0000, and its length; NULL for another type. */
const char *js_bytes(const struct js *json, size_t *bytes);
/* Returns the type in words: "an object", "an array", "a text", "a number", "true", "false",
 * "null"; "nothing" for NULL. */
const char *js_kind(const struct js *json);
/* Check that the member `key` is of the wanted type, or null, or absent.  JS_NAMES is a list or one
 * string.  Returns 0, or -1 with err naming the member and both types. */
enum js_want { JS_WHOLE, JS_NUMBER, JS_TRUTH, JS_TEXT, JS_LIST, JS_NAMES, JS_OBJECT };
int js_check(const struct js *json, const char *key, enum js_want want, struct error *err);
/* Returns 1 if the member `key` is there and not null. */
int js_has(const struct js *json, const char *key);
/* Return the member `key` if it is of the function's type, else `otherwise`. */
int js_get_bool(const struct js *json, const char *key, int otherwise);
int64_t js_get_int(const struct js *json, const char *key, int64_t otherwise);
double js_get_real(const struct js *json, const char *key, double otherwise);
const char *js_get_string(const struct js *json, const char *key, const char *otherwise);

#endif
