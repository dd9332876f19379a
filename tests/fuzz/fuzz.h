/* fuzz.h - what the fuzz targets share.
 *
 * A target is one function, LLVMFuzzerTestOneInput(), that is given bytes as somebody else might
 * write them, and ends the process where trireme breaks a promise.  tests/fuzz/fuzz.sh links it
 * with libFuzzer and sanitizers, which invent bytes; replay.c links it alone and gives it the files
 * of tests/fuzz/corpus, which tests/check.sh does.
 */
#ifndef TRIREME_TESTS_FUZZ_H
#define TRIREME_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The path of a file with these bytes, or without: in a folder of this process's own in memory,
 * which goes when the process ends.  The text is valid until the next call with that name. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);
const char *fuzz_path(const char *name);

/* End the process: a promise is broken. */
_Noreturn void fuzz_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What is refused is refused with one line. */
void fuzz_check_error(const struct error *err);

/* Take a number from the front of the bytes; 0 where none are left. */
uint64_t fuzz_take(const uint8_t **data, size_t *bytes, int width);

#endif
