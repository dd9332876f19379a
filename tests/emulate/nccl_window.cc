/* nccl_window.cc - memory of the emulated NCCL: its own, registered, and windows, between which
 * copy engines gather.
 *
 * A window is one only in memory of ncclMemAlloc(), and where the GPUs of all ranks reach each
 * other: on one machine, with NCCL_P2P_DISABLE not set.  Where they do not, the "window" is the
 * handle of a registration, as in NCCL 2.28.  Memory that is registered again is one registration.
 */
#include <stdlib.h>
#include <string.h>

#include <map>

#include "nccl_group.h"
#include "record.h"
#include "stream.h"

namespace emulate
{
namespace
{

std::mutex blocks_lock;
std::map<const char *, size_t> blocks; /* of ncclMemAlloc() */

bool is_own(const void *at, size_t bytes)
{
    std::lock_guard<std::mutex> hold(blocks_lock);
    auto after = blocks.upper_bound((const char *)at);
    if (after == blocks.begin())
        return false;
    auto block = std::prev(after);
    return (const char *)at + bytes <= block->first + block->second;
}

bool all_reach(const communicator &c)
{
    const char *disabled = getenv("NCCL_P2P_DISABLE");
    for (int r = 0; r < c.ranks; r++)
        if (c.control->member[r].host != c.control->member[0].host)
            return false;
    return !disabled || strcmp(disabled, "1") != 0;
}

const struct window *window_of(const communicator &c, const char *at)
{
    for (const struct window &w : c.windows)
        if (at >= w.at && at < w.at + w.bytes && w.flags & NCCL_WIN_COLL_SYMMETRIC)
            return &w;
    return NULL;
}

/* The registration of this memory, made if there is none. */
struct registration *register_memory(communicator &c, const char *at, size_t bytes)
{
    std::lock_guard<std::mutex> hold(c.windows_lock);
    for (struct registration &r : c.registrations)
        if (r.at == at && r.bytes == bytes) {
            r.times++;
            return &r;
        }
    c.registrations.push_back({at, bytes, 1});
    return &c.registrations.back();
}

bool deregister_memory(communicator &c, const void *handle)
{
    std::lock_guard<std::mutex> hold(c.windows_lock);
    for (auto r = c.registrations.begin(); r != c.registrations.end(); ++r)
        if (&*r == handle) {
            if (!--r->times)
                c.registrations.erase(r);
            return true;
        }
    return false;
}

} // namespace

bool is_registered(communicator &c, const char *at, size_t bytes)
{
    std::lock_guard<std::mutex> hold(c.windows_lock);
    for (const struct registration &r : c.registrations)
        if (at >= r.at && at + bytes <= r.at + r.bytes)
            return true;
    return false;
}

bool by_copy_engines(communicator &c, const operation &o, struct message *m)
{
    std::lock_guard<std::mutex> hold(c.windows_lock);
    const struct window *from = window_of(c, o.send), *into = window_of(c, o.recv);
    if (o.kind != ALL_GATHER || c.config.CTAPolicy != NCCL_CTA_POLICY_ZERO || !from || !into)
        return false;
    m->window_bytes = into->bytes;
    m->window_offset = (uint64_t)(o.recv - into->at);
    record("NCCL: %s: all-gather by copy engines", c.name.c_str());
    return true;
}

} // namespace emulate

using namespace emulate;

extern "C" {

ncclResult_t ncclMemAlloc(void **at, size_t bytes)
{
    if (cudaMalloc(at, bytes) != cudaSuccess)
        return note(ncclUnhandledCudaError, "out of device memory");
    std::lock_guard<std::mutex> hold(blocks_lock);
    blocks[(const char *)*at] = bytes;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *at)
{
    {
        std::lock_guard<std::mutex> hold(blocks_lock);
        if (!blocks.erase((const char *)at))
            return note(ncclInvalidArgument, "not memory of ncclMemAlloc");
    }
    return cudaFree(at) == cudaSuccess ? ncclSuccess
                                       : note(ncclUnhandledCudaError, "not device memory");
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *at, size_t bytes, void **handle)
{
    std::shared_ptr<communicator> c;

    if (ncclResult_t bad = usable(comm, &c))
        return bad;
    if (!handle || !emulate_is_device(at, bytes))
        return note(ncclInvalidArgument, "not within an allocation of the device");
    *handle = register_memory(*c, (const char *)at, bytes);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    std::shared_ptr<communicator> c = communicator_of(comm);

    if (!c || !deregister_memory(*c, handle))
        return note(ncclInvalidArgument, "not registered with this communicator");
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes, ncclWindow_t *win,
                                    int flags)
{
    std::shared_ptr<communicator> c;

    if (ncclResult_t bad = usable(comm, &c))
        return bad;
    if (!win || !emulate_is_device(at, bytes))
        return note(ncclInvalidArgument, "not within an allocation of the device");
    *win = NULL;
    if (!all_reach(*c)) {
        *win = (ncclWindow_t)register_memory(*c, (const char *)at, bytes);
        return ncclSuccess;
    }
    if (!is_own(at, bytes))
        return ncclSuccess;
    struct registration *own = register_memory(*c, (const char *)at, bytes);
    std::lock_guard<std::mutex> hold(c->windows_lock);
    c->windows.push_back({(const char *)at, bytes, flags, ++c->windows_made, own});
    *win = (ncclWindow_t)(uintptr_t)c->windows_made;
    record("NCCL: %s: a window", c->name.c_str());
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    std::shared_ptr<communicator> c = communicator_of(comm);

    if (!c)
        return note(ncclInvalidArgument, "not a communicator");
    const struct registration *own = NULL;
    {
        std::lock_guard<std::mutex> hold(c->windows_lock);
        for (size_t i = 0; i < c->windows.size(); i++)
            if (c->windows[i].number == (uintptr_t)win) {
                own = c->windows[i].own;
                c->windows.erase(c->windows.begin() + (long)i);
                break;
            }
    }
    if (deregister_memory(*c, own ? (const void *)own : (const void *)win))
        return ncclSuccess;
    return note(ncclInvalidArgument, "not a window of this communicator");
}

} // extern "C"
