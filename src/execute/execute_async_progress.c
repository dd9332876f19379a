/* execute_async_progress.c - how far the steps on a GPU are, by the events after their
 * instructions.
 */
#include "execute/execute_async.h"

struct async_program *async_program(const struct executor *x, const struct program *program)
{
    struct async *a = x->async;
    for (int i = 0; i < a->programs; i++)
        if (a->program[i].program == program)
            return &a->program[i];
    return NULL;
}

int async_first_open(const struct executor *x, const struct async_waited *w, int from)
{
    struct device_event *const *event = async_program(x, w->program)->event[w->slot];
    while (from < w->end && (!event[from] || device_event_done(x->device, event[from], NULL) > 0))
        from++;
    return from;
}

/* The step of a slot: being started, under way, or none (program NULL). */
static struct async_waited step_of_slot(const struct async *a, int slot)
{
    const struct program *program = a->under_way[slot];
    if (a->issuing && slot == a->slot)
        return (struct async_waited){a->issuing, slot, a->issued};
    return (struct async_waited){program, slot, program ? program->instrs : 0};
}

int64_t async_progress(void *arg)
{
    const struct executor *x = arg;
    struct async *a = x->async;
    int64_t sum = 0;
    for (int slot = 0; slot < MEMORY_STEPS; slot++) {
        const struct async_waited w = step_of_slot(a, slot);
        if (w.program)
            a->ended[slot] = async_first_open(x, &w, a->ended[slot]);
        sum += a->ended[slot];
    }
    return sum;
}
