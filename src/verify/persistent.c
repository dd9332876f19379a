/* persistent.c - see persistent.h. */
#include "verify/persistent.h"

/* ---- flats ---- */

/* A buffer (-1: there is none) has so many bytes. */
static int check_size(const struct program *program, int b, size_t bytes, struct error *err)
{
    if (b < 0 || program->buffer[b].bytes == bytes)
        return 0;
    return error_set(err, "verify: wrong size: buffer \"%s\" has %zu bytes, not %zu",
                     program->buffer[b].name, program->buffer[b].bytes, bytes);
}

static int check_flat(const struct program *program, int f, struct error *err)
{
    const struct state *state = program->state;
    const struct flat *flat = &program->units->flat[f];
    const struct state_flat *own = &state->flat[f];
    const struct optimizer *optimizer = optimizer_row(flat->optimizer);
    enum dtype dtype = program->units->request.dtype;
    size_t grad = dtype_bytes(flat->grad_dtype), master = dtype_bytes(state_master_dtype(state));
    if (check_size(program, own->param, flat_kept_bytes(flat, flat->shard_elems, dtype), err) ||
        check_size(program, own->whole_param, flat_kept_bytes(flat, flat->padded, dtype), err) ||
        check_size(program, own->grad, (size_t)flat->shard_elems * grad, err) ||
        check_size(program, own->whole_grad, (size_t)flat->padded * grad, err) ||
        check_size(program, own->master, (size_t)flat->shard_elems * master, err))
        return -1;
    for (int k = 0; flat->trained && k < optimizer->slots; k++)
        if (check_size(program, own->slot[k],
                       optimizer_slot_bytes(optimizer, k, flat->shard_elems,
                                            program->layout->optimizer_dtype),
                       err))
            return -1;
    return 0;
}

/* The first byte of a buffer in its root. */
static size_t start_of(const struct program_buffer *buffer)
{
    return buffer->whole < 0 ? 0 : buffer->from;
}

/* Do two buffers of one slab have a byte in common? */
static int overlap(const struct program *program, int a, int b)
{
    const struct program_buffer *one = &program->buffer[a], *other = &program->buffer[b];
    return buffer_root(program, a) == buffer_root(program, b) &&
           start_of(one) < start_of(other) + other->bytes &&
           start_of(other) < start_of(one) + one->bytes;
}

/* The gradient of a flat, whole where it is kept so. */
static int gradient_of(const struct program *program, int f)
{
    const struct state_flat *own = &program->state->flat[f];
    return own->whole_grad >= 0 ? own->whole_grad : own->grad;
}

static int check_apart(const struct program *program, int f, struct error *err)
{
    int own = gradient_of(program, f);
    for (int g = 0; own >= 0 && g < f; g++) {
        int other = gradient_of(program, g);
        if (other >= 0 && overlap(program, own, other))
            return error_set(err, "verify: buffers \"%s\" and \"%s\" share memory",
                             program->buffer[other].name, program->buffer[own].name);
    }
    return 0;
}

/* ---- sums ---- */

/* View b is numbers [from, to) of the sums. */
static int check_view(const struct program *program, int b, size_t from, size_t to,
                      struct error *err)
{
    const struct program_buffer *view = &program->buffer[b];
    if (view->whole == program->state->sums && view->from == from * sizeof(double) &&
        view->bytes == (to - from) * sizeof(double))
        return 0;
    return error_set(err, "verify: wrong sums: \"%s\" is not numbers %zu to %zu of them",
                     view->name, from, to - 1);
}

static int check_sums(const struct program *program, struct error *err)
{
    const struct state *state = program->state;
    size_t end = program->buffer[state->sums].bytes / sizeof(double);
    size_t at = SUM_COUNT + (size_t)(state->training ? program->units->flats : 0);
    if (check_view(program, state->loss_scale, SUM_LOSS_SCALE, SUM_LOSS_SCALE + 1, err) ||
        check_view(program, state->over_data, SUM_OVER_DATA, end, err) ||
        check_view(program, state->over_tensor, SUM_OVER_TENSOR, end, err))
        return -1;
    for (int u = 0; state->training && u < program->units->count; u++) {
        size_t experts = (size_t)units_expert_tokens_elems(program->units, u);
        if (experts && check_view(program, state->expert_tokens[u], at, at + experts, err))
            return -1;
        at += experts;
    }
    return at == end ? 0 : error_set(err, "verify: wrong sums: %zu numbers, not %zu", end, at);
}

int persistent_check(const struct program *program, struct error *err)
{
    for (int f = 0; f < program->units->flats; f++)
        if (check_flat(program, f, err) || check_apart(program, f, err))
            return -1;
    return check_sums(program, err);
}
