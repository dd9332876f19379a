/* search_show.c - what a search found, for people and for programs. */
#include "plan/search.h"
#include "plan/show.h"

void search_print(const struct search *s, const struct search_request *request, FILE *out)
{
    char time[32], bytes[32];
    fprintf(out,
            "%d layouts of %d ranks on %s with a global batch of %lld: %d plans, %d of them too "
            "large\n",
            s->candidates, request->ranks, request->machine->name,
            (long long)request->config->train.global_batch, s->planned, s->too_large);
    for (int i = 0; i < s->rows; i++) {
        const struct search_row *row = &s->row[i];
        size_t takes = row->takes.device_bytes ? row->takes.device_bytes : row->takes.host_bytes;
        fprintf(out, "\n%2d  %s a step", i + 1, show_time(row->step_s, time));
        if (i)
            fprintf(out, " (+%.1f %%)", 100 * (row->step_s / s->row[0].step_s - 1));
        fprintf(out, ", %.0f tokens/s", row->tokens_per_s);
        if (row->mfu > 0)
            fprintf(out, ", MFU %.1f %%", 100 * row->mfu);
        fprintf(out, ", %s a rank%s%s\n    ", show_bytes((double)takes, bytes, sizeof bytes),
                row->why[0] ? "; " : "", row->why);
        show_wrapped(out, 4, 4, row->settings);
    }
}

struct js *search_json(const struct search *s)
{
    struct js *js = js_object(), *rows = js_array();
    js_add_int(js, "candidates", s->candidates);
    js_add_int(js, "planned", s->planned);
    js_add_int(js, "too_large", s->too_large);
    for (int i = 0; i < s->rows; i++) {
        const struct search_row *row = &s->row[i];
        struct js *one = js_object();
        js_add_string(one, "settings", row->settings);
        js_add_real(one, "step_ms", 1e3 * row->step_s);
        js_add_real(one, "tokens_per_s", row->tokens_per_s);
        js_add_real(one, "mfu_causal", row->mfu);
        js_add_int(one, "device_bytes", (int64_t)row->takes.device_bytes);
        js_add_int(one, "host_bytes", (int64_t)row->takes.host_bytes);
        if (row->why[0])
            js_add_string(one, "why", row->why);
        js_add(rows, NULL, one);
    }
    js_add(js, "row", rows);
    return js;
}
