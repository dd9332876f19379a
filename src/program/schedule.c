/* schedule.c - the table of schedules, and the actions of a stage by a row of it (schedule.h).
 *
 * In every row forward is some micro-batches ahead of backward, and weight parts, where they are
 * actions of their own, are some behind it: rows differ in these two numbers.
 */
#include "program/schedule.h"

/* Micro-batches that a stage is ahead in forward. */
static int ahead_of(const struct schedule *schedule, const struct schedule_place *place)
{
    int behind = place->stages - 1 - place->stage;
    switch (schedule->ahead) {
    case AHEAD_ALL: return place->micros;
    case AHEAD_STAGES: return behind < place->micros ? behind : place->micros;
    default: return 0;
    }
}

int schedule_list(const struct schedule *schedule, const struct schedule_place *place,
                  struct schedule_action *action)
{
    int count = 0, ahead = ahead_of(schedule, place), micros = place->micros;
    int late = schedule->splits_backward ? place->stage : 0;
    enum segment_phase back = schedule->splits_backward ? PHASE_BACKWARD_INPUT : PHASE_BACKWARD;
    for (int m = -ahead; m < micros + late; m++) {
        if (m + ahead < micros)
            action[count++] = (struct schedule_action){place->stage, m + ahead, PHASE_FORWARD};
        if (m >= 0 && m < micros)
            action[count++] = (struct schedule_action){place->stage, m, back};
        if (schedule->splits_backward && m >= late)
            action[count++] =
                (struct schedule_action){place->stage, m - late, PHASE_BACKWARD_WEIGHT};
    }
    return count;
}

const struct schedule *schedule_row(enum config_pipeline_schedule name)
{
    static const struct schedule rows[] = {
        [PIPELINE_NAIVE] = {.ahead = AHEAD_NONE},
        [PIPELINE_GPIPE] = {.ahead = AHEAD_ALL, .splits_loss = 1},
        [PIPELINE_1F1B] = {.ahead = AHEAD_STAGES},
        [PIPELINE_ZB_H1] = {.ahead = AHEAD_STAGES, .splits_loss = 1, .splits_backward = 1},
    };
    return &rows[name];
}
