/* clock.c - see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_awake_ns(struct clock_awake *c)
{
    enum { MOST_NS = 1000000000 };
    int64_t now = clock_ns(), passed = now - c->seen_ns;
    if (c->seen_ns)
        c->ns += passed < MOST_NS ? passed : MOST_NS;
    c->seen_ns = now;
    return c->ns;
}

/* Field 22 of /proc/self/stat: start time in clock ticks since boot.  The name in
 * field 2 may hold spaces and newlines, so fields are counted from its closing parenthesis. */
int64_t clock_since_exec_ns(void)
{
    char text[1024];
    struct timespec boot;
    long long ticks;
    FILE *file = fopen("/proc/self/stat", "r");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[got] = 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%lld", &ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &boot))
        return 0;
    int64_t started = ticks * (1000000000 / sysconf(_SC_CLK_TCK));
    return (int64_t)boot.tv_sec * 1000000000 + boot.tv_nsec - started;
}

const char *clock_iso8601(int64_t seconds, long ns, char text[CLOCK_TIME_OF_DAY])
{
    time_t at = (time_t)seconds;
    struct tm utc;
    char date[20] = "";
    if (gmtime_r(&at, &utc))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, CLOCK_TIME_OF_DAY, "%s.%03ldZ", date, ns / 1000000);
    return text;
}

const char *clock_time_of_day(char text[CLOCK_TIME_OF_DAY])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return clock_iso8601((int64_t)now.tv_sec, now.tv_nsec, text);
}
