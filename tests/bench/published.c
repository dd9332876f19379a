/* published.c - steps that others have published, beside what trireme forecasts for their layouts.
 *
 *   tests/bench/published [all] [MODEL or MACHINE...]
 *   tests/bench/published memory [MODEL...]
 *
 * Rows are tests/golden/published_rows.csv: model, machine, ranks and step time with their source,
 * and the settings that say the same to trireme; a line that begins with # is a remark, or a row
 * that is left out.  The machines are those that every build knows, and published_machines.yaml's.
 * Rows by which shares of a machine's peaks were set are shown and do not count in the means, nor
 * do those that are left out, for a reason that a remark above them says; `all` adds those that are
 * slow to plan.  Nothing here passes or fails.
 *
 * `memory` takes the rows whose source states the bytes of activations and of state, and prints the
 * plan's beside them: of the pipeline's rank that keeps most, and with whole parameters (NO_SHARD),
 * as these runs had: 16-bit parameters, fp32 gradients, masters and two moments, 18 bytes a
 * parameter.  Their tensor ranks gathered rows again in backward: recompute=gathered.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/report.h"
#include "simulate/machine_file.h"

/* What a row is for: field "fitted". */
enum use { USE_COUNTED, USE_FITTED, USE_LEFT_OUT, USES };

static const struct {
    const char *mark, *title;
} uses[USES] = {
    [USE_COUNTED] = {"", "that count"},
    [USE_FITTED] = {" (fitted)", "by which shares were set"},
    [USE_LEFT_OUT] = {" (left out)", "that are left out"},
};

struct row {
    char model[32], machine[32], network[32], settings[640];
    int ranks, nodes, slow;
    enum use use;
    double step_s, act_gib, state_gib; /* the last two of a rank; 0: not stated */
};

struct error_sum {
    int count;
    double sum, mean_of, worst;
};

/* 1: a row was read; 0: the file is over. */
static int next_row(FILE *file, struct row *row)
{
    enum { FIELDS = 11 };
    char line[2048];
    while (fgets(line, sizeof line, file)) {
        char *rest = line, *field[FIELDS];
        int fields = 0;
        while (fields < FIELDS && (field[fields] = strsep(&rest, ",")))
            fields++;
        if (fields < FIELDS || field[0][0] == '#' || !strcmp(field[0], "model"))
            continue;
        snprintf(row->model, sizeof row->model, "%s", field[0]);
        snprintf(row->machine, sizeof row->machine, "%s", field[1]);
        snprintf(row->network, sizeof row->network, "%s", field[2]);
        row->ranks = atoi(field[3]);
        row->nodes = atoi(field[4]);
        row->step_s = atof(field[5]);
        int use = atoi(field[6]);
        row->use = use > USE_COUNTED && use < USES ? (enum use)use : USE_COUNTED;
        row->slow = atoi(field[7]);
        row->act_gib = atof(field[8]);
        row->state_gib = atof(field[9]);
        snprintf(row->settings, sizeof row->settings, "%s", field[10]);
        return 1;
    }
    return 0;
}

static int open_machine(struct machine *machine, const struct row *row, struct error *err)
{
    const char *file = TEST_FILES "/golden/published_machines.yaml";
    struct error unknown = {0};
    if (machine_find(machine, row->machine, &unknown) &&
        machine_read(machine, file, row->machine, err))
        return -1;
    return row->network[0] ? machine_set_network(machine, row->network, err) : 0;
}

static int load(struct config *config, const struct row *row, struct error *err)
{
    enum { MOST = 40 };
    char text[sizeof row->settings], *rest = text, *word;
    const char *override[MOST] = {"device=cuda", "data.train=none.h5"};
    int count = 2;
    snprintf(text, sizeof text, "%s", row->settings);
    while (count < MOST && (word = strsep(&rest, " ")))
        override[count++] = word;
    return config_load(config, NULL, override, count, err);
}

/* Seconds of a step, or -1 with err set. */
static double forecast_of(const struct row *row, struct error *err)
{
    struct machine machine = {0};
    struct config config;
    struct report report;
    double step_s = -1;
    struct report_request request = {.config = &config,
                                     .ranks = row->ranks,
                                     .nodes = row->nodes,
                                     .threads = 1,
                                     .speeds = &machine};
    if (!open_machine(&machine, row, err) && !load(&config, row, err) &&
        !report_measure(&report, &request, err)) {
        step_s = report.forecast.step_s;
        report_free(&report);
    }
    machine_free(&machine);
    return step_s;
}

/* Bytes of a rank's activations and of its state, with gradients beside activations, as where the
 * rows were measured.  0, or -1 with err set. */
static int memory_of(const struct row *row, double *act, double *state, struct error *err)
{
    struct row whole = *row;
    struct config config;
    struct report report;
    size_t used = strlen(whole.settings);
    snprintf(whole.settings + used, sizeof whole.settings - used,
             " parallel.strategy=NO_SHARD train.overlap_update=true");
    struct report_request request = {
        .config = &config, .ranks = row->ranks, .nodes = row->nodes, .threads = 1};
    if (load(&config, &whole, err) || report_measure(&report, &request, err))
        return -1;
    *act = *state = 0;
    for (int r = 0; r < report.measured; r++) {
        const size_t *pool = report.rank[r].need.pool_bytes;
        double own = (double)(pool[POOL_PARAMS] + pool[POOL_GRADS] + pool[POOL_OPTIMIZER]);
        *act = fmax(*act, (double)pool[POOL_ACTIVATIONS]);
        *state = fmax(*state, own);
    }
    report_free(&report);
    return 0;
}

static void print_memory(const struct row *row)
{
    const double gib = 1 << 30;
    double act, state;
    struct error err = {0};
    if (memory_of(row, &act, &state, &err)) {
        printf("%-12s %6d %s\n", row->model, row->ranks, err.text);
        return;
    }
    printf("%-12s %6d %11.2f %11.2f %+6.1f %% %11.2f %11.2f %+6.1f %%\n", row->model, row->ranks,
           act / gib, row->act_gib, 100 * (act / gib / row->act_gib - 1), state / gib,
           row->state_gib, 100 * (state / gib / row->state_gib - 1));
}

static void count(struct error_sum *sum, double off)
{
    sum->count++;
    sum->sum += off;
    sum->mean_of += fabs(off);
    sum->worst = fmax(sum->worst, fabs(off));
}

static int is_wanted(const struct row *row, int argc, char **argv)
{
    int words = 0, met = 0, all = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "all") || !strcmp(argv[i], "memory")) {
            all = 1;
            continue;
        }
        words++;
        met |= strstr(row->model, argv[i]) || strstr(row->machine, argv[i]);
    }
    return (!words || met) && (all || !row->slow);
}

int main(int argc, char **argv)
{
    struct row row;
    struct error_sum sums[USES] = {0};
    FILE *file = fopen(TEST_FILES "/golden/published_rows.csv", "r");
    if (!file)
        return 1;
    if (argc > 1 && !strcmp(argv[1], "memory")) {
        printf("%-12s %6s %23s %30s\n%-12s %6s %11s %11s %8s %11s %11s\n", "GiB of a rank", "",
               "activations", "state", "model", "ranks", "plan", "published", "off", "plan",
               "published");
        while (next_row(file, &row))
            if (row.act_gib > 0 && is_wanted(&row, argc, argv))
                print_memory(&row);
        fclose(file);
        return 0;
    }
    printf("%-12s %-16s %6s %12s %12s %9s\n", "model", "machine", "ranks", "forecast s",
           "published s", "off");
    while (next_row(file, &row)) {
        struct error err = {0};
        if (!is_wanted(&row, argc, argv))
            continue;
        double step_s = forecast_of(&row, &err), off = 100 * (step_s / row.step_s - 1);
        if (step_s <= 0) {
            printf("%-12s %-16s %6d %s\n", row.model, row.machine, row.ranks, err.text);
            continue;
        }
        const char *seq = strstr(row.settings, "data.seq_len=");
        printf("%-12s %-16s %6d %12.4f %12.4f %+8.1f %%%s  %.*s\n", row.model, row.machine,
               row.ranks, step_s, row.step_s, off, uses[row.use].mark,
               seq ? (int)strcspn(seq, " ") : 0, seq ? seq : "");
        count(&sums[row.use], off);
    }
    fclose(file);
    for (int i = 0; i < USES; i++)
        if (sums[i].count)
            printf("%d rows %s: %+.1f %% in the mean, %.1f %% without sign, %.1f %% at worst\n",
                   sums[i].count, uses[i].title, sums[i].sum / sums[i].count,
                   sums[i].mean_of / sums[i].count, sums[i].worst);
    return 0;
}
