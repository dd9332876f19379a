/* progress.h - how fast a run is and when it will end, as one line for people. */
#ifndef TRIREME_TRAIN_PROGRESS_H
#define TRIREME_TRAIN_PROGRESS_H

#include <stdint.h>

#include "train/metrics_step.h"

/* The speed of a run since it started.  Its first step warms caches and is left out once there is
 * another.  Zero-initialise; set window. */
enum { SPEED_WINDOW = 1000 }; /* a mean is over at most so many steps */

struct speed {
    int64_t window;                                /* means are over so many last steps */
    int64_t steps;                                 /* finished, without the first */
    double ms[SPEED_WINDOW], tokens[SPEED_WINDOW]; /* of the last steps, in a ring */
    double steps_ms;                               /* of all steps but the first */
    int64_t first_end_ns, end_ns;                  /* when the first and the last step ended */
};

/* Add a step of `tokens` tokens that took step_ms and has ended at end_ns (of clock_ns()). */
void speed_add(struct speed *speed, double step_ms, double tokens, int64_t end_ns);

/* Return the mean time of a step in ms, and the tokens per second of the steps' time, over the last
 * `window` steps. */
double speed_ms(const struct speed *speed);
double speed_tokens_per_s(const struct speed *speed);

/* Return the seconds that `steps` more steps will take: speed_ms() each, and what evaluations and
 * checkpoints took per step so far. */
double speed_left_s(const struct speed *speed, int64_t steps);

/* What a progress line shows. */
struct progress {
    const struct metrics_step *last;
    int64_t steps;                /* of the run */
    double tokens_per_s, step_ms; /* means of the last steps */
    double mfu;                   /* share of the peak, 0 to 1; 0: not known */
    double left_s;                /* seconds until the run ends */
};

enum { PROGRESS_TEXT = 320 };

/* Write the line to text, of at most `columns` characters (0: no limit).  Where it would be longer,
 * the least important parts are left out; the loss and the end are the last to go.  Returns text.
 */
const char *progress_text(const struct progress *progress, int columns, char text[PROGRESS_TEXT]);

/* Return the columns of the terminal if stderr is one, else the value of COLUMNS, else 80. */
int progress_columns(void);

/* Can stderr show a line that replaces itself? */
int progress_is_live(void);

#endif
