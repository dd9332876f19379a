/* executor.c - executors: their slabs, their file of POOL_DISK, and what callers ask of them. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "execute/execute_private.h"

struct device *executor_host(const struct executor *x)
{
    return x->host;
}

int64_t executor_sent_bytes(const struct executor *x)
{
    return x->sent_bytes;
}

int64_t executor_moved_bytes(const struct executor *x, enum program_stream stream)
{
    return x->moved_bytes[stream];
}

void executor_watch(struct executor *x, int seconds)
{
    x->hang_seconds = seconds;
    swap_watch(x->swap, seconds);
}

void executor_measure(const struct executor *x, struct swap_use *use)
{
    *use = (struct swap_use){0};
    if (x->swap)
        swap_measure(x->swap, use);
}

void *executor_buffer(const struct executor *x, const struct program_buffer *buffer)
{
    return x->slab[buffer->pool] ? x->slab[buffer->pool] + buffer->offset : NULL;
}

float *executor_logits(struct executor *x, const struct program *program, struct error *err)
{
    const struct program_buffer *buffer = &program->buffer[program->logits];
    return x->mode->logits ? x->mode->logits(x, buffer, err) : executor_buffer(x, buffer);
}

/* Open the file of POOL_DISK, if programs have one; instrs: instructions of the longest program. */
static int create_swap(struct executor *x, const struct program *program, int instrs,
                       const char *folder, struct error *err)
{
    size_t bytes = x->need.slab_bytes[POOL_DISK];
    if (!bytes)
        return 0;
    if (!x->device->asynchronous)
        x->copy = array_make((size_t)instrs, sizeof *x->copy);
    if (swap_open(&x->swap, folder, mesh_rank(&program->layout->shape, program->state->coord),
                  bytes, err))
        return -1;
    mem_count(x->mem, POOL_DISK, bytes);
    return 0;
}

/* Open the CPU beside a GPU, if something lies in the host's memory and is worked on there. */
static int open_host(struct executor *x, struct error *err)
{
    struct device_request request = {.kind = DEVICE_CPU, .threads = x->device->threads};
    x->host = x->device;
    if (x->device->kind == DEVICE_CPU || !x->need.slab_bytes[POOL_HOST])
        return 0;
    return device_open(&x->host, &request, err);
}

/* Check that the mesh has a group for every transfer. */
static int check_groups(const struct executor *x, const struct program *const *programs, int count,
                        struct error *err)
{
    char name[MESH_AXES_TEXT];
    for (int p = 0; p < count; p++)
        for (int i = 0; i < programs[p]->instrs; i++) {
            unsigned axes = programs[p]->instr[i].axes;
            if (axes && (!x->mesh || !mesh_group_of(x->mesh, axes)))
                return error_set(err, "a transfer over %s: the mesh has no such group",
                                 mesh_axes_name(axes, name));
        }
    return 0;
}

/* The slabs that transfers read and write; a rank may lack one that others have.  The last one is
 * among them where gradients pass in it. */
static const enum mem_pool transferred[] = {POOL_PARAMS, POOL_GRADS, POOL_UNSHARDED,
                                            POOL_ACTIVATIONS};

enum { TRANSFERRED = sizeof transferred / sizeof transferred[0] };

/* How many of the slabs in transferred[] are so: the same on all ranks.  Tensor and context ranks
 * exchange activations, too, some of them with memory of other pools, and NCCL asks that all ranks
 * of a transfer have registered what it reads and writes, or none: there the last one is left out.
 */
static int count_transferred(const struct program *program)
{
    const int *degree = program->layout->shape.degree;
    int pass =
        state_grads_pass(program->state) && degree[MESH_TENSOR] == 1 && degree[MESH_CONTEXT] == 1;
    return pass ? TRANSFERRED : TRANSFERRED - 1;
}

static int is_transferred(const struct executor *x, enum mem_pool pool)
{
    for (int i = 0; i < x->transferred; i++)
        if (transferred[i] == pool)
            return 1;
    return 0;
}

static void *alloc_slab(struct executor *x, enum mem_pool pool, size_t bytes, struct error *err)
{
    if (is_transferred(x, pool))
        return mesh_alloc(x->mesh, x->device, x->mem, pool, bytes, err);
    return (pool == POOL_HOST ? device_host_alloc : device_alloc)(x->device, x->mem, pool, bytes,
                                                                  err);
}

static void free_slab(struct executor *x, enum mem_pool pool)
{
    size_t bytes = x->need.slab_bytes[pool];
    if (is_transferred(x, pool))
        mesh_free(x->mesh, x->device, x->mem, pool, bytes, x->slab[pool]);
    else
        (pool == POOL_HOST ? device_host_free : device_free)(x->device, x->mem, pool, bytes,
                                                             x->slab[pool]);
}

static int create_slabs(struct executor *x, const struct program *const *programs, int count,
                        struct error *err)
{
    memory_slabs(&x->need, programs, count);
    x->transferred = count_transferred(programs[0]);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        if (!x->need.slab_bytes[pool] || pool == POOL_DISK)
            continue;
        x->slab[pool] = alloc_slab(x, pool, x->need.slab_bytes[pool], err);
        if (!x->slab[pool])
            return -1;
    }
    return 0;
}

int executor_register(struct executor *x, struct error *err)
{
    for (int i = 0; i < x->transferred && x->mesh; i++)
        if (mesh_register(x->mesh, x->slab[transferred[i]], x->need.slab_bytes[transferred[i]],
                          err) < 0)
            return -1;
    return 0;
}

int executor_allocate(struct executor **out, struct device *device, struct mesh *mesh,
                      struct mem *mem, const struct program *const *programs, int count,
                      const char *swap_folder, struct error *err)
{
    struct executor *x = array_make(1, sizeof *x);
    x->device = device;
    x->mem = mem;
    x->mesh = mesh;
    pthread_mutex_init(&x->lock, NULL);
    x->mode = device->asynchronous ? &executor_async : &executor_sync;
    int instrs = 0;
    for (int p = 0; p < count; p++)
        instrs = programs[p]->instrs > instrs ? programs[p]->instrs : instrs;
    x->op = array_make((size_t)instrs, sizeof *x->op);
    x->sums = array_make(programs[0]->buffer[programs[0]->state->sums].bytes, 1);
    if (check_groups(x, programs, count, err) || create_slabs(x, programs, count, err) ||
        create_swap(x, programs[0], instrs, swap_folder, err) || open_host(x, err) ||
        (x->mode->create && x->mode->create(x, count, err))) {
        executor_destroy(x);
        return -1;
    }
    *out = x;
    return 0;
}

int executor_note_products(struct executor *x, const struct program *const *programs, int count,
                           const struct optimizer_rule *rule, struct error *err)
{
    return x->mode->note_products ? x->mode->note_products(x, programs, count, rule, err) : 0;
}

/* Let the first step of a program that updates first update nothing: there are no gradients yet. */
static int clear_factor(struct executor *x, const struct program *program, struct error *err)
{
    const double none = NAN;
    if (!program_updates_first(program))
        return 0;
    return executor_write(x, &program->buffer[program->state->sums], SUM_FACTOR * sizeof none,
                          &none, sizeof none, err);
}

int executor_prepare(struct executor *x, const struct program *const *programs, int count,
                     const struct optimizer_rule *rule, struct error *err)
{
    if (x->mode->prepare && x->mode->prepare(x, programs, count, rule, err))
        return -1;
    for (int i = 0; i < count; i++)
        if (clear_factor(x, programs[i], err))
            return -1;
    return 0;
}

int executor_create(struct executor **out, struct device *device, struct mesh *mesh,
                    struct mem *mem, const struct program *const *programs, int count,
                    const struct optimizer_rule *rule, const char *swap_folder, struct error *err)
{
    struct executor *x;
    if (executor_allocate(&x, device, mesh, mem, programs, count, swap_folder, err))
        return -1;
    if (executor_prepare(x, programs, count, rule, err)) {
        executor_destroy(x);
        return -1;
    }
    *out = x;
    return 0;
}

void executor_destroy(struct executor *x)
{
    if (!x)
        return;
    if (x->swap)
        mem_uncount(x->mem, POOL_DISK, x->need.slab_bytes[POOL_DISK]);
    if (x->mode->destroy)
        x->mode->destroy(x);
    swap_close(x->swap); /* waits for copies of a step that failed, which use the slabs */
    for (int i = 0; i < x->transferred && x->mesh; i++)
        mesh_unregister(x->mesh, x->slab[transferred[i]]);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        free_slab(x, pool);
    if (x->host != x->device)
        device_close(x->host);
    free(x->op);
    free(x->sums);
    free(x->copy);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
