/* plan_options.h - what the options of trireme plan say; for plan.c and plan_search.c. */
#ifndef TRIREME_CLI_PLAN_OPTIONS_H
#define TRIREME_CLI_PLAN_OPTIONS_H

#include "plan/report.h"
#include "plan/search_nodes.h"
#include "simulate/machine.h"

struct plan_options {
    const char *json, *csv, *svg; /* files to write; NULL: none */
    const char *yaml;             /* file for the configuration that a search found; NULL: none */
    const char *trace,
        *timeline;           /* files for the forecast step, as JSON, as a picture; NULL: none */
    int search, fewest;      /* 1: --search, --fewest, in place of a plan */
    struct machine machine;  /* that --machine names */
    int as_machine;          /* 1: --machine was given */
    int64_t ranks, nodes;    /* 0: not known yet (plan_options_set_ranks()) */
    int64_t threads;         /* of a rank on CPUs; 0: as OMP_NUM_THREADS says */
    int threads_given;       /* 1: by --threads */
    int64_t most_nodes;      /* above 0: a search over `nodes` to this many nodes */
    enum search_keeps keeps; /* what stays the same in such a search */
    double node_gib;         /* --node-memory: GiB of a node's memory; 0: not given */
    int unasked_cpu;         /* 1: device=auto found no GPU here, and no machine was named */
};

/* Take the options out of argc and argv.  o: zeros; machine_free() frees o->machine.  Returns 0, or
 * -1 with err set. */
int plan_options_take(struct plan_options *o, int *argc, char **argv, struct error *err);

/* Set the ranks and nodes that no option names: for a run those of its last start, which is
 * printed, else one rank.  argv[1]: the run.  Returns 0, or -1 with err set: ranks and nodes do not
 * fit. */
int plan_options_set_ranks(struct plan_options *o, int argc, char **argv, struct error *err);

/* Check that every file that is asked for may be written (output_path_check_report()), and is
 * none of the others.  input: the configuration that is planned, which is not replaced; NULL: none.
 * Returns 0, or -1 with err set. */
int plan_options_check_outputs(const struct plan_options *o, const struct config *config,
                               const char *input, struct error *err);

/* Returns 1 if --machine names a machine with GPUs. */
int plan_options_has_gpu(const struct plan_options *o);

/* Returns the bytes of a node's memory; 0: not known. */
size_t plan_options_node_bytes(const struct plan_options *o);

/* Set in the report, whose config, ranks and nodes are set, how much memory the GPU and the node
 * have, for its verdicts. */
void plan_options_judge(const struct plan_options *o, struct report *report);

/* Print what holds of the machine whatever is found: that trireme does not run there, and that
 * links within a node are taken to join more GPUs than its nodes have. */
void plan_options_show_notes(const struct plan_options *o);

#endif
