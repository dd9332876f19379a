/* late_start.c - a preload that makes rank 0 late: the first PMIx fence of MPI_Init ends one second
 * later there than on the other ranks.  Meanwhile MPI goes on polling, as on a busy machine. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef void (*fence_end)(int status, void *arg);
typedef int (*fence_begin)(const void *, size_t, const void *, size_t, fence_end, void *);

static struct {
    fence_end end;
    int status;
    void *arg;
} late;

static void *wait_and_end(void *arg)
{
    sleep(1);
    late.end(late.status, late.arg);
    return arg;
}

/* PMIx calls this on its own thread, which must go on. */
static void end_late(int status, void *arg)
{
    pthread_t thread;
    late.status = status;
    late.arg = arg;
    if (pthread_create(&thread, NULL, wait_and_end, NULL))
        abort();
    pthread_detach(thread);
}

int PMIx_Fence_nb(const void *tasks, size_t ntasks, const void *info, size_t ninfo, fence_end end,
                  void *arg)
{
    static int calls;
    const char *rank = getenv("SLURM_PROCID");
    void *library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
    fence_begin begin = library ? (fence_begin)dlsym(library, "PMIx_Fence_nb") : NULL;
    if (!begin)
        abort();
    if (calls++ == 0 && rank && *rank == '0') {
        late.end = end;
        end = end_late;
    }
    return begin(tasks, ntasks, info, ninfo, end, arg);
}
