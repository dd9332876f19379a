/* touch.c - see touch.h. */
#include "base/touch.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/quiet_thread.h"

struct touch {
    pthread_t thread;
    volatile char *memory;
    size_t bytes;
    int is_over;
};

static void *run(void *arg)
{
    struct touch *t = arg;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19); /* of this thread alone, on Linux */
    for (size_t at = 0; at < t->bytes && !__atomic_load_n(&t->is_over, __ATOMIC_RELAXED);
         at += page)
        t->memory[at] = 0;
    return NULL;
}

struct touch *touch_begin(void *memory, size_t bytes)
{
    struct touch *t = array_make(1, sizeof *t);
    *t = (struct touch){.memory = memory, .bytes = bytes};
    if (!quiet_thread_start(&t->thread, "touch", run, t))
        return t;
    free(t);
    return NULL;
}

void touch_end(struct touch *t)
{
    if (!t)
        return;
    __atomic_store_n(&t->is_over, 1, __ATOMIC_RELAXED);
    pthread_join(t->thread, NULL);
    free(t);
}
