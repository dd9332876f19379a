/* schedstat.c - see schedstat.h. */
#include "base/schedstat.h"

#include <stdio.h>

int64_t schedstat_waited_ns(const char *line)
{
    long long waited = 0;
    return sscanf(line, "%*s %lld", &waited) == 1 ? waited : 0;
}
