/* session_products.c - see session_products.h. */
#include "train/session_products.h"

#include "train/lr_schedule.h"
#include "train/session.h"

int session_note_products(struct session *s, struct error *err)
{
    const struct optimizer_rule rule = lr_schedule_rule(&s->config.train, 1);
    return executor_note_products(s->executor, s->programs, s->program_count, &rule, err);
}
