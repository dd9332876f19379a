/* any.h - drawing random settings, the same for the same case, to test combinations that nobody
 * thought of. */
#ifndef TRIREME_TESTS_UNIT_ANY_H
#define TRIREME_TESTS_UNIT_ANY_H

#include <stdint.h>

#include "config/config.h"

/* The random numbers of one case. */
struct any {
    uint64_t key, next; /* of the case; count of numbers drawn */
};

/* Begin the random numbers of a case: the number-th of a test that is named `what`. */
struct any any_case(const char *what, int number);

/* Draw one of 0 to count - 1. */
int any_pick(struct any *any, int count);

/* Groups of keys, as bits: what is computed; the layout over ranks and memory; number formats. */
enum any_rows { ANY_MODEL = 1, ANY_LAYOUT = 2, ANY_FORMATS = 4 };

enum { ANY_TEXT = 4096 };

/* Append " key=value" to text for random keys of these groups (bits of any_rows). */
void any_settings(struct any *any, unsigned rows, char text[ANY_TEXT]);

/* Parse and check "key=value key=value ...".  Returns 0, or -1 with err set. */
int any_load(struct config *config, const char *settings, struct error *err);

#endif
