/* schedule_list.c - append an action to a list, and write actions as text. */
#include "base/array.h"
#include "program/schedule_private.h"

void schedule_add(struct schedule_list *list, int stage, int micro, enum segment_phase phase)
{
    list->action = array_grow(list->action, list->count, &list->capacity, sizeof *list->action);
    list->action[list->count++] = (struct schedule_action){stage, micro, phase};
}

static char letter(enum segment_phase phase)
{
    static const char letters[PHASES] = {[PHASE_FORWARD] = 'F',
                                         [PHASE_BACKWARD] = 'B',
                                         [PHASE_BACKWARD_INPUT] = 'I',
                                         [PHASE_BACKWARD_WEIGHT] = 'W'};
    return letters[phase];
}

const char *schedule_text(const struct schedule_action *action, char text[SCHEDULE_TEXT])
{
    snprintf(text, SCHEDULE_TEXT, "%d%c%d", action->stage, letter(action->phase), action->micro);
    return text;
}

void schedule_write(const struct schedule *schedule, FILE *out)
{
    char text[SCHEDULE_TEXT];
    for (int rank = 0; rank < schedule->ranks; rank++) {
        int count;
        const struct schedule_action *action = schedule_actions(schedule, rank, &count);
        for (int a = 0; a < count; a++)
            fprintf(out, "%s%s", a ? "," : "", schedule_text(&action[a], text));
        fputc('\n', out);
    }
}
