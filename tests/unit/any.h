/* any.h - settings by chance, the same ones for the same case: combinations nobody thought of. */
#ifndef TRIREME_TESTS_UNIT_ANY_H
#define TRIREME_TESTS_UNIT_ANY_H

#include <stdint.h>

#include "config/config.h"

/* Numbers by chance of one case. */
struct any {
    uint64_t key, next;
};

struct any any_case(const char *what, int number);

/* One of 0 to count - 1. */
int any_pick(struct any *any, int count);

/* What is computed; how it is laid out over ranks and memory; in which formats. */
enum any_rows { ANY_MODEL = 1, ANY_LAYOUT = 2, ANY_FORMATS = 4 };

enum { ANY_TEXT = 4096 };

/* Append " key=value" for some of these keys to text. */
void any_settings(struct any *any, unsigned rows, char text[ANY_TEXT]);

/* Parse and check "key=value key=value ...": 0, or -1 with err set. */
int any_load(struct config *config, const char *settings, struct error *err);

#endif
