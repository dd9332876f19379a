/* execute_async_create.c - what the asynchronous executor makes before the first step: events, CUDA
 * graphs of the segments, and host memory for the steps in flight; see execute_async.h.
 *
 * A segment is captured once for each memory it runs on: a RUN of unit 1 and one of unit 2 have
 * graphs of their own, while those of all micro-batches of a unit share one if they work on the
 * same buffers.  Units that work on the same memory one after the other share one too, unless they
 * drop numbers: which ones depends on the layer.
 *
 * Every kernel of a step runs here once.  CUDA loads a kernel at its first launch, and may wait for
 * all that the GPU has been given, holding a lock that calls of other threads need.  If a transfer
 * is under way then, ranks that load kernels can wait for one another for ever.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "device/product.h"
#include "execute/execute_async.h"

static int make_event(struct executor *x, struct device_event **event, struct error *err)
{
    *event = device_event_create(x->device, DEVICE_EVENT_UNTIMED, err);
    return *event ? 0 : -1;
}

/* Make events after instructions that another stream waits for; after transfers, so that a hang can
 * be named; and where a micro-batch begins, so that a long step is not taken for one that hangs. */
static int make_events(struct executor *x, struct async_program *own, struct error *err)
{
    const struct program *program = own->program;
    char *wanted = array_make((size_t)program->instrs, 1);
    int rc = 0;
    for (int i = 0; i < program->instrs; i++) {
        wanted[i] |= instr_is_transfer(&program->instr[i]) || program->instr[i].kind == INSTR_LOAD;
        for (int s = 0; s < STREAMS; s++)
            if (program->instr[i].wait[s] >= 0)
                wanted[program->instr[i].wait[s]] = 1;
    }
    for (int slot = 0; slot < MEMORY_STEPS; slot++) {
        struct device_event **event = array_make((size_t)program->instrs, sizeof *event);
        own->event[slot] = event;
        for (int i = 0; i < program->instrs && !rc; i++)
            if (wanted[i] && program->instr[i].stream < STREAM_HOST)
                rc = make_event(x, &event[i], err);
    }
    free(wanted);
    return rc;
}

/* The capture that RUN i launches; a new one where no earlier RUN does the same on the same memory,
 * as those of many micro-batches do. */
static int find_capture(struct step_run *run, struct async_program *own, int i)
{
    const struct instr *instr = &own->program->instr[i];
    struct async_capture wanted = {.segment =
                                       program_segment(own->program, instr->unit, instr->phase),
                                   .piece = instr->piece,
                                   .accumulate = instr->accumulate};
    wanted.unit = segment_drops(wanted.segment) ? instr->unit : -1;
    run_bases(run, instr, wanted.base);
    for (int k = 0; k < own->captures; k++)
        if (own->capture[k].segment == wanted.segment && own->capture[k].piece == wanted.piece &&
            own->capture[k].unit == wanted.unit &&
            own->capture[k].accumulate == wanted.accumulate &&
            !memcmp(own->capture[k].base, wanted.base, sizeof wanted.base))
            return k;
    own->capture = array_grow(own->capture, own->captures, &own->capture_capacity, sizeof wanted);
    own->capture[own->captures] = wanted;
    return own->captures++;
}

/* Is this the first capture of its segment, piece and accumulate bits?  Then kernels of the
 * libraries that it uses may not be loaded yet: those that begin a gradient are not those that add
 * to it. */
static int has_new_kernels(const struct async_program *own, int index)
{
    const struct async_capture *c = own->capture;
    for (int k = 0; k < index; k++)
        if (c[k].segment == c[index].segment && c[k].piece == c[index].piece &&
            c[k].accumulate == c[index].accumulate)
            return 0;
    return 1;
}

static int capture_run(struct step_run *run, struct async_capture *capture, int i)
{
    struct device *d = run->x->device;
    if (device_record_begin(d, run->err))
        return -1;
    int rc = run_segment(run, i, NULL);
    capture->graph = device_record_end(d, rc ? NULL : run->err);
    return rc || !capture->graph || device_check(d, run->err) ? -1 : 0;
}

/* Capture the segments of a program's RUNs.  Libraries load their kernels and plan at the first use
 * of a shape, which a capture does not allow: each segment runs once on what the cleared slabs hold
 * before it is captured, and where it also adds to gradients, once more that way. */
static int make_captures(struct executor *x, struct async_program *own, struct error *err)
{
    const struct program *program = own->program;
    struct step_run run = {.x = x, .program = program, .err = err};
    own->capture_of = array_make((size_t)program->instrs, sizeof *own->capture_of);
    for (int i = 0; i < program->instrs; i++) {
        if (program->instr[i].kind != INSTR_RUN)
            continue;
        int before = own->captures, index = own->capture_of[i] = find_capture(&run, own, i);
        if (index < before)
            continue;
        if (has_new_kernels(own, index) &&
            (run_segment(&run, i, NULL) || device_check(x->device, err) ||
             device_sync(x->device, err)))
            return -1;
        if (capture_run(&run, &own->capture[index], i))
            return -1;
    }
    return device_sync(x->device, err);
}

/* Do two flats have the same rule and format of gradients?  -1: no flat. */
static int are_flats_alike(const struct program *program, int a, int b)
{
    const struct flat *flat = program->units->flat;
    if (a < 0 || b < 0)
        return a == b;
    return flat[a].optimizer == flat[b].optimizer && flat[a].grad_dtype == flat[b].grad_dtype;
}

/* Are two ORTHOGONALIZEs of the same matrices of flats of one kind of unit? */
static int are_matrices_alike(const struct program *program, const struct instr *a,
                              const struct instr *b)
{
    const struct flat *one = &program->units->flat[a->flat],
                      *other = &program->units->flat[b->flat];
    const int *kind_of = program->units->kind_of;
    return a->from == b->from && one->padded == other->padded &&
           kind_of[one->unit] == kind_of[other->unit];
}

/* Do two instructions that compute launch the same kernels? */
static int are_alike(const struct program *program, const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->elems == b->elems &&
           a->dtype == b->dtype && are_flats_alike(program, a->flat, b->flat) &&
           (a->kind != INSTR_ORTHOGONALIZE || are_matrices_alike(program, a, b));
}

/* Is it an instruction of the GPU that launches kernels, and no RUN? */
static int launches_kernels(const struct instr *instr)
{
    return instr->stream != STREAM_HOST && instr->kind != INSTR_RUN && instr->kind != INSTR_LOAD &&
           instr->kind != INSTR_RELEASE && !instr_is_transfer(instr) && !instr_is_copy(instr);
}

/* Does it multiply matrices, and is no RUN? */
static int multiplies(const struct instr *instr)
{
    return instr->kind == INSTR_ORTHOGONALIZE;
}

/* Run one of each kind of instruction for which is_meant() is 1, all of which launch kernels. */
static int run_one_of_each(struct executor *x, const struct program *program,
                           const struct optimizer_rule *rule, int (*is_meant)(const struct instr *),
                           struct error *err)
{
    struct step_input input = {.user = NULL};
    struct step_run run = {.x = x, .program = program, .input = &input, .err = err};
    int *done = array_make((size_t)program->instrs, sizeof *done), kinds = 0, rc = 0;
    if (rule)
        input.rule = *rule;
    for (int i = 0; i < program->instrs && !rc; i++) {
        const struct instr *instr = &program->instr[i];
        int k = 0;
        if (!is_meant(instr))
            continue;
        while (k < kinds && !are_alike(program, &program->instr[done[k]], instr))
            k++;
        if (k < kinds)
            continue;
        done[kinds++] = i;
        rc = step_actions[instr->kind](&run, i) || device_check(x->device, err);
    }
    free(done);
    return rc || device_sync(x->device, err) ? -1 : 0;
}

static int make_program(struct executor *x, struct async_program *own,
                        const struct program *program, struct error *err)
{
    char name[TRACE_NAME];
    own->program = program;
    own->call = array_make((size_t)program->instrs, sizeof *own->call);
    for (int i = 0; i < program->instrs; i++)
        own->call[i] = (struct copy_call){.x = x, .program = program, .index = i};
    if (!make_events(x, own, err) && !make_captures(x, own, err))
        return 0;
    return error_prefix(err, "preparing the program that starts with %s",
                        instr_text(program, 0, name, sizeof name));
}

/* Clear what segments run on: memory of the device alone, so that the slab of the host's stays as
 * make_host() cleared it. */
static int clear(struct executor *x, struct error *err)
{
    for (int pool = 0; pool < POOL_COUNT; pool++)
        if (x->slab[pool] && pool != POOL_HOST)
            x->device->ops->fill_zero(x->device, x->slab[pool], x->need.slab_bytes[pool]);
    return device_sync(x->device, err);
}

/* Allocate the host's memory for steps in flight and logits, and clear the slab of POOL_HOST; that
 * by all threads, as it may be as large as the node's memory. */
static int make_host(struct executor *x, struct error *err)
{
    struct async *a = x->async;
    if (x->slab[POOL_HOST])
        x->host->ops->fill_zero(x->host, x->slab[POOL_HOST], x->need.slab_bytes[POOL_HOST]);
    a->slot_bytes = x->need.step_bytes;
    a->host_bytes = MEMORY_STEPS * a->slot_bytes + x->need.logits_bytes;
    a->host = device_host_alloc(x->device, x->mem, POOL_HOST, a->host_bytes, err);
    if (!a->host)
        return -1;
    a->logits = (float *)(a->host + MEMORY_STEPS * a->slot_bytes);
    return 0;
}

static int make_common_events(struct executor *x, struct error *err)
{
    struct async *a = x->async;
    int rc = make_event(x, &a->begin, err);
    for (int s = 0; !rc && s < STREAM_HOST; s++)
        rc = make_event(x, &a->end[s], err);
    for (int k = 0; !rc && k < MEMORY_STEPS; k++)
        rc = make_event(x, &a->done[k], err);
    return rc;
}

int async_create(struct executor *x, int programs, struct error *err)
{
    struct async *a = array_make(1, sizeof *a);
    x->async = a;
    a->program = array_make((size_t)programs, sizeof *a->program);
    if (x->mesh)
        mesh_set_progress(x->mesh, async_progress, x);
    return make_common_events(x, err) || make_host(x, err) ? -1 : 0;
}

/* Run what make_captures() runs before it captures. */
static int run_kinds(struct executor *x, struct async_program *own, struct error *err)
{
    struct step_run run = {.x = x, .program = own->program, .err = err};
    for (int i = 0; i < own->program->instrs; i++) {
        if (own->program->instr[i].kind != INSTR_RUN)
            continue;
        int before = own->captures, index = find_capture(&run, own, i);
        if (index == before && has_new_kernels(own, index) && run_segment(&run, i, NULL))
            return -1;
    }
    return 0;
}

int async_note_products(struct executor *x, const struct program *const *programs, int count,
                        const struct optimizer_rule *rule, struct error *err)
{
    int rc = 0;
    if (clear(x, err))
        return -1;
    device_products_note(x->device, 1);
    for (int p = 0; p < count && !rc; p++) {
        struct async_program own = {.program = programs[p]};
        rc = run_kinds(x, &own, err) || run_one_of_each(x, programs[p], rule, multiplies, err);
        free(own.capture);
    }
    device_products_note(x->device, 0);
    return rc || device_check(x->device, err) || device_sync(x->device, err) ? -1 : 0;
}

/* Find the streams of a program, and have them made: in a step, CUDA might wait for the GPU. */
static int make_streams(struct executor *x, const struct program *program, struct error *err)
{
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].stream < STREAM_HOST)
            x->async->uses[program->instr[i].stream] = 1;
    for (int s = 0; s < STREAM_HOST; s++)
        if (x->async->uses[s])
            device_stream_native(x->device, step_streams[s].device);
    return device_check(x->device, err);
}

int async_prepare(struct executor *x, const struct program *const *programs, int count,
                  const struct optimizer_rule *rule, struct error *err)
{
    struct async *a = x->async;
    if (clear(x, err))
        return -1;
    for (int i = 0; i < count; i++)
        if (make_streams(x, programs[i], err))
            return -1;
    for (int i = 0; i < count; i++) {
        a->programs++;
        if (make_program(x, &a->program[i], programs[i], err))
            return -1;
    }
    for (int i = 0; i < count; i++) /* so that the GPU loads their kernels */
        if (run_one_of_each(x, programs[i], rule, launches_kernels, err))
            return -1;
    return clear(x, err);
}

static void destroy_program(struct executor *x, struct async_program *own)
{
    for (int slot = 0; slot < MEMORY_STEPS; slot++) {
        for (int i = 0; own->event[slot] && i < own->program->instrs; i++)
            device_event_destroy(x->device, own->event[slot][i]);
        free(own->event[slot]);
    }
    for (int k = 0; k < own->captures; k++)
        device_recording_destroy(x->device, own->capture[k].graph);
    free(own->call);
    free(own->capture);
    free(own->capture_of);
}

void async_destroy(struct executor *x)
{
    struct async *a = x->async;
    if (!a)
        return;
    if (x->mesh)
        mesh_set_progress(x->mesh, NULL, NULL);
    device_sync(x->device, NULL);
    swap_close(x->swap); /* of a GPU that failed, copies may have begun and not been waited for */
    x->swap = NULL;
    async_spans_free(x);
    for (int i = 0; i < a->programs; i++)
        destroy_program(x, &a->program[i]);
    device_event_destroy(x->device, a->begin);
    for (int s = 0; s < STREAMS; s++)
        device_event_destroy(x->device, a->end[s]);
    for (int k = 0; k < MEMORY_STEPS; k++)
        device_event_destroy(x->device, a->done[k]);
    device_host_free(x->device, x->mem, POOL_HOST, a->host_bytes, a->host);
    free(a->program);
    free(a);
    x->async = NULL;
}
