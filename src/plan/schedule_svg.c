/* schedule_svg.c - see schedule_svg.h.
 *
 *   heading
 *   legend
 *   rank 0 |[0][1][2]......[0][1]    |  27.3 %     a row of boxes for each rank, numbers are
 *   rank 1 |   [0][0][1][1]          |  27.3 %     micro-batches; between the rows, messages
 *           0        1        2 TFLOP
 *   caption
 *
 * Where a rank has several stages, the later ones are paler.  Every box has its action, "2F0", as
 * the text that a browser shows under the pointer.
 */
#include "plan/schedule_svg.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/text.h"
#include "plan/svg.h"

enum {
    LEFT = 70,  /* before the rows: names of ranks */
    RIGHT = 70, /* after them: what ranks wait */
    LEGEND = 38,
    TOP = 84,   /* above them: heading, legend, a heading of the right column */
    BELOW = 84, /* under them: axis, caption */
    ACTION_WIDTH = 18,
    LEAST_WIDTH = 900, /* of the rows */
    MOST_WIDTH = 8000
};

/* The picture's sizes, in pixels. */
struct picture {
    const struct timeline *timeline;
    const struct schedule *schedule;
    FILE *out;
    int row, gap, font; /* heights: of a row, between two, of the letters in boxes */
    int width;          /* of the rows */
    int *source;        /* by stage, forward or not, and micro-batch: the action that others read */
};

/* How the actions of a phase look. */
static const struct look {
    const char *style, *colour, *meaning;
} looks[PHASES] = {
    [PHASE_FORWARD] = {"f", "#56b4e9", "forward"},
    [PHASE_BACKWARD] = {"b", "#e8743b", "backward"},
    [PHASE_BACKWARD_INPUT] = {"i", "#f0b030", "input backward"},
    [PHASE_BACKWARD_WEIGHT] = {"w", "#35b58a", "weight backward"},
};

static double x_of(const struct picture *p, int64_t time)
{
    return LEFT + (double)time * p->width / (double)p->timeline->makespan;
}

static int y_of(const struct picture *p, int rank)
{
    return TOP + rank * (p->row + p->gap);
}

static struct picture measure(const struct timeline *timeline, FILE *out)
{
    const struct schedule *s = timeline->schedule;
    struct picture p = {.timeline = timeline, .schedule = s, .out = out};
    int most = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        int actions = s->first[rank + 1] - s->first[rank];
        most = actions > most ? actions : most;
    }
    p.row = s->ranks <= 16 ? 26 : s->ranks <= 32 ? 20 : 16;
    p.gap = p.row / 3;
    p.font = p.row <= 16 ? 9 : 11;
    p.width = most < MOST_WIDTH / ACTION_WIDTH ? most * ACTION_WIDTH : MOST_WIDTH;
    p.width = p.width < LEAST_WIDTH ? LEAST_WIDTH : p.width;
    return p;
}

static void print_heading(const struct picture *p, const char *name)
{
    const struct schedule *s = p->schedule;
    char text[400];
    snprintf(text, sizeof text,
             "%s: %d rank%s, %d stage%s, %d micro-batch%s; ranks wait %.1f %% of the step", name,
             s->ranks, s->ranks > 1 ? "s" : "", s->stages, s->stages > 1 ? "s" : "", s->micros,
             s->micros > 1 ? "es" : "", 100 * timeline_idle_mean(p->timeline));
    svg_title(p->out, text);
    fputc('\n', p->out);
    svg_text(p->out, LEFT, 24, " class=\"h\"", text);
}

static void print_legend(const struct picture *p)
{
    const struct schedule *s = p->schedule;
    double x = LEFT;
    char sign[80];
    for (int phase = 0; phase < PHASES; phase++) {
        int is_part = phase == PHASE_BACKWARD_INPUT || phase == PHASE_BACKWARD_WEIGHT;
        if (!looks[phase].style || (phase != PHASE_FORWARD && is_part != (s->splits_backward != 0)))
            continue;
        svg_key(p->out, &x, LEGEND, svg_box(looks[phase].style, sign), looks[phase].meaning);
    }
    svg_key(p->out, &x, LEGEND, svg_box("n", sign), "waits");
    if (s->ranks > 1) {
        svg_key(p->out, &x, LEGEND, "<path class=\"u\" d=\"M0 2L18 11\"/>", "activation sent");
        svg_key(p->out, &x, LEGEND, "<path class=\"d\" d=\"M0 11L18 2\"/>", "gradient sent");
    }
    if (s->stages > s->ranks)
        svg_key(p->out, &x, LEGEND,
                "<rect class=\"f\" width=\"18\" height=\"13\" fill-opacity=\"0.45\"/>",
                "paler: later stages of a rank");
}

/* ---- rows ---- */

/* Return which of its rank's stages a stage is; *count: how many that rank has. */
static int stage_among(const struct schedule *s, int stage, int *count)
{
    int at = 0;
    *count = 0;
    for (int other = 0; other < s->stages; other++)
        if (s->rank_of[other] == s->rank_of[stage]) {
            at = other == stage ? *count : at;
            ++*count;
        }
    return at;
}

static double opacity_of(const struct schedule *s, int stage)
{
    int count, at = stage_among(s, stage, &count);
    return count > 1 ? 1 - 0.55 * at / (count - 1) : 1;
}

static char letter_of(enum segment_phase phase)
{
    return (char)(looks[phase].style[0] - 'a' + 'A');
}

static void print_box(const struct picture *p, int rank, int a)
{
    const struct schedule_action *action = &p->schedule->action[a];
    double x = x_of(p, p->timeline->start[a]), end = x_of(p, timeline_end(p->timeline, a));
    double opacity = opacity_of(p->schedule, action->stage);
    int digits = snprintf(NULL, 0, "%d", action->micro);
    fprintf(p->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"",
            looks[action->phase].style, x, y_of(p, rank), end - x, p->row);
    if (opacity < 1)
        fprintf(p->out, " fill-opacity=\"%.2f\"", opacity);
    fprintf(p->out, "><title>%d%c%d</title></rect>\n", action->stage, letter_of(action->phase),
            action->micro);
    if (end - x >= 0.65 * p->font * digits + 2)
        fprintf(p->out, "<text class=\"m\" x=\"%.1f\" y=\"%d\">%d</text>\n", (x + end) / 2,
                y_of(p, rank) + p->row / 2 + p->font / 3, action->micro);
}

static void print_row(const struct picture *p, int rank)
{
    const struct schedule *s = p->schedule;
    int y = y_of(p, rank), base = y + p->row / 2 + 4;
    char text[32];
    fprintf(p->out, "<rect class=\"n\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT, y,
            p->width, p->row);
    for (int a = s->first[rank]; a < s->first[rank + 1]; a++)
        print_box(p, rank, a);
    snprintf(text, sizeof text, "rank %d", rank);
    svg_text(p->out, LEFT - 8, base, " class=\"e\"", text);
    snprintf(text, sizeof text, "%.1f %%", 100 * timeline_idle(p->timeline, rank));
    svg_text(p->out, LEFT + p->width + RIGHT - 8, base, " class=\"e\"", text);
}

/* ---- messages ---- */

static int *source_of(const struct picture *p, int stage, int is_forward, int micro)
{
    return &p->source[(stage * 2 + is_forward) * p->schedule->micros + micro];
}

static void find_sources(struct picture *p)
{
    const struct schedule *s = p->schedule;
    p->source = array_make((size_t)s->stages * 2 * (size_t)s->micros, sizeof *p->source);
    for (int a = 0; a < s->first[s->ranks]; a++) {
        const struct schedule_action *action = &s->action[a];
        if (action->phase != PHASE_BACKWARD_WEIGHT)
            *source_of(p, action->stage, action->phase == PHASE_FORWARD, action->micro) = a;
    }
}

/* Draw the line of a message that action a reads, if it comes from another rank: from the end of
 * the action that makes it, in that rank's row, to the start of a. */
static void print_message(const struct picture *p, int a, int is_forward)
{
    const struct schedule *s = p->schedule;
    const struct schedule_action *action = &s->action[a];
    int stage = action->stage + (is_forward ? -1 : 1);
    if (action->phase == PHASE_BACKWARD_WEIGHT || (action->phase == PHASE_FORWARD) != is_forward ||
        stage < 0 || stage == s->stages || s->rank_of[stage] == s->rank_of[action->stage])
        return;
    int from = s->rank_of[stage], to = s->rank_of[action->stage];
    int source = *source_of(p, stage, is_forward, action->micro);
    fprintf(p->out, "M%.1f %dL%.1f %d\n", x_of(p, timeline_end(p->timeline, source)),
            y_of(p, from) + (from < to ? p->row : 0), x_of(p, p->timeline->start[a]),
            y_of(p, to) + (from < to ? 0 : p->row));
}

static void print_messages(const struct picture *p, int is_forward)
{
    const struct schedule *s = p->schedule;
    if (s->ranks == 1)
        return;
    fprintf(p->out, "<path class=\"%s\" d=\"", is_forward ? "u" : "d");
    for (int a = 0; a < s->first[s->ranks]; a++)
        print_message(p, a, is_forward);
    fputs("\"/>\n", p->out);
}

/* ---- axis and caption ---- */

static void print_axis(const struct picture *p)
{
    static const char *const units[] = {"kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
    double last = (double)p->timeline->makespan, scale = 1;
    int unit = 0;
    for (; last / scale >= 1000 && unit < 5; unit++)
        scale *= 1000;
    svg_scale(p->out, LEFT, p->width, y_of(p, p->schedule->ranks) + 4, last, scale, units[unit]);
}

static void print_caption(const struct picture *p)
{
    int y = y_of(p, p->schedule->ranks) + 46;
    svg_text(p->out, LEFT, y, "",
             "Estimated from operations, not measured: forward takes the floating point "
             "operations of its stage's units, the input and the weight part");
    svg_text(p->out, LEFT, y + 16, "",
             "of backward as many each; transfers, recomputation, the optimizer's step and sums "
             "over other ranks are left out.  Numbers are micro-batches.");
}

static const char *styles_of(const struct picture *p, char *text, size_t size)
{
    text[0] = 0;
    text_append(text, size,
                ".m{font-size:%dpx;text-anchor:middle;pointer-events:none}\n"
                ".u,.d{fill:none;stroke-width:0.8;stroke-opacity:0.75}"
                ".u{stroke:#0060a0}.d{stroke:#a03080}\n",
                p->font);
    for (int phase = 0; phase < PHASES; phase++)
        if (looks[phase].style)
            text_append(text, size, ".%s{fill:%s;stroke:#fff;stroke-width:0.5}", looks[phase].style,
                        looks[phase].colour);
    return text;
}

void schedule_svg_print(const struct timeline *timeline, const char *name, FILE *out)
{
    struct picture p = measure(timeline, out);
    char styles[640];
    int width = LEFT + p.width + RIGHT, height = y_of(&p, p.schedule->ranks) + BELOW;
    svg_begin(out, width, height, styles_of(&p, styles, sizeof styles));
    print_heading(&p, name);
    print_legend(&p);
    svg_text(out, width - 8, TOP - 8, " class=\"e\"", "waits");
    for (int rank = 0; rank < p.schedule->ranks; rank++)
        print_row(&p, rank);
    find_sources(&p);
    print_messages(&p, 1);
    print_messages(&p, 0);
    free(p.source);
    print_axis(&p);
    print_caption(&p);
    svg_end(out);
}
