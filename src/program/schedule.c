/* schedule.c - the table of schedules: how each row orders the actions of a stage (schedule.h). */
#include "program/schedule.h"

struct list {
    const struct schedule_place *place;
    struct schedule_action *action;
    int count;
};

static void add(struct list *list, enum segment_phase phase, int micro)
{
    list->action[list->count++] = (struct schedule_action){list->place->stage, micro, phase};
}

static int list_naive(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    for (int m = 0; m < place->micros; m++) {
        add(&list, PHASE_FORWARD, m);
        add(&list, PHASE_BACKWARD, m);
    }
    return list.count;
}

static int list_gpipe(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    for (int m = 0; m < place->micros; m++)
        add(&list, PHASE_FORWARD, m);
    for (int m = 0; m < place->micros; m++)
        add(&list, PHASE_BACKWARD, m);
    return list.count;
}

/* Micro-batches that a stage is ahead in forward: those that the stages behind it hold. */
static int ahead_of(const struct schedule_place *place)
{
    int behind = place->stages - 1 - place->stage;
    return behind < place->micros ? behind : place->micros;
}

static int list_1f1b(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    int ahead = ahead_of(place);
    for (int m = 0; m < ahead; m++)
        add(&list, PHASE_FORWARD, m);
    for (int m = 0; m < place->micros; m++) {
        if (m + ahead < place->micros)
            add(&list, PHASE_FORWARD, m + ahead);
        add(&list, PHASE_BACKWARD, m);
    }
    return list.count;
}

/* Qi et al. 2023 (zero bubble pipeline parallelism, H1): as 1F1B, but a stage puts the weight parts
 * off by as many micro-batches as there are stages before it.  They fill the time in which it would
 * wait, and every stage holds as many micro-batches as the first one of 1F1B. */
static int list_zb_h1(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    int ahead = ahead_of(place);
    for (int m = 0; m < ahead; m++)
        add(&list, PHASE_FORWARD, m);
    for (int m = 0; m < place->micros + place->stage; m++) {
        if (m + ahead < place->micros)
            add(&list, PHASE_FORWARD, m + ahead);
        if (m < place->micros)
            add(&list, PHASE_BACKWARD_INPUT, m);
        if (m >= place->stage)
            add(&list, PHASE_BACKWARD_WEIGHT, m - place->stage);
    }
    return list.count;
}

const struct schedule *schedule_row(enum config_pipeline_schedule name)
{
    static const struct schedule rows[] = {
        [PIPELINE_NAIVE] = {.list = list_naive},
        [PIPELINE_GPIPE] = {.list = list_gpipe, .splits_loss = 1},
        [PIPELINE_1F1B] = {.list = list_1f1b},
        [PIPELINE_ZB_H1] = {.list = list_zb_h1, .splits_loss = 1, .splits_backward = 1},
    };
    return &rows[name];
}
