/* schedule.cc - operations wait for one another, and for the host to want them.
 *
 * One OS thread runs operations, one at a time, drawn from those whose predecessors are done:
 * as a rule only from what the host waits for and what that needs, sometimes from all.  So work
 * the host forgot to wait for, and streams that were not made to wait for one another, run late
 * or in an odd order.  What peers in other processes may wait for (external) is also run when
 * the host has been away for a while.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <thread>

#include "private.h"

/* Never destroyed: its thread may outlive main(). */
struct scheduler {
    std::mutex lock;
    std::condition_variable wake, changed;
    std::vector<operation_ptr> ready[2]; /* [needed] */
    std::vector<operation_ptr> externals;
    const char *running = nullptr;
    cudaError_t failure = cudaSuccess;
    uint64_t chance;
    int waiters = 0, round = 1, nudges = 0;
    bool started = false, idle = true;
    uint32_t stray = 0; /* of 4 choices, how many are from all that is ready */
    std::chrono::steady_clock::time_point touched;
};

static struct scheduler &scheduler(void)
{
    static struct scheduler *s = [] {
        struct scheduler *made = new struct scheduler;
        made->chance = emulate_seed();
        return made;
    }();
    return *s;
}

std::mutex &schedule_lock(void)
{
    return scheduler().lock;
}

static uint32_t draw(struct scheduler &s, uint32_t n)
{
    s.chance = s.chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((s.chance >> 33) * n >> 31);
}

uint32_t emulate_random(uint32_t n)
{
    static std::mutex lock;
    static uint64_t chance = emulate_seed() ^ 0x5555;
    std::lock_guard<std::mutex> locked(lock);
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((chance >> 33) * n >> 31);
}

/* ---- which operations are ready ---- */

static void put_ready(struct scheduler &s, const operation_ptr &o)
{
    std::vector<operation_ptr> &list = s.ready[o->needed];
    o->slot = (int)list.size();
    list.push_back(o);
}

static void take_ready(struct scheduler &s, const operation_ptr &given)
{
    operation_ptr o = given; /* given may be the element of the list */
    std::vector<operation_ptr> &list = s.ready[o->needed];
    list.back()->slot = o->slot;
    list[(size_t)o->slot] = list.back();
    list.pop_back();
    o->slot = -1;
}

operation_ptr schedule_add(const char *name, operation_step step, bool external,
                           const std::vector<operation_ptr> &before)
{
    struct scheduler &s = scheduler();
    operation_ptr made = std::make_shared<struct operation>();
    made->name = name;
    made->step = std::move(step);
    made->external = external;
    for (const operation_ptr &b : before)
        if (b && !b->done) {
            b->after.push_back(made);
            made->before.push_back(b);
            made->blocked++;
        }
    if (external)
        s.externals.push_back(made);
    if (made->blocked == 0)
        put_ready(s, made);
    s.touched = std::chrono::steady_clock::now();
    if (external && s.idle)
        s.wake.notify_one();
    return made;
}

static void need(struct scheduler &s, const operation_ptr &first)
{
    std::vector<operation_ptr> todo = {first};
    while (!todo.empty()) {
        operation_ptr o = todo.back();
        todo.pop_back();
        if (o->done || o->needed)
            continue;
        if (o->slot >= 0)
            take_ready(s, o);
        o->needed = true;
        if (o->blocked == 0)
            put_ready(s, o);
        todo.insert(todo.end(), o->before.begin(), o->before.end());
    }
}

static void need_externals(struct scheduler &s)
{
    std::vector<operation_ptr> all = s.externals;
    for (const operation_ptr &o : all)
        need(s, o);
}

/* See schedule_take_time(). */
static std::atomic<int64_t> taken_ns(0);

void schedule_take_time(int64_t ns)
{
    taken_ns += ns;
}

/* It was ready, and is done now. */
static void finish(struct scheduler &s, const operation_ptr &o)
{
    take_ready(s, o);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    o->ended_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + taken_ns;
    o->done = true;
    o->step = nullptr;
    o->before.clear();
    for (const operation_ptr &a : o->after)
        if (--a->blocked == 0)
            put_ready(s, a);
    o->after.clear();
    if (o->external)
        for (size_t i = 0; i < s.externals.size(); i++)
            if (s.externals[i] == o) {
                s.externals.erase(s.externals.begin() + (long)i);
                break;
            }
}

/* ---- the thread that runs them ---- */

static operation_ptr pick(struct scheduler &s)
{
    bool any = !s.ready[0].empty() && draw(s, 4) < s.stray;
    for (int tries = 0; tries < 2; tries++, any = !any) {
        if (any && tries == 1)
            break;
        const std::vector<operation_ptr> &list = s.ready[!any];
        size_t n = list.size(), first = n ? draw(s, (uint32_t)n) : 0;
        for (size_t i = 0; i < n; i++)
            if (list[(first + i) % n]->round != s.round)
                return list[(first + i) % n];
    }
    return nullptr;
}

static void run(struct scheduler &s, std::unique_lock<std::mutex> &locked, const operation_ptr &o)
{
    enum emulate_status status = EMULATE_DONE;
    if (o->step && s.failure == cudaSuccess) {
        s.running = o->name;
        locked.unlock();
        fault_guard([&] { status = o->step(); });
        locked.lock();
        s.running = nullptr;
    }
    if (status == EMULATE_LATER && s.failure == cudaSuccess) {
        o->round = s.round;
        return;
    }
    finish(s, o);
    s.round++;
    if (s.ready[1].empty())
        memory_close();
    s.changed.notify_all();
}

static void serve(void)
{
    struct scheduler &s = scheduler();
    std::unique_lock<std::mutex> locked(s.lock);
    auto nap = std::chrono::microseconds(20);
    for (;;) {
        operation_ptr o;
        if (s.failure != cudaSuccess && !s.ready[0].empty())
            need(s, s.ready[0].back()); /* all is dropped */
        if (!s.ready[1].empty() && (o = pick(s))) {
            int round = s.round;
            run(s, locked, o);
            if (s.round != round)
                nap = std::chrono::microseconds(20);
        } else if (!s.ready[1].empty()) {
            need_externals(s);
            s.wake.wait_for(locked, nap);
            nap = nap < std::chrono::milliseconds(1) ? nap * 2 : nap;
            s.round++;
        } else if (!s.externals.empty()) {
            auto late = s.touched + std::chrono::milliseconds(10);
            if (s.wake.wait_until(locked, late) == std::cv_status::timeout &&
                std::chrono::steady_clock::now() >= s.touched + std::chrono::milliseconds(10))
                need_externals(s);
        } else {
            s.idle = true;
            s.wake.wait(locked);
            s.idle = false;
        }
    }
}

static void begin(struct scheduler &s)
{
    fault_install();
    if (!s.started)
        std::thread([] {
            fault_thread();
            serve();
        }).detach();
    s.started = true;
}

void schedule_wait(const operation_ptr &operation)
{
    struct scheduler &s = scheduler();
    std::unique_lock<std::mutex> locked(s.lock);
    static const uint32_t strays[] = {0, 0, 0, 1, 2};
    begin(s);
    if (!operation || operation->done)
        return;
    if (s.waiters++ == 0)
        s.stray = strays[draw(s, 5)];
    need(s, operation);
    s.wake.notify_one();
    s.changed.wait(locked, [&] { return operation->done; });
    s.waiters--;
}

void schedule_nudge(const operation_ptr &operation)
{
    struct scheduler &s = scheduler();
    std::unique_lock<std::mutex> locked(s.lock);
    begin(s);
    if (!operation || operation->done || s.nudges++ % 3 != 2)
        return;
    operation_ptr o = operation;
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < o->before.size() && !found; i++)
            if (!o->before[i]->done) {
                operation_ptr next = o->before[i];
                o = next;
                found = true;
            }
    }
    need(s, o);
    s.wake.notify_one();
    s.changed.wait_for(locked, std::chrono::milliseconds(1), [&] { return o->done; });
}

/* ---- failure ---- */

cudaError_t schedule_failure(void)
{
    std::lock_guard<std::mutex> locked(scheduler().lock);
    return scheduler().failure;
}

cudaError_t schedule_done(const operation_ptr &operation)
{
    std::lock_guard<std::mutex> locked(scheduler().lock);
    if (scheduler().failure != cudaSuccess)
        return scheduler().failure;
    return !operation || operation->done ? cudaSuccess : cudaErrorNotReady;
}

bool schedule_transfers(void)
{
    std::lock_guard<std::mutex> locked(scheduler().lock);
    for (const operation_ptr &o : scheduler().externals)
        if (!strcmp(o->name, EMULATE_TRANSFER))
            return true;
    return false;
}

const char *schedule_running(void)
{
    return scheduler().running;
}

void emulate_fail(cudaError_t code, const char *fmt, ...)
{
    struct scheduler &s = scheduler();
    char text[800];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    const char *running = schedule_running();
    fprintf(stderr, "trireme emulator: %s%s%s\n", running ? running : "", running ? ": " : "",
            text);
    std::lock_guard<std::mutex> locked(s.lock);
    if (s.failure == cudaSuccess)
        s.failure = code;
}

void schedule_reset(void)
{
    struct scheduler &s = scheduler();
    std::unique_lock<std::mutex> locked(s.lock);
    cudaError_t kept = s.failure;
    begin(s);
    s.failure = kept == cudaSuccess ? cudaErrorUnknown : kept;
    s.wake.notify_one();
    s.changed.wait(locked, [&] { return s.ready[0].empty() && s.ready[1].empty(); });
    s.failure = cudaSuccess;
}
