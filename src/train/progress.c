/* progress.c - the line of a step: what it shows, and how fast a run is.
 *
 * Speed is the mean of a window of steps, kept in a ring; the first step, which is slower, counts
 * until there is another.  The time left also counts what passes between steps (saving,
 * evaluating).  The line is joined from parts, and the least important go until it fits.
 */
#include "train/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/round.h"
#include "base/text.h"

static int64_t ring_size(const struct speed *speed)
{
    return min_i64(max_i64(speed->window, 1), SPEED_WINDOW);
}

/* Steps in the ring: the first one until there is another. */
static int64_t held(const struct speed *speed)
{
    return max_i64(min_i64(speed->steps, ring_size(speed)), 1);
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
    double all = 0;
    for (int64_t i = 0; i < held(speed); i++)
        all += of[i];
    return all;
}

double speed_ms(const struct speed *speed)
{
    return sum(speed, speed->ms) / (double)held(speed);
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
enum { STEP, LOSS, VALID, GRAD, LR, TOKENS, MS, MFU, EPOCH, END, PARTS, PART = 64 };

static const int left_out_first[] = {MFU, MS, LR, EPOCH, GRAD, TOKENS, VALID};

/* Print a value with so many decimals, and not-a-number without a sign. */
static void put_value(char part[PART], const char *name, int decimals, double value)
{
    if (isfinite(value))
        snprintf(part, PART, "%s %.*f", name, decimals, value);
    else
        snprintf(part, PART, "%s not finite", name);
}

static void put_loss(char part[PART], const char *name, double loss, double targets)
{
    if (targets <= 0)
        snprintf(part, PART, "%s none (no targets)", name);
    else
        put_value(part, name, 4, loss);
}

static void put_evaluation(char part[PART], const struct metrics_step *step)
{
    put_loss(part, "valid", step->eval_loss, step->eval_tokens);
    if (step->eval_tokens > 0 && isfinite(step->eval_loss))
        text_append(part, PART, " (ppl %.4g)", exp(step->eval_loss));
}

static void put_end(char part[PART], double seconds)
{
    long s = lround(fmin(seconds, 1e9));
    if (s < 60)
        snprintf(part, PART, "ETA %lds", s);
    else if (s < 3600)
        snprintf(part, PART, "ETA %ldm%02lds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(part, PART, "ETA %ldh%02ldm", s / 3600, s / 60 % 60);
    else
        snprintf(part, PART, "ETA %ldd%02ldh", s / 86400, s / 3600 % 24);
}

static void make_parts(const struct progress *p, char part[PARTS][PART])
{
    const struct metrics_step *step = p->last;
    memset(part, 0, PARTS * sizeof part[0]);
    snprintf(part[STEP], PART, "step %lld/%lld", (long long)step->step, (long long)p->steps);
    if (step->epoch > 0)
        snprintf(part[EPOCH], PART, "epoch %.2f", step->epoch);
    put_loss(part[LOSS], "loss", step->output.loss, step->output.targets);
    if (step->evaluated)
        put_evaluation(part[VALID], step);
    put_value(part[GRAD], "grad", 3, step->output.grad_norm);
    snprintf(part[LR], PART, "lr %.2e", step->lr);
    snprintf(part[TOKENS], PART, "%.0f tokens/s", p->tokens_per_s);
    snprintf(part[MS], PART, "%.1f ms", p->step_ms);
    if (p->mfu > 0)
        snprintf(part[MFU], PART, "mfu %.1f%%", 100 * p->mfu);
    put_end(part[END], p->left_s);
}

static size_t join(char part[PARTS][PART], char text[PROGRESS_TEXT])
{
    text[0] = 0;
    for (int i = 0; i < PARTS; i++)
        if (part[i][0])
            text_join(text, PROGRESS_TEXT, "  ", "%s", part[i]);
    return strlen(text);
}

const char *progress_text(const struct progress *progress, int columns, char text[PROGRESS_TEXT])
{
    enum { DROPS = sizeof left_out_first / sizeof left_out_first[0] };
    char part[PARTS][PART];
    make_parts(progress, part);
    size_t length = join(part, text), most = columns > 0 ? (size_t)columns : PROGRESS_TEXT;
    for (int i = 0; length > most && i < DROPS; i++) {
        part[left_out_first[i]][0] = 0;
        length = join(part, text);
    }
    if (length > most)
        text[most] = 0;
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
