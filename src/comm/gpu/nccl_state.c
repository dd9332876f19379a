/* nccl_state.c - ask for the state of communicators, wait for them, and end them.
 *
 * Communicators do not block: a call that needs peers returns "in progress", and
 * nccl_wait_for_call() asks for the state until the call is done, has failed, or has taken
 * run.hang_seconds.  Communicators end in one of two ways:
 *
 *   nccl_stop()      completes the transfers that were enqueued, one communicator after the other;
 *   nccl_abandon()   aborts them after a failure, when a peer may be gone.
 *
 * Aborting a communicator that hangs can hang too, so nccl_abandon() starts a thread that aborts
 * all of them, in one NCCL group because kernels of one may wait for those of another.  A thread
 * that takes longer than a few seconds is left running, and the GPU is given up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "comm/gpu/nccl_call.h"
#include "comm/gpu/nccl_faults.h"

enum { CLOSE_S = 30, ABANDON_S = 5 };
enum { SPINS = 2000, NAP_NS = 50000 };

/* --- versions, states and messages --- */

int nccl_version(void)
{
    int code = 0;
    return ncclGetVersion(&code) == ncclSuccess ? code : 0;
}

const char *mesh_gpu_library(char text[96])
{
    int is = nccl_version(),
        used = snprintf(text, 96, "%d.%d.%d", is / 10000, is / 100 % 100, is % 100);
    if (is != NCCL_VERSION_CODE)
        snprintf(text + used, 96 - (size_t)used, " (built for %d.%d.%d)", NCCL_MAJOR, NCCL_MINOR,
                 NCCL_PATCH);
    return text;
}

const char *mesh_gpu_library_fault(void)
{
    return nccl_is_arm() ? nccl_fault(nccl_version(), NCCL_USE_ARM_NODES) : NULL;
}

int nccl_failed(const struct channel *c, const char *what, ncclResult_t code, struct error *err)
{
    const struct world *world = c->link->world;
    const char *more = c->comm ? ncclGetLastError(comm_of(c)) : NULL;
    int of_peer = code == ncclRemoteError || code == ncclSystemError;
    if (err)
        err->code = EXIT_NODE;
    return error_set(err, "%s in %s, rank %d on %s: %s%s%s%.*s", what, c->name, world->rank,
                     world->host, of_peer ? "a peer died or the network broke: " : "",
                     ncclGetErrorString(code), more && more[0] ? ": " : "",
                     more ? (int)strcspn(more, "\n") : 0, more ? more : "");
}

/* The lock keeps nccl_abandon(), on another thread, from taking the communicator away meanwhile. */
enum nccl_state nccl_state_of(struct channel *c, const char *what, struct error *err)
{
    ncclResult_t code = ncclSuccess, state = ncclSuccess;
    if (link_check(c->link, err))
        return NCCL_BROKEN;
    pthread_mutex_lock(&c->link->lock);
    if (!c->link->abandoned && c->comm) {
        code = ncclCommGetAsyncError(comm_of(c), &state);
        if (code == ncclSuccess)
            code = state;
    } else {
        code = ncclInProgress;
    }
    if (code != ncclSuccess && code != ncclInProgress)
        nccl_failed(c, what, code, err);
    pthread_mutex_unlock(&c->link->lock);
    return code == ncclSuccess ? NCCL_READY : code == ncclInProgress ? NCCL_WAITS : NCCL_BROKEN;
}

void nccl_nap(int64_t times)
{
    const struct timespec time = {.tv_nsec = NAP_NS};
    if (times > SPINS)
        nanosleep(&time, NULL);
}

int nccl_too_long(const struct channel *c, const char *what, int64_t ns, struct error *err)
{
    if (err)
        err->code = EXIT_HANG;
    return error_set(err,
                     "%s in %s, rank %d on %s: no answer from the other members for %lld s "
                     "(NCCL_DEBUG=INFO tells more)",
                     what, c->name, c->link->world->rank, c->link->world->host,
                     (long long)(ns / 1000000000));
}

static int wait_ready(struct channel *c, const char *what, int64_t hang_ns, struct error *err)
{
    enum { LOOK_EVERY = 400 };
    struct link_limit limit = {0};
    for (int64_t times = 0;; times++) {
        enum nccl_state state = nccl_state_of(c, what, err);
        if (state != NCCL_WAITS)
            return state == NCCL_READY ? 0 : -1;
        if (times == SPINS)
            limit = link_limit_begin(c->link, hang_ns);
        if (times > SPINS && times % LOOK_EVERY == 0 && link_limit_is_over(c->link, &limit))
            return nccl_too_long(c, what, hang_ns, err);
        nccl_nap(times);
    }
}

int nccl_wait_for_call(struct channel *c, const char *what, ncclResult_t code, struct error *err)
{
    if (code != ncclSuccess && code != ncclInProgress)
        return nccl_failed(c, what, code, err);
    return wait_ready(c, what, link_hang_ns(c->link), err);
}

int nccl_end(struct channel *c, struct error *err)
{
    ncclResult_t code;
    if (!c->comm)
        return 0;
    code = ncclCommFinalize(comm_of(c));
    if (code != ncclSuccess && code != ncclInProgress)
        return nccl_failed(c, "end", code, err);
    if (wait_ready(c, "end", (int64_t)CLOSE_S * 1000000000, err))
        return -1;
    code = ncclCommDestroy(comm_of(c));
    c->comm = NULL;
    return code == ncclSuccess || code == ncclInProgress ? 0 : nccl_failed(c, "end", code, err);
}

/* --- ending --- */

void nccl_stop(struct link *l)
{
    struct error err = {0};
    int rc = l->abandoned || l->root.comm; /* a root is left over where the start failed */
    for (int i = 0; i < l->channels && !rc; i++)
        rc = nccl_end(&l->channel[i], &err);
    if (rc)
        link_abandon(l);
}

int nccl_poll(struct link *l, struct error *err)
{
    for (int i = 0; i < l->channels; i++)
        if (nccl_state_of(&l->channel[i], "transfers", err) == NCCL_BROKEN)
            return -1;
    return 0;
}

/* The communicators that end_all() aborts, on a thread of its own. */
struct ending {
    int gpu, count;
    ncclComm_t comm[MESH_CHANNELS + 1];
};

/* Abort all communicators in one NCCL group: kernels of one may wait for those of another. */
static void *end_all(void *arg)
{
    struct ending *e = arg;
    device_gpu_use(e->gpu);
    ncclGroupStart();
    for (int i = 0; i < e->count; i++)
        ncclCommAbort(e->comm[i]);
    ncclGroupEnd();
    return NULL;
}

/* Move c's communicator, if it has one, to e. */
static void take_over(struct ending *e, struct channel *c)
{
    if (c->comm)
        e->comm[e->count++] = c->comm;
    c->comm = NULL;
}

/* Run end_all() on a thread.  Returns 0 where the thread ended in time and e is no longer used,
 * else -1: then e has to stay allocated, as the thread may still use it until the process ends. */
static int end_by_thread(struct ending *e)
{
    pthread_t thread;
    struct timespec until;
    if (pthread_create(&thread, NULL, end_all, e))
        return -1;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABANDON_S;
    if (!pthread_timedjoin_np(thread, NULL, &until))
        return 0;
    pthread_detach(thread);
    return -1;
}

void nccl_abandon(struct link *l)
{
    l->hung = 1;
    /* These versions may crash in ncclCommAbort(); the process is about to end anyway. */
    if (nccl_version() >= NCCL_VERSION(2, 28, 3) && nccl_version() <= NCCL_VERSION(2, 28, 8)) {
        device_give_up(l->device);
        return;
    }
    struct ending *e = array_make(1, sizeof *e);
    e->gpu = l->device->index;
    pthread_mutex_lock(&l->lock);
    take_over(e, &l->root);
    for (int i = 0; i < l->channels; i++)
        take_over(e, &l->channel[i]);
    pthread_mutex_unlock(&l->lock);
    l->hung = end_by_thread(e) != 0;
    if (l->hung)
        device_give_up(l->device);
    else
        free(e);
}
