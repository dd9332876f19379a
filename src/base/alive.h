/* alive.h - signs of life: how much this process has done, for ranks that wait for it.
 *
 * Work that can take long, on files above all, calls alive_note() after every piece of it.  A
 * process that is stuck in a call notes nothing, so the ranks that wait for it can distinguish a
 * slow process from a stuck one.  Calls on files are made by ALIVE_CALL(), so that the other ranks
 * can say in which file one is stuck.
 */
#ifndef TRIREME_BASE_ALIVE_H
#define TRIREME_BASE_ALIVE_H

#include <stdint.h>

/* Count one more finished piece of work.  Any thread may call it. */
void alive_note(void);

/* Returns the number of pieces that this process has finished so far.  Pieces differ in size: only
 * whether the number changes means something. */
int alive_count(void);

/* A call that may wait long for something outside of this process, such as a file system. */
struct alive_call {
    const char *what, *name; /* "writing", and the path */
    int64_t begin_ns;
    struct alive_call *before; /* private */
};

/* Before and after such a call; what and name stay the caller's until alive_leave(), which counts a
 * finished piece of work and keeps errno.  Any thread may make such calls. */
void alive_enter(struct alive_call *call, const char *what, const char *name);
void alive_leave(struct alive_call *call);

/* The value of call, made between alive_enter() and alive_leave():
 *     got = ALIVE_CALL("reading", path, pread(fd, to, bytes, offset)); */
#define ALIVE_CALL(what, name, call)            \
    ({                                          \
        struct alive_call alive_call_;          \
        alive_enter(&alive_call_, what, name);  \
        __typeof__(call) alive_value_ = (call); \
        alive_leave(&alive_call_);              \
        alive_value_;                           \
    })

/* Write which of this process's calls began first, "writing PATH for 12 s", into text; "": none is
 * being made.  A long path loses its beginning.  Returns text. */
enum { ALIVE_DOING = 256 };
const char *alive_doing(char text[ALIVE_DOING]);

#endif
