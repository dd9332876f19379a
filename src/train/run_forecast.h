/* run_forecast.h - how long the steps of a run should take, where its machine is known: forecast
 * before the first of them, and written as forecast.json into the run directory. */
#ifndef TRIREME_TRAIN_RUN_FORECAST_H
#define TRIREME_TRAIN_RUN_FORECAST_H

#include "plan/report.h"
#include "train/deviation.h"
#include "train/run_machine.h"
#include "train/session.h"

struct run_forecast {
    int has_machine;       /* 1, on all ranks: run.machine is known */
    int is_there;          /* 1, on all ranks: the forecast was made */
    struct run_machine on; /* on rank 0 alone, as is all that follows */
    struct report report;
    struct deviation_forecast steps;
};

/* Find the machine that run.machine names, and refuse one that does not fit the run.  forecast is
 * zero-initialised, and for run_forecast_close() in any case.  Collective.  Returns 0, or -1 on all
 * ranks with err set. */
int run_forecast_open(struct run_forecast *forecast, const struct session *session,
                      struct error *err);

/* Forecast the session's step and write forecast.json, unless the machine is not known or that
 * would take long, which a line in the log says.  Collective.  Returns 0, or -1 on all ranks with
 * err set. */
int run_forecast_make(struct run_forecast *forecast, const struct session *session,
                      struct error *err);

/* Print the forecast, one line, on rank 0; nothing where there is none. */
void run_forecast_print(const struct run_forecast *forecast, const struct session *session);

void run_forecast_close(struct run_forecast *forecast);

#endif
