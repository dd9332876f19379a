/* report_private.h - what report.c and the files of its parts share. */
#ifndef TRIREME_PLAN_REPORT_PRIVATE_H
#define TRIREME_PLAN_REPORT_PRIVATE_H

#include "plan/report.h"

/* Which ranks are compiled. */
enum report_extent {
    EXTENT_WORLD,    /* all, or as many as the others repeat */
    EXTENT_PIPELINE, /* the first of each coordinate along the pipeline axis */
    EXTENT_ENDS      /* the first two and the last of EXTENT_PIPELINE */
};

/* A report that is being made. */
struct report_making {
    struct report *report;
    struct device *device;
    struct model *model;
    struct units **units;    /* per variant: layout_variants() */
    struct mesh_shape shape; /* the mesh of the compiled ranks: see report_choose_ranks() */
    int ranks;               /* how many are compiled */
    struct record *record;   /* NULL: nothing is recorded */
    enum report_extent extent;
    struct state **state; /* per compiled rank, as are program and need */
    struct program **program;
    struct memory_need *need;
    int wrong_rank;     /* the first one of which a program beside training's is wrong */
    struct error wrong; /* what is wrong there; no text: nothing */
};

/* Choose the ranks that are compiled, once units are there: set shape and ranks.  Returns 0, or -1
 * with err set: there are too many for an optimizer whose matrices have owners. */
int report_choose_ranks(struct report_making *m, struct error *err);

/* Compile the programs of the chosen ranks, and fill in what the report says of each rank. */
void report_compile_ranks(struct report_making *m);

/* Check the compiled programs, alone and together, and the graphs of all variants, and set the
 * verdict. */
void report_verify_ranks(struct report_making *m);

/* Forecast a step of the compiled programs with report->speeds, and fill in times and waits of
 * ranks and units.  There is no forecast where ranks wait for ever, which report_verify_ranks()
 * names. */
void report_forecast_step(struct report_making *m);

#endif
