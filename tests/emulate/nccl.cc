/* nccl.cc - communicators of the emulated NCCL: how they are made, watched and ended.
 *
 * Whatever takes part of others runs in a helper thread where the communicator is not blocking:
 * the call returns ncclInProgress and ncclCommGetAsyncError() tells when it is over; until then
 * the communicator is of no use.  That holds for operations too, as in the library: they may not
 * be on their stream yet when the call returns.
 */
#include <stdio.h>
#include <unistd.h>

#include <set>

#include "nccl_group.h"
#include "private.h"
#include "stream.h"

namespace emulate
{
namespace
{

std::mutex last_error_lock;
char last_error[512];

ncclResult_t check_config(const ncclConfig_t *config)
{
    const ncclConfig_t good = NCCL_CONFIG_INITIALIZER;

    if (!config)
        return ncclSuccess;
    if (config->size != good.size || config->magic != good.magic || config->version != good.version)
        return note(ncclInvalidArgument, "config was not made by NCCL_CONFIG_INITIALIZER");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
        return note(ncclInvalidArgument, "config.blocking");
    if (config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
        config->minCTAs > config->maxCTAs)
        return note(ncclInvalidArgument, "config.minCTAs > config.maxCTAs");
    if ((config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->minCTAs <= 0) ||
        (config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs <= 0))
        return note(ncclInvalidArgument, "config.minCTAs or config.maxCTAs is not positive");
    if (config->CTAPolicy != NCCL_CONFIG_UNDEF_INT &&
        (config->CTAPolicy < NCCL_CTA_POLICY_DEFAULT || config->CTAPolicy > NCCL_CTA_POLICY_ZERO))
        return note(ncclInvalidArgument, "config.CTAPolicy");
    return ncclSuccess;
}

/* Is comm a communicator that may be used now? */
ncclResult_t ensure_ready(ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;

    if (!communicator_of(comm))
        return note(ncclInvalidArgument, "not a communicator");
    ncclCommGetAsyncError(comm, &state);
    if (state == ncclInProgress)
        return note(ncclInvalidArgument,
                    "communicator used before its last operation returned ncclSuccess");
    return state;
}

/* Wait until the steps of all that was issued are done. */
ncclResult_t drain(ncclComm_t comm, communicator &c)
{
    ncclResult_t state = ncclSuccess;

    while (c.finished < c.issued && !c.aborted) {
        ncclCommGetAsyncError(comm, &state);
        if (state != ncclSuccess && state != ncclInProgress)
            return state;
        usleep(200);
    }
    return ncclSuccess;
}

/* Handles that are alive, so that a stale one is found out. */
std::mutex handles_lock;
std::set<ncclComm_t> handles;

ncclComm_t handle_make(const std::shared_ptr<communicator> &c)
{
    std::lock_guard<std::mutex> hold(handles_lock);
    ncclComm_t handle = new ncclComm{c};
    handles.insert(handle);
    return handle;
}

void handle_free(ncclComm_t handle)
{
    std::lock_guard<std::mutex> hold(handles_lock);
    handles.erase(handle);
    delete handle;
}

void leave(ncclComm_t comm, communicator &c, enum departure how)
{
    while (c.helpers)
        usleep(100);
    if (c.ready)
        c.control->member[c.rank].departure = how;
    emulate_hold(c.device, -c.held);
    handle_free(comm);
}

} // namespace

std::shared_ptr<communicator> communicator_of(ncclComm_t comm)
{
    std::lock_guard<std::mutex> hold(handles_lock);
    return comm && handles.count(comm) ? comm->c : NULL;
}

ncclResult_t usable(ncclComm_t comm, std::shared_ptr<communicator> *c)
{
    if (ncclResult_t bad = ensure_ready(comm))
        return bad;
    *c = communicator_of(comm);
    if ((*c)->finalized)
        return note(ncclInvalidUsage, "communicator used after ncclCommFinalize");
    return ncclSuccess;
}

ncclResult_t note(ncclResult_t code, const std::string &why)
{
    std::lock_guard<std::mutex> hold(last_error_lock);
    snprintf(last_error, sizeof(last_error), "%s", why.c_str());
    return code;
}

/* The reason is there before the state says that there is one; only the first failure counts. */
void fail(communicator &c, ncclResult_t code, const std::string &why)
{
    std::lock_guard<std::mutex> hold(last_error_lock);
    int before = c.state;

    if (before != ncclSuccess && before != ncclInProgress)
        return;
    snprintf(last_error, sizeof(last_error), "%s", why.c_str());
    while (before == ncclSuccess || before == ncclInProgress)
        if (c.state.compare_exchange_weak(before, code))
            return;
}

void settle(communicator &c, ncclResult_t result)
{
    int before = ncclInProgress;

    if (result)
        fail(c, result, std::string(last_error));
    else
        c.state.compare_exchange_strong(before, ncclSuccess);
}

} // namespace emulate

using namespace emulate;

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = emulate_nccl_version();
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const words[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? words[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
    return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    return identity_make(id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    ncclConfig_t chosen = NCCL_CONFIG_INITIALIZER;

    if (!comm || ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
        return note(ncclInvalidArgument, "rank or number of ranks");
    *comm = NULL;
    if (ncclResult_t bad = check_config(config))
        return bad;
    if (config)
        chosen = *config;
    std::shared_ptr<communicator> c = communicator_make(chosen);
    if (!c)
        return note(ncclUnhandledCudaError, "no current device");
    ncclComm_t handle = *comm = handle_make(c);
    return start_job({c, [c, id, rank, ranks] { return meet_by_identity(*c, id, rank, ranks); },
                      [c, comm, handle](ncclResult_t result) {
                          settle(*c, result);
                          if (result && c->blocking) {
                              handle_free(handle);
                              *comm = NULL;
                          }
                      }});
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    std::shared_ptr<communicator> c, child;

    if (!newcomm)
        return note(ncclInvalidArgument, "newcomm is NULL");
    *newcomm = NULL;
    if (ncclResult_t bad = usable(comm, &c))
        return bad;
    if (ncclResult_t bad = check_config(config))
        return bad;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return note(ncclInvalidArgument, "color");
    if (c->finished < c->issued)
        return note(ncclInvalidUsage, "split while operations are under way");
    if (color != NCCL_SPLIT_NOCOLOR) {
        child = communicator_make(config ? *config : c->config);
        if (!child)
            return note(ncclUnhandledCudaError, "no current device");
        child->state = ncclInProgress;
        *newcomm = handle_make(child);
    }
    ncclComm_t handle = *newcomm;
    uint64_t number = ++c->splits;
    return start_job(
        {c, [c, child, number, color, key] { return split(*c, child.get(), number, color, key); },
         [c, child, newcomm, handle](ncclResult_t result) {
             if (child)
                 settle(*child, result);
             if (c->blocking && child && result) {
                 handle_free(handle);
                 *newcomm = NULL;
             }
             if (!c->blocking)
                 settle(*c, result);
         }});
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    std::shared_ptr<communicator> c = communicator_of(comm);

    if (!c || !state)
        return note(ncclInvalidArgument, "not a communicator");
    look(*c);
    *state = (ncclResult_t)c->state.load();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    std::shared_ptr<communicator> c;

    if (ncclResult_t bad = usable(comm, &c))
        return bad;
    c->finalized = true;
    return start_job({c, [comm, c] { return drain(comm, *c); },
                      [c](ncclResult_t result) { settle(*c, result); }});
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    if (ncclResult_t bad = ensure_ready(comm))
        return bad;
    std::shared_ptr<communicator> c = communicator_of(comm);
    if (ncclResult_t bad = drain(comm, *c))
        return bad;
    leave(comm, *c, LEFT);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    std::shared_ptr<communicator> c = communicator_of(comm);
    if (!c)
        return note(ncclInvalidArgument, "not a communicator");
    while (!emulate_abort_returns())
        pause();
    c->aborted = true;
    leave(comm, *c, ABORTED);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    if (ncclResult_t bad = ensure_ready(comm))
        return bad;
    *count = communicator_of(comm)->ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (ncclResult_t bad = ensure_ready(comm))
        return bad;
    *rank = communicator_of(comm)->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    if (ncclResult_t bad = ensure_ready(comm))
        return bad;
    *device = communicator_of(comm)->device;
    return ncclSuccess;
}

} // extern "C"
