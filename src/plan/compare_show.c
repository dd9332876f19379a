/* compare_show.c - the table of strategies, one column each, and the same for programs. */
#include <string.h>

#include "plan/compare.h"
#include "plan/largest.h"
#include "plan/show.h"

enum { CELL = 32, NARROW = 11 };

/* One line of the table: what it is called, and its cell of a strategy ("" where all are empty). */
struct line {
    const char *name;
    void (*cell)(const struct compare_row *row, int strategy, int which, char text[CELL]);
    int which;
};

static void pool(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    size_t bytes = report_largest(&row->report)->need.pool_bytes[which];
    text[0] = 0;
    if (bytes || which == POOL_PARAMS)
        show_bytes((double)bytes, text, CELL);
}

static void total(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    show_bytes((double)report_largest(&row->report)->need.total_bytes, text, CELL);
}

static void device(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    text[0] = 0;
    if (row->report.on_gpu)
        show_bytes((double)report_largest(&row->report)->need.device_bytes, text, CELL);
}

static void zero(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    show_bytes(compare_zero_bytes(row, strategy), text, CELL);
}

static void sent(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    show_bytes((double)report_largest(&row->report)->sent_bytes, text, CELL);
}

static void volume(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    snprintf(text, CELL, "%.2f P", compare_volume(row));
}

static void step_time(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    text[0] = 0;
    if (row->report.forecast.ranks)
        show_time(row->report.forecast.step_s, text);
}

static void verdict(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    const struct memory_limits *limits = &row->report.limits;
    struct memory_limits lack = report_lack(&row->report, limits);
    size_t bytes = which ? lack.host_bytes : lack.device_bytes;
    snprintf(text, CELL, "fits");
    if (bytes)
        show_bytes((double)bytes, text, CELL);
    if (!(which ? limits->host_bytes : limits->device_bytes))
        text[0] = 0;
}

/* Write to a cell the sequences of the largest micro-batch, of training (which 0) or evaluation
 * (1). */
static void largest(const struct compare_row *row, int strategy, int which, char text[CELL])
{
    int64_t count = which ? row->largest_eval : row->largest;
    const struct memory_limits *limits = &row->report.limits;
    text[0] = 0;
    if (limits->device_bytes || limits->host_bytes)
        snprintf(text, CELL, "%s%lld", count == LARGEST_MOST ? ">=" : "", (long long)count);
}

static int width(const struct compare_row *row)
{
    int length = (int)strlen(row->name) + row->chosen;
    return (length > NARROW ? length : NARROW) + 1;
}

static void print_line(const struct compare *compare, const struct line *line, FILE *out)
{
    char text[CONFIG_STRATEGIES][CELL] = {{0}};
    int any = 0;
    for (int s = 0; s < CONFIG_STRATEGIES; s++)
        if (compare->row[s].made) {
            line->cell(&compare->row[s], s, line->which, text[s]);
            any |= text[s][0];
        }
    if (!any)
        return;
    fprintf(out, "%-14s", line->name);
    for (int s = 0; s < CONFIG_STRATEGIES; s++)
        if (compare->row[s].made)
            fprintf(out, "%*s", width(&compare->row[s]), text[s]);
    fprintf(out, "\n");
}

static void print_names(const struct compare *compare, FILE *out)
{
    fprintf(out, "\n%-14s", "a rank of");
    for (int s = 0; s < CONFIG_STRATEGIES; s++)
        if (compare->row[s].made)
            fprintf(out, "%*s%s", width(&compare->row[s]) - compare->row[s].chosen,
                    compare->row[s].name, compare->row[s].chosen ? "*" : "");
    fprintf(out, "\n");
}

void compare_print(const struct compare *compare, FILE *out)
{
    static const struct line after[] = {
        {.name = "total", .cell = total},
        {.name = "device memory", .cell = device},
        {.name = "short by", .cell = verdict, .which = 0},
        {.name = "node short by", .cell = verdict, .which = 1},
        {.name = "ZeRO's formula", .cell = zero},
        {.name = "sent a step", .cell = sent},
        {.name = "in parameters", .cell = volume},
        {.name = "largest micro", .cell = largest, .which = 0},
        {.name = "largest eval", .cell = largest, .which = 1},
        {.name = "a step", .cell = step_time},
    };
    print_names(compare, out);
    for (int p = 0; p < POOL_COUNT; p++)
        print_line(compare, &(struct line){.name = mem_pool_name(p), .cell = pool, .which = p},
                   out);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++)
        print_line(compare, &after[i], out);
    for (int s = 0; s < CONFIG_STRATEGIES; s++)
        if (!compare->row[s].made) {
            int column = fprintf(out, "no %s: ", compare->row[s].name);
            show_wrapped(out, column, 4, compare->row[s].why.text);
        }
}

static struct js *row_json(const struct compare_row *row, enum config_strategy strategy)
{
    struct js *js = js_object();
    struct memory_limits lack = {0};
    js_add_string(js, "strategy", row->name);
    js_add_bool(js, "chosen", row->chosen);
    if (!row->made) {
        js_add_string(js, "refused", row->why.text);
        return js;
    }
    report_rank_json(&row->report, report_largest(&row->report), js);
    js_add_real(js, "sent_in_parameters", compare_volume(row));
    if (row->report.forecast.ranks)
        js_add_real(js, "step_ms", 1e3 * row->report.forecast.step_s);
    js_add_int(js, "zero_formula_bytes", (int64_t)compare_zero_bytes(row, strategy));
    lack = report_lack(&row->report, &row->report.limits);
    if (row->report.limits.device_bytes || row->report.limits.host_bytes) {
        js_add_int(js, "largest_micro_batch", row->largest);
        js_add_int(js, "largest_eval_micro_batch", row->largest_eval);
    }
    if (row->report.limits.device_bytes)
        js_add_int(js, "short_bytes", (int64_t)lack.device_bytes);
    if (row->report.limits.host_bytes)
        js_add_int(js, "short_host_bytes", (int64_t)lack.host_bytes);
    return js;
}

struct js *compare_json(const struct compare *compare)
{
    struct js *js = js_array();
    for (int s = 0; s < CONFIG_STRATEGIES; s++)
        js_add(js, NULL, row_json(&compare->row[s], s));
    return js;
}
