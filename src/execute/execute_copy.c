/* execute_copy.c - state that lives in a file: FETCH and SPILL as reads and writes of the file; and
 * executor_read() and executor_write(), of buffers wherever they live. */
#include <string.h>

#include "execute/execute_private.h"

/* The read or write of the file that FETCH or SPILL i is. */
static struct swap_op operation(const struct executor *x, const struct program *program, int i)
{
    const struct instr *instr = &program->instr[i];
    int fetches = instr->kind == INSTR_FETCH;
    const struct program_buffer *far =
        &program->buffer[instr->buffer[fetches ? SLOT_FROM : SLOT_TO]];
    return (struct swap_op){
        .queue = fetches ? SWAP_READ : SWAP_WRITE,
        .data = executor_buffer(x, &program->buffer[instr->buffer[fetches ? SLOT_TO : SLOT_FROM]]),
        .bytes = far->bytes,
        .offset = (int64_t)far->offset,
    };
}

int copy_begin(struct step_run *run, int i)
{
    struct executor *x = run->x;
    run_count_moved(run, &run->program->instr[i]);
    x->copy[i] = operation(x, run->program, i);
    swap_submit(x->swap, &x->copy[i]);
    return 0;
}

int copy_end(struct step_run *run, int i)
{
    struct swap_op *op = &run->x->copy[i];
    if (swap_wait(run->x->swap, op, run->err))
        return run_name_failure(run, i);
    run_trace(run, i, op->start_ns, op->end_ns, (int64_t)op->bytes);
    return 0;
}

void copy_call_begin(void *data)
{
    struct copy_call *call = data;
    struct executor *x = call->x;
    if (copy_check(x, NULL))
        return;
    call->op = operation(x, call->program, call->index);
    call->is_under_way = 1;
    swap_submit(x->swap, &call->op);
}

void copy_call_end(void *data)
{
    struct copy_call *call = data;
    struct executor *x = call->x;
    struct error err = {0};
    char name[TRACE_NAME];
    if (!call->is_under_way)
        return;
    call->is_under_way = 0;
    if (!swap_wait(x->swap, &call->op, &err))
        return;
    error_suffix(&err, "in %s", instr_text(call->program, call->index, name, sizeof name));
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

/* Copy bytes of a buffer from its byte `from` on to host (SWAP_READ), or from there (SWAP_WRITE).
 */
static int move(struct executor *x, const struct program_buffer *buffer, size_t from,
                enum swap_queue queue, void *host, size_t bytes, struct error *err)
{
    if (buffer->pool == POOL_DISK)
        return swap_transfer(x->swap, queue, host, bytes, (int64_t)(buffer->offset + from), err);
    char *at = (char *)executor_buffer(x, buffer) + from;
    if (buffer->pool == POOL_HOST) {
        memcpy(queue == SWAP_READ ? host : at, queue == SWAP_READ ? at : host, bytes);
        return 0;
    }
    return queue == SWAP_READ ? device_download(x->device, host, at, bytes, err)
                              : device_upload(x->device, at, host, bytes, err);
}

int executor_read(struct executor *x, const struct program_buffer *buffer, size_t from, void *to,
                  size_t bytes, struct error *err)
{
    return move(x, buffer, from, SWAP_READ, to, bytes, err);
}

int executor_write(struct executor *x, const struct program_buffer *buffer, size_t from,
                   const void *data, size_t bytes, struct error *err)
{
    return move(x, buffer, from, SWAP_WRITE, (void *)data, bytes, err);
}
