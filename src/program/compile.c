/* compile.c - see compile.h: the passes in their order. */
#include "program/compile.h"

#include "base/array.h"
#include "program/memory.h"
#include "program/passes.h"

int program_create(struct program **out, const struct units *units,
                   const struct program_request *request, struct error *err)
{
    struct program *program = array_make(1, sizeof *program);
    program->units = units;
    program->request = *request;
    program->logits = -1;
    pass_state(program);
    int rc = pass_schedule(program, err);
    if (!rc && request->kind == PROGRAM_TRAIN)
        pass_update(program);
    if (!rc) {
        pass_release(program);
        memory_plan(program);
        pass_waits(program);
        *out = program;
        return 0;
    }
    program_destroy(program);
    return -1;
}
