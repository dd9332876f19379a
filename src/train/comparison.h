/* comparison.h - a run compared with its forecast, and its ranks with one another: when steps are
 * measured for that, and the line that says what is off (deviation.h).
 *
 * Ranks compare for the first time after ten steps, by the last few of these.  Then, every so many
 * steps, rank 0 looks whether a step's time has changed, or twice as many steps are done, and if so
 * all compare again:
 *
 *   step   1 .... 6 7 8 9 10 ......... 20   22 23 24 25 26 ........ 30 ......... 40   42 ...
 *                 measured: compare    look: twice as many, ...     look: no     look: longer, ...
 */
#ifndef TRIREME_TRAIN_COMPARISON_H
#define TRIREME_TRAIN_COMPARISON_H

#include "base/json.h"
#include "train/run_forecast.h"
#include "train/session.h"

struct comparison;

/* Make a comparison of the steps from `first` on, for comparison_close() (NULL allowed).  session
 * and forecast stay the caller's and must outlive it.  Returns NULL where nothing is compared:
 * run.machine=off, or one rank and no forecast. */
struct comparison *comparison_open(const struct session *session,
                                   const struct run_forecast *forecast, int64_t first);
void comparison_close(struct comparison *comparison);

/* Is a step measured?  Then the caller traces it with whole_runs set, and lets no other step be
 * under way beside it.  The same on all ranks; may be asked before the step is started, once the
 * step two before it has ended.  comparison: NULL allowed. */
int comparison_measures(const struct comparison *comparison, int64_t step);

/* Note a step that has ended.  step_ms: 0 where its time is not that of a step alone, because a
 * checkpoint was being written beside it; it is not compared then.  trace: that of a measured step,
 * else NULL; core_s: seconds in which the calling thread had a core, 0: not known; queue_s: seconds
 * in which a thread was ready to run and had none.  When the measured steps are done the ranks are
 * compared, and *line, which is NULL before, becomes rank 0's object for metrics.jsonl, for
 * js_free().  comparison: NULL allowed. Collective.  Returns 0, or -1 on all ranks with err set. */
int comparison_step(struct comparison *comparison, int64_t step, double step_ms,
                    const struct trace *trace, double core_s, double queue_s, struct js **line,
                    struct error *err);

#endif
