/* scaler.c - see scaler.h. */
#include "train/scaler.h"

#include <math.h>

struct scaler scaler_begin(const struct config *config)
{
    const struct config_loss_scale *c = &config->train.loss_scale;
    struct scaler scaler = {.scale = 1};
    if (config->precision != PRECISION_FP16)
        return scaler;
    return (struct scaler){
        .active = 1,
        .dynamic = c->fixed <= 0,
        .scale = c->fixed > 0 ? c->fixed : ldexp(1, (int)c->dynamic.initial_power),
        .least = c->dynamic.least,
        .window = c->dynamic.window,
        .hysteresis = (int)c->dynamic.hysteresis,
        .spare = (int)c->dynamic.hysteresis,
    };
}

void scaler_resume(struct scaler *scaler, const struct scaler *saved)
{
    scaler->skipped = saved->skipped;
    if (!scaler->dynamic || !saved->dynamic)
        return;
    scaler->scale = fmax(saved->scale, scaler->least);
    scaler->finite = saved->finite;
    scaler->spare = saved->spare < scaler->hysteresis ? saved->spare : scaler->hysteresis;
}

static void shrink(struct scaler *scaler)
{
    scaler->finite = 0;
    if (scaler->spare > 1)
        scaler->spare--;
    else
        scaler->scale = fmax(scaler->scale / 2, scaler->least);
}

void scaler_update(struct scaler *scaler, int overflowed)
{
    if (!scaler->active)
        return;
    scaler->skipped += overflowed;
    if (!scaler->dynamic)
        return;
    if (overflowed) {
        shrink(scaler);
    } else if (++scaler->finite >= scaler->window) {
        scaler->finite = 0;
        scaler->scale *= 2;
        scaler->spare = scaler->hysteresis;
    }
}

int scaler_at_end(const struct scaler *scaler)
{
    return !scaler->dynamic || (scaler->spare <= 1 && scaler->scale <= scaler->least);
}
