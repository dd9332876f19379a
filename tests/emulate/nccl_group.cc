/* nccl_group.cc - the operations of the emulated NCCL, alone and in groups. */
#include "nccl_group.h"

#include <unistd.h>

#include <thread>

#include "stream.h"

namespace emulate
{
namespace
{

/* What the calling thread has said since the outermost ncclGroupStart(). */
struct group {
    int depth = 0;
    ncclResult_t failed = ncclSuccess;
    std::vector<struct job> jobs;
    std::vector<std::shared_ptr<launch>> launches; /* one of each communicator */
};

thread_local struct group group;

void run_job(const struct job &j, int device)
{
    cudaSetDevice(device);
    usleep(emulate_random(300));
    ncclResult_t result = j.run();
    j.over(result);
    j.comm->helpers--;
}

/* Jobs side by side.  Those of a communicator that is not blocking go on by themselves. */
ncclResult_t run_jobs(std::vector<struct job> jobs)
{
    std::vector<std::thread> threads;
    std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
    ncclResult_t worst = ncclSuccess;

    for (size_t i = 0; i < jobs.size(); i++) {
        struct job j = jobs[i];
        j.comm->helpers++;
        if (!j.comm->blocking) {
            worst = ncclInProgress;
            j.comm->state = ncclInProgress;
            std::thread(run_job, j, j.comm->device).detach();
            continue;
        }
        ncclResult_t *result = &results[i];
        auto over = j.over;
        j.over = [over, result](ncclResult_t r) {
            *result = r;
            over(r);
        };
        threads.emplace_back(run_job, j, j.comm->device);
    }
    for (std::thread &t : threads)
        t.join();
    for (ncclResult_t r : results)
        if (r)
            worst = r;
    return worst;
}

ncclResult_t issue_all(const std::vector<std::shared_ptr<launch>> &launches)
{
    ncclResult_t worst = ncclSuccess;

    for (const std::shared_ptr<launch> &l : launches)
        if (ncclResult_t bad = issue(l))
            worst = bad;
    return worst;
}

/* All launches from one helper thread, in their order, some time after the call. */
ncclResult_t issue_later(std::vector<std::shared_ptr<launch>> launches)
{
    for (const std::shared_ptr<launch> &l : launches) {
        l->comm->helpers++;
        l->comm->state = ncclInProgress;
    }
    std::thread([launches] {
        cudaSetDevice(launches[0]->comm->device);
        usleep(emulate_random(300));
        ncclResult_t result = issue_all(launches);
        for (const std::shared_ptr<launch> &l : launches) {
            settle(*l->comm, result);
            l->comm->helpers--;
        }
    }).detach();
    return ncclInProgress;
}

/* Messages of a rank to itself must meet within the group. */
bool self_messages_meet(const struct launch &l)
{
    int balance = 0;

    for (const operation &o : l.operations)
        if (o.root == l.comm->rank)
            balance += o.kind == SEND ? 1 : o.kind == RECV ? -1 : 0;
    return balance == 0;
}

ncclResult_t check_group(const struct group &g)
{
    size_t blocking = 0, all = g.launches.size() + g.jobs.size();

    for (const std::shared_ptr<launch> &l : g.launches) {
        blocking += l->comm->blocking;
        if (!self_messages_meet(*l))
            return note(ncclInvalidUsage, "a rank sends to itself without receiving, or the like");
    }
    for (const struct job &j : g.jobs)
        blocking += j.comm->blocking;
    if (blocking && blocking != all)
        return note(ncclInvalidArgument, "blocking and non-blocking communicators in one group");
    if (!g.jobs.empty() && !g.launches.empty())
        return note(ncclInvalidUsage, "operations in a group that makes communicators");
    return ncclSuccess;
}

ncclResult_t end_group()
{
    struct group g = std::move(group);

    group = {};
    if (g.failed)
        return g.failed;
    if (ncclResult_t bad = check_group(g))
        return bad;
    if (!g.jobs.empty())
        return run_jobs(std::move(g.jobs));
    if (g.launches.empty())
        return ncclSuccess;
    if (g.launches[0]->comm->blocking)
        return issue_all(g.launches);
    return issue_later(std::move(g.launches));
}

/* The launch of c in this group, made when there is none. */
struct launch *launch_of(const std::shared_ptr<communicator> &c, cudaStream_t stream)
{
    for (const std::shared_ptr<launch> &l : group.launches)
        if (l->comm == c)
            return l->stream == stream ? l.get() : NULL;
    group.launches.push_back(std::make_shared<launch>());
    struct launch *l = group.launches.back().get();
    l->comm = c;
    l->stream = stream;
    return l;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const operation &o)
{
    std::shared_ptr<communicator> c;

    if (ncclResult_t bad = usable(comm, &c))
        return bad;
    if (ncclResult_t bad = check_operation(*c, o, stream))
        return bad;
    if (!o.count && o.kind != SEND && o.kind != RECV)
        return ncclSuccess;
    struct launch *l = launch_of(c, stream);
    if (!l)
        return note(ncclInvalidUsage, "one communicator on two streams in one group");
    l->operations.push_back(o);
    return ncclSuccess;
}

ncclResult_t call(enum transfer kind, const void *send, void *recv, size_t count, int type, int op,
                  int root, ncclComm_t comm, cudaStream_t stream)
{
    operation o = {};

    o.kind = kind;
    o.send = (const char *)send;
    o.recv = (char *)recv;
    o.count = count;
    o.type = type;
    o.op = op;
    o.root = root;
    ncclGroupStart();
    ncclResult_t bad = add(comm, stream, o);
    if (bad)
        group.failed = bad;
    ncclResult_t result = ncclGroupEnd();
    return bad ? bad : result;
}

} // namespace

ncclResult_t start_job(struct job j)
{
    ncclGroupStart();
    group.jobs.push_back(std::move(j));
    return ncclGroupEnd();
}

} // namespace emulate

using namespace emulate;

extern "C" {

ncclResult_t ncclGroupStart()
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (!group.depth)
        return note(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    return --group.depth ? ncclSuccess : end_group();
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(ALL_GATHER, send, recv, count, type, 0, 0, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call(REDUCE_SCATTER, send, recv, count, type, op, 0, comm, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call(ALL_REDUCE, send, recv, count, type, op, 0, comm, stream);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return call(REDUCE, send, recv, count, type, op, root, comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    return call(BROADCAST, send, recv, count, type, 0, root, comm, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return call(SEND, send, NULL, count, type, 0, peer, comm, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call(RECV, NULL, recv, count, type, 0, peer, comm, stream);
}

} // extern "C"
