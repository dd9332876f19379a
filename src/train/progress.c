/* progress.c - see progress.h. */
#include "train/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int64_t ring_size(const struct speed *speed)
{
    int64_t window = speed->window > 0 ? speed->window : 1;
    return window < SPEED_WINDOW ? window : SPEED_WINDOW;
}

void speed_add(struct speed *speed, double step_ms, double tokens, int64_t end_ns)
{
    if (speed->first_end_ns) {
        speed->steps++;
        speed->steps_ms += step_ms;
    } else {
        speed->first_end_ns = end_ns;
    }
    speed->end_ns = end_ns;
    int64_t at = speed->steps ? (speed->steps - 1) % ring_size(speed) : 0;
    speed->ms[at] = step_ms;
    speed->tokens[at] = tokens;
}

/* The sum of the values in the ring. */
static double sum(const struct speed *speed, const double *of)
{
    int64_t held = speed->steps < ring_size(speed) ? speed->steps : ring_size(speed);
    double all = 0;
    for (int64_t i = 0; i < (held ? held : 1); i++)
        all += of[i];
    return all;
}

double speed_ms(const struct speed *speed)
{
    int64_t held = speed->steps < ring_size(speed) ? speed->steps : ring_size(speed);
    return sum(speed, speed->ms) / (double)(held ? held : 1);
}

double speed_tokens_per_s(const struct speed *speed)
{
    double ms = sum(speed, speed->ms);
    return ms > 0 ? sum(speed, speed->tokens) / ms * 1000 : 0;
}

double speed_left_s(const struct speed *speed, int64_t steps)
{
    double beside_ms = (double)(speed->end_ns - speed->first_end_ns) / 1e6 - speed->steps_ms;
    if (speed->steps == 0 || beside_ms < 0)
        beside_ms = 0;
    double each_ms = speed_ms(speed) + (speed->steps ? beside_ms / (double)speed->steps : 0);
    return (double)steps * each_ms / 1000;
}

/* The parts of the line in the order in which they are shown; and those that may be left out, the
 * least important first. */
enum { STEP, LOSS, VALID, GRAD, RATE, TOKENS, MS, MFU, END, PARTS };

static const int left_out_first[] = {MFU, MS, RATE, GRAD, TOKENS, VALID};

static void put(char part[64], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(char part[64], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(part, 64, fmt, args);
    va_end(args);
}

/* Print a value with so many decimals, and not-a-number without a sign. */
static void put_value(char part[64], const char *name, int decimals, double value)
{
    if (isfinite(value))
        put(part, "%s %.*f", name, decimals, value);
    else
        put(part, "%s not finite", name);
}

static void put_loss(char part[64], const char *name, double loss, double targets)
{
    if (targets <= 0)
        put(part, "%s none (no targets)", name);
    else
        put_value(part, name, 4, loss);
}

static void put_end(char part[64], double seconds)
{
    long s = lround(fmin(seconds, 1e9));
    if (s < 60)
        put(part, "ETA %lds", s);
    else if (s < 3600)
        put(part, "ETA %ldm%02lds", s / 60, s % 60);
    else if (s < 86400)
        put(part, "ETA %ldh%02ldm", s / 3600, s / 60 % 60);
    else
        put(part, "ETA %ldd%02ldh", s / 86400, s / 3600 % 24);
}

static void make_parts(const struct progress *p, char part[PARTS][64])
{
    memset(part, 0, PARTS * sizeof part[0]);
    put(part[STEP], "step %lld/%lld", (long long)p->step, (long long)p->steps);
    put_loss(part[LOSS], "loss", p->loss, p->targets);
    if (p->evaluated)
        put_loss(part[VALID], "valid", p->valid_loss, p->valid_targets);
    put_value(part[GRAD], "grad", 3, p->grad_norm);
    put(part[RATE], "lr %.2e", p->lr);
    put(part[TOKENS], "%.0f tokens/s", p->tokens_per_s);
    put(part[MS], "%.1f ms", p->step_ms);
    if (p->mfu > 0)
        put(part[MFU], "mfu %.1f%%", 100 * p->mfu);
    put_end(part[END], p->left_s);
}

static int join(char part[PARTS][64], char text[PROGRESS_TEXT])
{
    int length = 0;
    text[0] = 0;
    for (int i = 0; i < PARTS; i++)
        if (part[i][0] && length < PROGRESS_TEXT)
            length += snprintf(text + length, (size_t)(PROGRESS_TEXT - length), "%s%s",
                               length ? "  " : "", part[i]);
    return length;
}

const char *progress_text(const struct progress *progress, int columns, char text[PROGRESS_TEXT])
{
    enum { DROPS = sizeof left_out_first / sizeof left_out_first[0] };
    char part[PARTS][64];
    make_parts(progress, part);
    int length = join(part, text);
    for (int i = 0; columns > 0 && length > columns && i < DROPS; i++) {
        part[left_out_first[i]][0] = 0;
        length = join(part, text);
    }
    if (columns > 0 && length > columns)
        text[columns] = 0;
    return text;
}

int progress_columns(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col > 0)
        return size.ws_col;
    return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

int progress_is_live(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
}
