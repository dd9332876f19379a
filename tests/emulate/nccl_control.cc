/* nccl_control.cc - the segment the ranks of an emulated communicator meet in. */
#include "nccl_control.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emulate
{
namespace
{

std::string first_line(const char *path)
{
    char text[1024] = "";
    if (FILE *f = fopen(path, "r")) {
        if (!fgets(text, sizeof(text), f))
            text[0] = 0;
        fclose(f);
    }
    return text;
}

/* State and start time of a process; 0 when there is none or it is a zombie. */
uint64_t birth(pid_t pid)
{
    char path[64], state = 0;
    unsigned long long start = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    std::string line = first_line(path);
    size_t name_end = line.rfind(')');
    if (name_end == std::string::npos ||
        sscanf(line.c_str() + name_end + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start;
}

uint64_t hash(const std::string &text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (unsigned char c : text)
        h = (h ^ c) * 0x100000001b3u;
    return h;
}

/* As the library tells machines apart; read once, like there. */
uint64_t host_hash()
{
    static const uint64_t of_this_process = [] {
        char name[256] = "";
        if (const char *id = getenv("NCCL_HOSTID"))
            return hash(id);
        gethostname(name, sizeof(name) - 1);
        return hash(name + first_line("/proc/sys/kernel/random/boot_id"));
    }();
    return of_this_process;
}

std::shared_ptr<control> map(int file)
{
    void *at = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (at == MAP_FAILED)
        return NULL;
    return std::shared_ptr<control>((struct control *)at,
                                    [](struct control *c) { munmap(c, sizeof(*c)); });
}

bool everybody(const struct control &c, int ranks, const std::function<bool(const member &)> &has)
{
    for (int r = 0; r < ranks; r++)
        if (!has(c.member[r]))
            return false;
    return true;
}

} // namespace

std::shared_ptr<control> control_make(int *file)
{
    *file = memfd_create("communicator", MFD_CLOEXEC);
    if (*file < 0 || ftruncate(*file, sizeof(struct control)))
        return NULL;
    return map(*file);
}

std::shared_ptr<control> control_open(pid_t pid, int file)
{
    char path[64];
    struct stat s;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, file);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return NULL;
    std::shared_ptr<control> c;
    if (!fstat(mine, &s) && s.st_size == (off_t)sizeof(struct control))
        c = map(mine);
    close(mine);
    return c;
}

bool member_lives(const struct member &m)
{
    pid_t pid = m.pid;
    return !pid || pid == getpid() || birth(pid) == m.born;
}

ncclResult_t control_wait(const struct control &c, const std::atomic<bool> &stop,
                          const std::function<bool()> &condition)
{
    for (int turns = 0; !condition(); turns++) {
        if (stop)
            return ncclInvalidUsage;
        if (turns % 64 == 63 && !everybody(c, c.ranks, [](const member &m) {
                return member_lives(m) && m.departure == HERE;
            }))
            return condition() ? ncclSuccess : ncclRemoteError;
        usleep(turns < 100 ? 50 : 500);
    }
    return ncclSuccess;
}

ncclResult_t control_join(struct control &c, int rank, int ranks, const char *bus,
                          const std::atomic<bool> &stop, std::string *why)
{
    struct member &me = c.member[rank];
    int nobody = 0;
    bool twin = false;
    char text[160];

    if (!c.ranks.compare_exchange_strong(nobody, ranks) && nobody != ranks) {
        *why = "ranks do not agree on their number";
        return ncclInvalidArgument;
    }
    if (me.pid) {
        *why = "a rank came twice";
        return ncclInvalidUsage;
    }
    me.born = birth(getpid());
    me.host = host_hash();
    snprintf(me.bus, sizeof(me.bus), "%s", bus);
    me.pid = getpid();
    if (ncclResult_t bad = control_wait(c, stop, [&] {
            return everybody(c, ranks, [](const member &m) { return m.pid != 0; });
        }))
        return bad;
    for (int r = 0; r < ranks; r++)
        if (r != rank && c.member[r].host == me.host && !strcmp(c.member[r].bus, me.bus)) {
            snprintf(text, sizeof(text),
                     "Duplicate GPU detected : rank %d and rank %d both on CUDA device %s", rank, r,
                     me.bus);
            *why = text;
            twin = true;
        }
    me.accepted = twin ? -1 : 1;
    if (ncclResult_t bad = control_wait(c, stop, [&] {
            return everybody(c, ranks, [](const member &m) { return m.accepted != 0; });
        }))
        return twin ? ncclInvalidUsage : bad;
    if (twin)
        return ncclInvalidUsage;
    if (everybody(c, ranks, [](const member &m) { return m.accepted == 1; }))
        return ncclSuccess;
    *why = "another rank could not join the communicator";
    return ncclRemoteError;
}

} // namespace emulate
