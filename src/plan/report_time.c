/* report_time.c - see report_time.h.
 *
 * Of a pipeline each pipeline rank is shown; else one rank, the one that waits least, because
 * the others wait for it.
 */
#include "plan/report_time.h"

#include <string.h>

#include "base/text.h"
#include "plan/show.h"

/* "forward 120 ms (29 %), ...; waits for gather 3.10 ms (1 %)" */
static void print_kinds(const struct play_rank *rank, double step_s, const char *who, FILE *out)
{
    char line[640] = "", time[32];
    snprintf(line, sizeof line, "%s:", who);
    int waits = 0;
    for (int kind = 0; kind < PLAY_KINDS; kind++) {
        double seconds = rank->seconds[kind];
        if (seconds < 0.0005 * step_s)
            continue;
        int first_wait = play_kind_is_wait(kind) && !waits++;
        text_append(line, sizeof line, "%s %s %s (%.0f %%)", first_wait ? "; waits for" : ",",
                    play_kind_name(kind), show_time(seconds, time), 100 * seconds / step_s);
    }
    char *comma = strstr(line, ":,");
    if (comma)
        memmove(comma + 1, comma + 2, strlen(comma + 2) + 1);
    fputs("  ", out);
    show_wrapped(out, 2, 4, line);
}

/* "its longest waits: REDUCE layers.0 12.3 ms in 8, GATHER head 3.10 ms": of the rank that waits
 * least. */
static void print_exposed(const struct report *report, FILE *out)
{
    char line[640] = "", time[32];
    for (int i = 0; i < report->exposed_rows; i++) {
        const struct exposed_row *row = &report->exposed[i];
        if (row->seconds < 0.0005 * report->forecast.step_s)
            continue;
        text_join(line, sizeof line, ", ", "%s %s", row->name, show_time(row->seconds, time));
        if (row->times > 1)
            text_append(line, sizeof line, " in %d", row->times);
    }
    if (!line[0])
        return;
    int stages = report->layout.shape.degree[MESH_PIPELINE];
    int column = fprintf(out, stages > 1 ? "  longest waits, of the rank that waits least:"
                                         : "    its longest waits:");
    fputc(' ', out);
    show_wrapped(out, column + 1, 4, line);
}

/* What a rank does and waits for. */
static void print_ranks(const struct report *report, FILE *out)
{
    const struct forecast *f = &report->forecast;
    int stages = report->layout.shape.degree[MESH_PIPELINE], each = f->ranks / stages;
    char who[48];
    if (stages == 1)
        print_kinds(forecast_busiest(f), f->step_s, "the rank that waits least", out);
    for (int at = 0; stages > 1 && at < stages; at++) {
        snprintf(who, sizeof who, "pipeline rank %d", at);
        print_kinds(&f->rank[at * each], f->step_s, who, out);
    }
    print_exposed(report, out);
}

/* Print how long the run is; with train.epochs also its steps, where these are known. */
static void print_run(const struct report *report, FILE *out)
{
    const struct config_train *train = &report->config.train;
    double steps = (double)report->steps, seconds = steps * report->forecast.step_s;
    char time[32], length[64];
    if (train->epochs > 0 && steps > 0)
        snprintf(length, sizeof length, "train.epochs %g, %.0f steps", train->epochs, steps);
    else
        snprintf(length, sizeof length, "train.steps %.0f", steps);
    if (steps > 0)
        fprintf(out, "; %s: %s, %.4g rank-hours", length, show_time(seconds, time),
                seconds / 3600 * report->ranks);
    else if (train->epochs > 0)
        fprintf(out, "; train.epochs %g: not known: %s", train->epochs, report->no_data.text);
}

void report_time_print(const struct report *report, FILE *out)
{
    const struct forecast *f = &report->forecast;
    char step[32], billion[32];
    if (!f->ranks)
        return;
    double tokens_per_s = report_tokens_per_s(report), mfu = report_mfu(report, 0);
    fprintf(out, "\nforecast on %s%s%s: %s a step, %.0f tokens/s, %.0f a rank\n",
            report->speeds->name, report->speeds->source[0] ? ", " : "", report->speeds->source,
            show_time(f->step_s, step), tokens_per_s, tokens_per_s / report->ranks);
    if (mfu > 0)
        fprintf(
            out,
            "  %.1f %% of the peak in products%s (MFU, attention's causal half), %.1f %% if all of "
            "attention counts\n",
            100 * mfu, report->config.precision == PRECISION_FP8 ? " of bf16" : "",
            100 * report_mfu(report, 1));
    print_ranks(report, out);
    double each = 1e9 / tokens_per_s / 3600; /* hours */
    fprintf(out, "  10^9 tokens: %s, %.4g rank-hours", show_time(3600 * each, billion),
            each * report->ranks);
    print_run(report, out);
    fprintf(out, "\n");
}

void report_time_json(const struct report *report, struct js *to)
{
    const struct forecast *f = &report->forecast;
    struct js *js = js_object(), *ranks = js_array(), *waits = js_array();
    if (!f->ranks) {
        js_free(js);
        js_free(waits);
        js_free(ranks);
        return;
    }
    js_add_string(js, "machine", report->speeds->name);
    js_add_real(js, "step_ms", 1e3 * f->step_s);
    js_add_real(js, "tokens_per_s", report_tokens_per_s(report));
    js_add_real(js, "mfu_causal", report_mfu(report, 0));
    js_add_real(js, "mfu_full", report_mfu(report, 1));
    for (int r = 0; r < f->ranks; r++) {
        struct js *rank = js_object();
        for (int kind = 0; kind < PLAY_KINDS; kind++) {
            char name[40];
            snprintf(name, sizeof name, "%s%s_ms", play_kind_is_wait(kind) ? "wait_" : "",
                     play_kind_name(kind));
            for (char *c = name; *c; c++)
                *c = *c == ' ' || *c == '-' ? '_' : *c;
            js_add_real(rank, name, 1e3 * f->rank[r].seconds[kind]);
        }
        js_add(ranks, NULL, rank);
    }
    js_add(js, "rank", ranks);
    for (int i = 0; i < report->exposed_rows; i++) {
        struct js *one = js_object();
        js_add_string(one, "instruction", report->exposed[i].name);
        js_add_int(one, "times", report->exposed[i].times);
        js_add_real(one, "ms", 1e3 * report->exposed[i].seconds);
        js_add(waits, NULL, one);
    }
    js_add(js, "longest_waits", waits);
    js_add(to, "forecast", js);
}
