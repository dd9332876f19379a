/* choices_show.c - the table of single changes, for people and for programs. */
#include <string.h>

#include "base/text.h"
#include "plan/choices.h"
#include "plan/show.h"

enum { CELL = 32 };

/* Write to a cell by how much a number of bytes changes, "+1.50 GiB" or "-3.00 MiB"; "" for
 * nothing. */
static void difference(int64_t bytes, int64_t as_is, char cell[CELL])
{
    double change = (double)(bytes - as_is);
    cell[0] = change < 0 ? '-' : '+';
    show_bytes(change < 0 ? -change : change, cell + 1, CELL - 1);
    if (bytes == as_is)
        cell[0] = 0;
}

/* The columns of numbers, and the name of the one before them. */
enum { NUMBERS = 7 };
static const char *const first_head = "a rank, with one change";
static const char *const heads[NUMBERS] = {"memory", "change",   "in host", "on disk",
                                           "sent",   "computed", "a step"};
static const int widths[NUMBERS] = {11, 12, 12, 12, 12, 9, 9};

struct table {
    char cell[CHOICES_MOST][NUMBERS][CELL];
    int shown[NUMBERS]; /* a column without a number is left out */
    int settings;       /* width of the first column */
};

static void fill_row(const struct choices_row *as_is, const struct choices_row *row,
                     char cell[NUMBERS][CELL])
{
    show_bytes((double)row->memory_bytes, cell[0], CELL);
    difference((int64_t)row->memory_bytes, (int64_t)as_is->memory_bytes, cell[1]);
    difference((int64_t)row->host_bytes, (int64_t)as_is->host_bytes, cell[2]);
    difference((int64_t)row->disk_bytes, (int64_t)as_is->disk_bytes, cell[3]);
    difference(row->sent_bytes, as_is->sent_bytes, cell[4]);
    cell[5][0] = cell[6][0] = 0;
    if (row->flops != as_is->flops)
        snprintf(cell[5], CELL, "%+.1f %%", 100 * (row->flops / as_is->flops - 1));
    double longer = row->step_s > 0 ? 100 * (row->step_s / as_is->step_s - 1) : 0;
    if (row->step_s > 0)
        snprintf(cell[6], CELL, "%+.*f %%", longer < 1000, longer);
}

static void fill(struct table *t, const struct choices *c)
{
    int left = SHOW_COLUMNS, longest = (int)strlen(first_head);
    for (int i = 0; i < c->count; i++) {
        fill_row(&c->as_is, &c->row[i], t->cell[i]);
        for (int n = 0; n < NUMBERS; n++)
            t->shown[n] |= t->cell[i][n][0] != 0;
        int length = (int)strlen(c->row[i].settings);
        longest = length > longest ? length : longest;
    }
    for (int n = 0; n < NUMBERS; n++)
        left -= t->shown[n] ? widths[n] : 0;
    t->settings = longest < left ? longest : left;
}

static void print_numbers(const struct table *t, const char *const *cell, FILE *out)
{
    char line[SHOW_COLUMNS + CELL] = "";
    for (int n = 0; n < NUMBERS; n++)
        if (t->shown[n])
            text_append(line, sizeof line, " %*s", widths[n] - 1, cell[n]);
    size_t used = strlen(line);
    while (used && line[used - 1] == ' ')
        line[--used] = 0;
    fprintf(out, "%s\n", line);
}

/* Settings that are longer than their column are printed on lines of their own, one setting each,
 * the second and later ones indented; the numbers are on the last line. */
static void print_settings(const struct table *t, const char *settings, FILE *out)
{
    char text[SETTINGS_BYTES], *rest = text, *one;
    int whole = (int)strlen(settings) <= t->settings, indent = 0;
    snprintf(text, sizeof text, "%s", settings);
    while ((one = whole ? text : strsep(&rest, " "))) {
        int length = indent + (int)strlen(one), last = whole || !rest;
        fprintf(out, "%*s%s", indent, "", one);
        if (!last || length > t->settings)
            fprintf(out, "\n");
        if (last) {
            fprintf(out, "%*s", length > t->settings ? t->settings : t->settings - length, "");
            return;
        }
        indent = 1;
    }
}

void choices_print(const struct choices *c, FILE *out)
{
    struct table t = {0};
    if (!c->count)
        return;
    fill(&t, c);
    fprintf(out, "\n%-*s", t.settings, first_head);
    print_numbers(&t, heads, out);
    for (int i = 0; i < c->count; i++) {
        const char *cell[NUMBERS];
        for (int n = 0; n < NUMBERS; n++)
            cell[n] = t.cell[i][n];
        print_settings(&t, c->row[i].settings, out);
        print_numbers(&t, cell, out);
    }
}

struct js *choices_json(const struct choices *c)
{
    struct js *all = js_array();
    for (int i = 0; i < c->count; i++) {
        const struct choices_row *row = &c->row[i];
        struct js *js = js_object();
        js_add_string(js, "settings", row->settings);
        js_add_int(js, "memory_bytes", (int64_t)row->memory_bytes);
        js_add_int(js, "host_bytes", (int64_t)row->host_bytes);
        js_add_int(js, "disk_bytes", (int64_t)row->disk_bytes);
        js_add_int(js, "sent_bytes_per_step", row->sent_bytes);
        js_add_real(js, "computed_flops_per_step", row->flops);
        if (row->step_s > 0)
            js_add_real(js, "step_ms", 1e3 * row->step_s);
        js_add(all, NULL, js);
    }
    return all;
}
