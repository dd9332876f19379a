/* nccl_meet.cc - how the ranks of an emulated communicator find one another. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "nccl_group.h"
#include "record.h"

namespace emulate
{
namespace
{

std::atomic<int> single_rank_comms{0};

/* What names a segment in a unique id. */
struct identity {
    uint32_t magic;
    pid_t pid;
    int32_t file;
    uint64_t number;
};

constexpr uint32_t IDENTITY = 0x1d1d1d1d;
static_assert(sizeof(struct identity) <= NCCL_UNIQUE_ID_BYTES, "identity");

/* Meet the others in control. */
ncclResult_t meet(communicator &c, const std::shared_ptr<control> &control, int rank, int ranks)
{
    std::string why = "the ranks did not come together";

    if (!control)
        return note(ncclRemoteError, "the rank that made the communicator's id is gone");
    c.rank = rank;
    c.ranks = ranks;
    if (ncclResult_t bad = control_join(*control, rank, ranks, c.bus.c_str(), c.aborted, &why)) {
        control->member[rank].departure = ABORTED;
        return note(bad, why);
    }
    c.control = control;
    c.ready = true;
    if (ranks == 1)
        single_rank_comms++;
    return ncclSuccess;
}

bool all_have(const communicator &c, std::atomic<uint64_t> member::*what, uint64_t number)
{
    for (int r = 0; r < c.ranks; r++)
        if (c.control->member[r].*what < number)
            return false;
    return true;
}

/* The ranks of my color, by key. */
std::vector<int> my_color(const communicator &c, int color)
{
    const struct member *m = c.control->member;
    std::vector<int> ranks;

    for (int r = 0; r < c.ranks; r++)
        if (m[r].color == color)
            ranks.push_back(r);
    std::stable_sort(ranks.begin(), ranks.end(), [m](int a, int b) { return m[a].key < m[b].key; });
    return ranks;
}

/* Make or find the segment of the new communicator. */
ncclResult_t child_control(communicator &c, uint64_t number, int first,
                           std::shared_ptr<control> *control)
{
    struct member &me = c.control->member[c.rank], &its = c.control->member[first];

    if (first == c.rank) {
        int file = -1;
        *control = control_make(&file);
        me.child_pid = getpid();
        me.child_file = file;
        me.split_made = number;
    }
    if (ncclResult_t bad =
            control_wait(*c.control, c.aborted, [&] { return its.split_made >= number; }))
        return note(bad, "a rank did not split");
    if (first != c.rank)
        *control = control_open(its.child_pid, its.child_file);
    return ncclSuccess;
}

/* As NCCL chooses, or a number. */
std::string number_of(int value)
{
    return value == NCCL_CONFIG_UNDEF_INT ? "-" : std::to_string(value);
}

} // namespace

std::shared_ptr<communicator> communicator_make(const ncclConfig_t &config)
{
    std::shared_ptr<communicator> c = std::make_shared<communicator>();
    char bus[32] = "";

    c->config = config;
    c->blocking = config.blocking != 0;
    c->name = config.commName ? config.commName : "unnamed";
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    record("NCCL: %s: CTAs %s to %s, policy %d, NVLS %s", c->name.c_str(),
           number_of(config.minCTAs).c_str(), number_of(config.maxCTAs).c_str(),
           config.CTAPolicy == NCCL_CONFIG_UNDEF_INT ? 0 : config.CTAPolicy, nvls ? nvls : "-");
    const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    if (order && strcmp(order, "1") == 0)
        record("NCCL: kernels start in the order of the calls");
    if (cudaGetDevice(&c->device) != cudaSuccess ||
        cudaDeviceGetPCIBusId(bus, sizeof(bus), c->device) != cudaSuccess)
        return NULL;
    c->bus = bus;
    return c;
}

ncclResult_t identity_make(ncclUniqueId *id)
{
    static std::atomic<uint64_t> number;
    struct identity mine = {IDENTITY, getpid(), -1, number++};

    if (!control_make(&mine.file))
        return note(ncclSystemError, "no shared memory");
    memset(id, 0, sizeof(*id));
    memcpy(id, &mine, sizeof(mine));
    return ncclSuccess;
}

ncclResult_t meet_by_identity(communicator &c, const ncclUniqueId &id, int rank, int ranks)
{
    struct identity its;

    memcpy(&its, &id, sizeof(its));
    if (its.magic != IDENTITY)
        return note(ncclInvalidArgument, "not a unique id");
    ncclResult_t result = meet(c, control_open(its.pid, its.file), rank, ranks);
    if (its.pid == getpid())
        close(its.file); /* all are there */
    return result;
}

ncclResult_t split(communicator &c, communicator *child, uint64_t number, int color, int key)
{
    struct member &me = c.control->member[c.rank];
    std::shared_ptr<control> control;
    ncclResult_t result;

    if (ncclResult_t bad = control_wait(
            *c.control, c.aborted, [&] { return all_have(c, &member::split_read, number - 1); }))
        return note(bad, "a rank did not split");
    me.color = color;
    me.key = key;
    me.split_posted = number;
    if (ncclResult_t bad = control_wait(*c.control, c.aborted,
                                        [&] { return all_have(c, &member::split_posted, number); }))
        return note(bad, "a rank did not split");
    if (!child) {
        me.split_read = number;
        return ncclSuccess;
    }
    std::vector<int> ranks = my_color(c, color);
    int rank = (int)(std::find(ranks.begin(), ranks.end(), c.rank) - ranks.begin());
    result = child_control(c, number, ranks[0], &control);
    if (!result)
        result = meet(*child, control, rank, (int)ranks.size());
    if (ranks[0] == c.rank)
        close(me.child_file);
    me.split_read = number;
    return result;
}

} // namespace emulate

extern "C" int emulate_nccl_single_rank_comms(void)
{
    return emulate::single_rank_comms;
}
