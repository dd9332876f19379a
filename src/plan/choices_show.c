/* choices_show.c - the table of single changes, for people and for programs. */
#include <string.h>

#include "plan/choices.h"
#include "plan/show.h"

enum { CELL = 32 };

/* "+1.50 GiB", "-3.00 MiB", or "" for none. */
static const char *difference(int64_t bytes, char text[CELL])
{
    text[0] = bytes < 0 ? '-' : '+';
    show_bytes(bytes < 0 ? -(double)bytes : (double)bytes, text + 1, CELL - 1);
    return bytes ? text : "";
}

/* The share of computing, or "" where it is the same. */
static const char *computed(double flops, double as_is, char text[CELL])
{
    snprintf(text, CELL, flops == as_is ? "" : "%+.1f %%", 100 * (flops / as_is - 1));
    return text;
}

static void print_cells(const char *const *cell, const int *width, int cells, FILE *out)
{
    while (cells && !cell[cells - 1][0])
        cells--;
    for (int i = 0; i < cells; i++)
        fprintf(out, "%*s%s", width[i], cell[i], i + 1 < cells ? " " : "\n");
}

static void print_row(const struct choices *c, const struct choice_row *row, const int *width,
                      FILE *out)
{
    char text[6][CELL];
    int64_t memory = (int64_t)row->memory_bytes - (int64_t)c->as_is.memory_bytes;
    int64_t host = (int64_t)row->host_bytes - (int64_t)c->as_is.host_bytes;
    int64_t disk = (int64_t)row->disk_bytes - (int64_t)c->as_is.disk_bytes;
    const char *const cell[] = {
        row->settings,
        show_bytes((double)row->memory_bytes, text[0], CELL),
        difference(memory, text[1]),
        difference(host, text[2]),
        difference(disk, text[3]),
        difference(row->sent_bytes - c->as_is.sent_bytes, text[4]),
        computed(row->flops, c->as_is.flops, text[5]),
    };
    print_cells(cell, width, 7, out);
}

void choices_print(const struct choices *c, FILE *out)
{
    static const char *const head[] = {
        "a rank, with one change", "memory", "change", "in host", "on disk", "sent", "computed"};
    int width[] = {-(int)strlen(head[0]), 11, 12, 12, 12, 12, 9};
    if (!c->count)
        return;
    for (int i = 0; i < c->count; i++)
        if ((int)strlen(c->row[i].settings) > -width[0])
            width[0] = -(int)strlen(c->row[i].settings);
    fprintf(out, "\n");
    print_cells(head, width, 7, out);
    for (int i = 0; i < c->count; i++)
        print_row(c, &c->row[i], width, out);
}

struct js *choices_json(const struct choices *c)
{
    struct js *all = js_array();
    for (int i = 0; i < c->count; i++) {
        const struct choice_row *row = &c->row[i];
        struct js *js = js_object();
        js_add_string(js, "settings", row->settings);
        js_add_int(js, "memory_bytes", (int64_t)row->memory_bytes);
        js_add_int(js, "host_bytes", (int64_t)row->host_bytes);
        js_add_int(js, "disk_bytes", (int64_t)row->disk_bytes);
        js_add_int(js, "sent_bytes_per_step", row->sent_bytes);
        js_add_real(js, "computed_flops_per_step", row->flops);
        js_add(all, NULL, js);
    }
    return all;
}
