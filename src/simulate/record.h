/* record.h - a step that is forecast, instruction by instruction, as run.trace records one that
 * runs.
 *
 *   struct record record;
 *   record_begin(&record, &request);      the ranks of a forecast_request
 *   forecast_make(...)                    whose watch gives each instruction to record_instr()
 *   record_end(&record, &forecast);       from here on programs are not read
 *
 * Recorded are all ranks of the forecast, or of more than RECORD_FEW the first of each
 * coordinate along the pipeline axis.  Lanes, names and bytes are those of a run's trace.  Of a RUN
 * the ops share its time as they take time by themselves.  What takes no time in a forecast,
 * RELEASE, is absent.
 */
#ifndef TRIREME_SIMULATE_RECORD_H
#define TRIREME_SIMULATE_RECORD_H

#include "program/trace.h"
#include "simulate/forecast.h"

enum { RECORD_FEW = 16 };

struct record_rank {
    int rank;             /* of the job */
    struct trace trace;   /* nanoseconds from the step's start */
    enum play_kind *kind; /* per event of trace; of ops PLAY_KINDS */
    int capacity;
};

struct record {
    int ranks;
    struct record_rank *rank;
    double step_s; /* the forecast's, with the machine's time of a step beside instructions */

    const struct forecast_request *request; /* the rest is private, until record_end() */
    struct cost **cost;
    int *index; /* per rank of the request: where in `rank` it is, or -1 */
};

/* The request outlives recording.  For record_free(). */
void record_begin(struct record *record, const struct forecast_request *request);
void record_instr(struct record *record, int rank, int instr, double start_s, double end_s);
void record_end(struct record *record, const struct forecast *forecast);
void record_free(struct record *record); /* one that is all zero is allowed */

/* The document that Perfetto and chrome://tracing show, ranks called after the machine;
 * js_free() it. */
struct js *record_json(const struct record *record, const char *machine);

#endif
