/* step_svg.c - see step_svg.h.
 *
 *   heading
 *   legend
 *   rank 0   [forward][forward]..[backward      ]     what the compute stream does; gaps are waits
 *     gather [GATHER]   [GATHER]                      the other streams, in the colours of
 *     reduce                    [REDUCE]              transfers
 *            0       10       20 ms
 *
 * Every box has its instruction, time and bytes as the text that a browser shows under the pointer.
 */
#include "plan/step_svg.h"

#include "base/text.h"
#include "base/whole_file.h"
#include "plan/show.h"
#include "plan/svg.h"

enum {
    LEFT = 90,
    RIGHT = 90,
    LEGEND = 38,
    TOP = 76,
    BELOW = 40,
    ROW = 24,      /* height of the compute stream's row */
    NARROW = 8,    /* of another's */
    BETWEEN = 2,   /* rows of a rank */
    GAP = 12,      /* between ranks */
    RUN_WIDTH = 4, /* of what the compute stream runs, in the mean */
    LEAST_WIDTH = 1000,
    MOST_WIDTH = 8000 /* of the rows */
};

struct picture {
    const struct record *record;
    FILE *out;
    int width;         /* of the rows */
    int used[STREAMS]; /* streams on which something runs */
    int kinds;         /* bits of enum play_kind that occur */
};

static const struct look {
    const char *style, *colour;
} looks[PLAY_KINDS] = {
    [PLAY_FORWARD] = {"f", "#56b4e9"},    [PLAY_BACKWARD] = {"b", "#e8743b"},
    [PLAY_UPDATE] = {"w", "#35b58a"},     [PLAY_GATHER] = {"g", "#7a5fb0"},
    [PLAY_REDUCE] = {"r", "#c0397a"},     [PLAY_ALL_REDUCE] = {"s", "#8a2f5a"},
    [PLAY_ALL_TO_ALL] = {"t", "#b8860b"}, [PLAY_MESSAGE] = {"m", "#1f6f8b"},
    [PLAY_COPY] = {"k", "#777777"},
};

/* ---- what there is to draw ---- */

static struct picture measure(const struct record *record, FILE *out)
{
    struct picture p = {.record = record, .out = out};
    int most = 0;
    for (int r = 0; r < record->ranks; r++) {
        const struct trace *trace = &record->rank[r].trace;
        int runs = 0;
        for (int i = 0; i < trace->events; i++)
            if (record->rank[r].kind[i] < PLAY_KINDS) {
                p.used[trace->event[i].lane] = 1;
                p.kinds |= 1 << record->rank[r].kind[i];
                runs += trace->event[i].lane == STREAM_COMPUTE;
            }
        most = runs > most ? runs : most;
    }
    p.width = most < MOST_WIDTH / RUN_WIDTH ? most * RUN_WIDTH : MOST_WIDTH;
    p.width = p.width < LEAST_WIDTH ? LEAST_WIDTH : p.width;
    p.used[STREAM_COMPUTE] = 1;
    return p;
}

static int height_of(const struct picture *p)
{
    int height = ROW;
    for (int s = 0; s < STREAMS; s++)
        height += s != STREAM_COMPUTE && p->used[s] ? NARROW + BETWEEN : 0;
    return height;
}

static double x_of(const struct picture *p, int64_t ns)
{
    return LEFT + (double)ns * p->width / (1e9 * p->record->step_s);
}

/* ---- boxes ---- */

/* Events of one kind that are drawn as one. */
struct drawn {
    const struct trace_event *first;
    enum play_kind kind;
    int events;
    int64_t end_ns, bytes;
};

static void print_drawn(const struct picture *p, const struct drawn *d, int y, int height)
{
    char text[240] = "", time[32], bytes[32];
    if (!d->events)
        return;
    double x = x_of(p, d->first->start_ns), end = x_of(p, d->end_ns);
    text_append(text, sizeof text, "%s", d->first->name);
    if (d->events > 1)
        text_append(text, sizeof text, " and %d more", d->events - 1);
    text_append(text, sizeof text, ": %s",
                show_time(1e-9 * (double)(d->end_ns - d->first->start_ns), time));
    if (d->bytes)
        text_append(text, sizeof text, ", %s", show_bytes((double)d->bytes, bytes, sizeof bytes));
    fprintf(p->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">",
            looks[d->kind].style, x, y, end - x, height);
    svg_title(p->out, text);
    fputs("</rect>\n", p->out);
}

/* Is the event drawn in the box, because either is narrow and nothing is to be seen between? */
static int joins(const struct picture *p, const struct drawn *d, enum play_kind kind,
                 const struct trace_event *event)
{
    if (!d->events || kind != d->kind)
        return 0;
    double end = x_of(p, d->end_ns), from = x_of(p, event->start_ns);
    double own = end - x_of(p, d->first->start_ns), next = x_of(p, event->end_ns) - from;
    return from - end < 0.25 && (own < 1 || next < 1);
}

static void print_lane(const struct picture *p, const struct record_rank *rank, int lane, int y,
                       int height)
{
    struct drawn d = {0};
    for (int i = 0; i < rank->trace.events; i++) {
        const struct trace_event *event = &rank->trace.event[i];
        if (event->lane != lane || rank->kind[i] == PLAY_KINDS)
            continue;
        if (!joins(p, &d, rank->kind[i], event)) {
            print_drawn(p, &d, y, height);
            d = (struct drawn){.first = event, .kind = rank->kind[i]};
        }
        d.events++;
        d.end_ns = event->end_ns > d.end_ns ? event->end_ns : d.end_ns;
        d.bytes += event->bytes;
    }
    print_drawn(p, &d, y, height);
}

/* ---- rows ---- */

/* The share of the step in which the compute stream runs nothing. */
static double waits_of(const struct picture *p, const struct record_rank *rank)
{
    int64_t busy = 0;
    for (int i = 0; i < rank->trace.events; i++)
        if (rank->trace.event[i].lane == STREAM_COMPUTE)
            busy += rank->trace.event[i].end_ns - rank->trace.event[i].start_ns;
    return 1 - 1e-9 * (double)busy / p->record->step_s;
}

static void print_rank(const struct picture *p, const struct record_rank *rank, int y)
{
    char text[48];
    fprintf(p->out, "<rect class=\"n\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT, y,
            p->width, ROW);
    snprintf(text, sizeof text, "rank %d", rank->rank);
    svg_text(p->out, LEFT - 8, y + ROW / 2 + 4, " class=\"e\"", text);
    snprintf(text, sizeof text, "%.1f %%", 100 * waits_of(p, rank));
    svg_text(p->out, LEFT + p->width + RIGHT - 8, y + ROW / 2 + 4, " class=\"e\"", text);
    print_lane(p, rank, STREAM_COMPUTE, y, ROW);
    y += ROW + BETWEEN;
    for (int s = 0; s < STREAMS; s++) {
        if (s == STREAM_COMPUTE || !p->used[s])
            continue;
        svg_text(p->out, LEFT - 8, y + NARROW, " class=\"l\"", program_stream_name(s));
        print_lane(p, rank, s, y, NARROW);
        y += NARROW + BETWEEN;
    }
}

/* ---- the picture ---- */

static void print_legend(const struct picture *p)
{
    double x = LEFT;
    char sign[80];
    for (int kind = 0; kind < PLAY_RANKS; kind++)
        if (p->kinds >> kind & 1)
            svg_key(p->out, &x, LEGEND, svg_box(looks[kind].style, sign), play_kind_name(kind));
    svg_key(p->out, &x, LEGEND, svg_box("n", sign), "computing waits");
}

static const char *styles(char *text, size_t size)
{
    text[0] = 0;
    text_append(text, size, ".l{font-size:9px;text-anchor:end;fill:#666}\n");
    for (int kind = 0; kind < PLAY_RANKS; kind++)
        text_append(text, size, ".%s{fill:%s}", looks[kind].style, looks[kind].colour);
    return text;
}

void step_svg_print(const struct record *record, const char *heading, FILE *out)
{
    struct picture p = measure(record, out);
    char text[640];
    int each = height_of(&p) + GAP;
    int width = LEFT + p.width + RIGHT, bottom = TOP + record->ranks * each;
    svg_begin(out, width, bottom + BELOW, styles(text, sizeof text));
    svg_title(out, heading);
    fputc('\n', out);
    svg_text(out, LEFT, 24, " class=\"h\"", heading);
    print_legend(&p);
    svg_text(out, width - 8, TOP - 8, " class=\"e\"", "waits");
    for (int r = 0; r < record->ranks; r++)
        print_rank(&p, &record->rank[r], TOP + r * each);
    svg_scale(out, LEFT, p.width, bottom, 1e3 * record->step_s, 1, "ms");
    svg_end(out);
}

int step_svg_write(const struct record *record, const char *heading, const char *path,
                   struct error *err)
{
    struct whole_file file;
    if (whole_file_begin(&file, path, err))
        return -1;
    step_svg_print(record, heading, file.out);
    return whole_file_end(&file, WHOLE_FILE_REPORT, err);
}
