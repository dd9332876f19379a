/* execute_copy.c - state that lives in a file: the file, and FETCH and SPILL as reads and writes
 * of it. */
#include <string.h>

#include "execute/execute_private.h"
#include "program/offload.h"

static struct swap_op operation(const struct executor *x, const struct program *program, int i)
{
    const struct instr *instr = &program->instr[i];
    int fetches = instr->kind == INSTR_FETCH;
    const struct buffer *far = &program->buffer[instr->buffer[fetches ? SLOT_FROM : SLOT_TO]];
    return (struct swap_op){
        .queue = fetches ? SWAP_READ : SWAP_WRITE,
        .data = executor_buffer(x, program, instr->buffer[fetches ? SLOT_TO : SLOT_FROM]),
        .bytes = far->bytes,
        .offset = (int64_t)far->offset,
    };
}

int copy_begin(struct run_state *run, int i)
{
    struct executor *x = run->x;
    x->copy[i] = operation(x, run->program, i);
    swap_submit(x->swap, &x->copy[i]);
    return 0;
}

static int copy_end(struct run_state *run, int i)
{
    struct swap_op *op = &run->x->copy[i];
    char name[TRACE_NAME];
    instr_text(run->program, i, name, sizeof name);
    if (swap_wait(run->x->swap, op, run->err))
        return error_prefix(run->err, "instruction %d (%s)", i, name);
    if (run->trace)
        trace_add(run->trace, name, (int)run->program->instr[i].stream, op->start_ns, op->end_ns,
                  (int64_t)op->bytes);
    return 0;
}

int copy_wait(struct run_state *run, enum stream stream, int until)
{
    for (int i = run->waited[stream] + 1; i <= until; i++) {
        const struct instr *instr = &run->program->instr[i];
        if (instr->stream == stream && instr_is_copy(instr) && copy_end(run, i))
            return -1;
        run->waited[stream] = i;
    }
    return 0;
}

void copy_call(void *data)
{
    const struct copy_call *call = data;
    struct executor *x = call->x;
    struct error err = {0};
    char name[TRACE_NAME];
    struct swap_op op = operation(x, call->program, call->index);
    if (copy_check(x, NULL))
        return;
    swap_submit(x->swap, &op);
    if (!swap_wait(x->swap, &op, &err))
        return;
    error_prefix(&err, "instruction %d (%s)", call->index,
                 instr_text(call->program, call->index, name, sizeof name));
    pthread_mutex_lock(&x->lock);
    if (!x->failed.text[0])
        x->failed = err;
    pthread_mutex_unlock(&x->lock);
}

int copy_check(struct executor *x, struct error *err)
{
    pthread_mutex_lock(&x->lock);
    int failed = x->failed.text[0];
    if (failed && err)
        *err = x->failed;
    pthread_mutex_unlock(&x->lock);
    return failed ? -1 : 0;
}

/* The bytes of a buffer from byte `from` on: where in the file, or where in memory. */
static int move(struct executor *x, const struct program *program, int buffer, size_t from,
                enum swap_queue lane, void *host, size_t bytes, struct error *err)
{
    const struct buffer *b = &program->buffer[buffer];
    if (b->pool == POOL_DISK)
        return swap_transfer(x->swap, lane, host, bytes, (int64_t)(b->offset + from), err);
    char *at = (char *)executor_buffer(x, program, buffer) + from;
    if (offload_side(program, b->pool) == SIDE_HOST) {
        memcpy(lane == SWAP_READ ? host : at, lane == SWAP_READ ? at : host, bytes);
        return 0;
    }
    return lane == SWAP_READ ? device_download(x->device, host, at, bytes, err)
                             : device_upload(x->device, at, host, bytes, err);
}

int executor_read(struct executor *x, const struct program *program, int buffer, size_t from,
                  void *to, size_t bytes, struct error *err)
{
    return move(x, program, buffer, from, SWAP_READ, to, bytes, err);
}

int executor_write(struct executor *x, const struct program *program, int buffer, size_t from,
                   const void *data, size_t bytes, struct error *err)
{
    return move(x, program, buffer, from, SWAP_WRITE, (void *)data, bytes, err);
}
