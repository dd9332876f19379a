/* show.h - how plans write numbers for people. */
#ifndef TRIREME_PLAN_SHOW_H
#define TRIREME_PLAN_SHOW_H

#include <stddef.h>

/* "28.21 GiB" into text; returns text. */
const char *show_bytes(double bytes, char *text, size_t size);

#endif
