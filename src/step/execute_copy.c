/* execute_copy.c - state that lives in a file: the file, and FETCH and SPILL as reads and writes
 * of it. */
#include <string.h>

#include "step/execute_private.h"
#include "step/offload.h"

int copy_begin(struct run_state *run, int i)
{
    struct executor *x = run->x;
    const struct instr *instr = &run->program->instr[i];
    int fetches = instr->kind == INSTR_FETCH;
    const struct buffer *buffer = run->program->buffer;
    const struct buffer *far = &buffer[instr->buffer[fetches ? SLOT_FROM : SLOT_TO]];
    x->copy[i] = (struct swap_op){
        .lane = fetches ? SWAP_READ : SWAP_WRITE,
        .data = run_operand(run, instr, fetches ? SLOT_TO : SLOT_FROM),
        .bytes = far->bytes,
        .offset = (int64_t)far->offset,
    };
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

/* The bytes of a buffer from byte `from` on: where in the file, or where in memory. */
static int move(struct executor *x, const struct program *program, int buffer, size_t from,
                enum swap_lane lane, void *host, size_t bytes, struct error *err)
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
