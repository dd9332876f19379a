/* simt.cc - run the blocks of a launch, and the threads of a block as fibers.
 *
 * A thread that ends without having met others leaves its stack to the next one, so a kernel
 * without barriers is a loop over threads.  Who goes next is drawn: from whole warps, with lanes
 * in any order, or from all threads of the block; those woken go on at once or wait for the rest.
 */
#include "block.h"

#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include <map>

#include "private.h"

enum { STACK_BYTES = 64 << 10, GUARD_BYTES = 4 << 10, RING = 2 * MAX_THREADS };

struct emulate_thread *emulate_self;
dim3 emulate_block_index, emulate_block_dim, emulate_grid_dim;

/* There is one, of the OS thread that runs steps; it may outlive main(). */
struct running_block {
    const struct emulate_launch *launch;
    const std::function<void()> *body;
    struct thread threads[MAX_THREADS];
    struct warp warps[MAX_THREADS / LANES];
    int count, alive;
    int waiting; /* at the barrier barrier */
    struct emulate_site barrier;

    unsigned ring[RING]; /* numbers of those who may go on */
    unsigned head, tail;
    bool wake_first;
    uint64_t chance;

    char *stacks;
    int stacks_used, stacks_free;
    char *free_stack[MAX_THREADS];
    struct emulate_context main;

    char *shared_end; /* of dynamic shared memory; a guard page follows */
    char *fixed;      /* static shared memory of the whole program */
    size_t fixed_bytes;
    bool dirty, failed;
    uint64_t launches;
};
static struct running_block &block = *new struct running_block();

/* ---- chance ---- */

uint32_t block_random(uint32_t n)
{
    uint64_t z = block.chance += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ z >> 31) >> 32) * n >> 32);
}

static uint64_t step_through(uint64_t n)
{
    uint64_t step = n > 2 ? 1 + block_random((uint32_t)(n < UINT32_MAX ? n - 1 : UINT32_MAX)) : 1;
    for (;; step = step % n + 1) {
        uint64_t a = n, b = step;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

/* ---- who goes next ---- */

static void push_last(unsigned number)
{
    block.ring[block.tail++ % RING] = number;
}

void block_wake(struct thread *t)
{
    if (block.wake_first)
        block.ring[--block.head % RING] = (unsigned)t->number;
    else
        push_last((unsigned)t->number);
}

static void push_warp(const struct warp *w)
{
    unsigned step = 2 * block_random(16) + 1, lane = block_random(LANES);
    unsigned first = (unsigned)(w->threads - block.threads);
    for (int i = 0; i < LANES; i++, lane = (lane + step) % LANES)
        if (w->alive >> lane & 1)
            push_last(first + lane);
}

/* All live threads, in an order of its own. */
static void push_all(void)
{
    unsigned warps = (unsigned)(block.count + LANES - 1) / LANES;
    unsigned n = block_random(3) == 0 ? (unsigned)block.count : warps;
    unsigned step = (unsigned)step_through(n), at = block_random(n);
    for (unsigned i = 0; i < n; i++, at = (at + step) % n) {
        if (n == warps)
            push_warp(&block.warps[at]);
        else if (block.threads[at].warp->alive >> block.threads[at].lane & 1)
            push_last(at);
    }
}

/* ---- fibers ---- */

static char *stack_get(void)
{
    if (block.stacks_free > 0)
        return block.free_stack[--block.stacks_free];
    char *guard = block.stacks + (size_t)block.stacks_used++ * (STACK_BYTES + GUARD_BYTES);
    mprotect(guard + GUARD_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE);
    return guard + GUARD_BYTES;
}

/* Back to run_block(): the block is done, or nobody can go on. */
static void to_main(void)
{
    struct emulate_context gone;
    emulate_context_switch(&gone, &block.main);
}

static void barrier_open(void)
{
    block.waiting = 0;
    for (int i = 0; i < block.count; i++)
        block.threads[i].meeting = NOWHERE;
    push_all();
}

static void thread_left(struct thread *t)
{
    struct warp *w = t->warp;
    t->copies.clear();
    t->groups.clear();
    t->stack = nullptr;
    w->alive &= ~(1u << t->lane);
    block.alive--;
    if (w->waiting)
        warp_left(w, t->lane);
    if (block.waiting && block.waiting == block.alive)
        barrier_open();
}

static struct thread *next_thread(void)
{
    return block.head == block.tail ? nullptr : &block.threads[block.ring[block.head++ % RING]];
}

/* What each fiber runs: its thread, then threads that have not begun. */
static void fiber(void)
{
    for (;;) {
        (*block.body)();
        struct thread *t = self(), *next;
        char *stack = t->stack;
        thread_left(t);
        next = next_thread();
        if (next && !next->stack) {
            next->stack = stack;
            emulate_self = next;
            continue;
        }
        block.free_stack[block.stacks_free++] = stack;
        if (!next)
            to_main();
        emulate_self = next;
        emulate_context_switch(&t->context, &next->context);
    }
}

static void enter(struct thread *next, struct emulate_context *from)
{
    if (!next->stack) {
        next->stack = stack_get();
        emulate_context_make(&next->context, next->stack, STACK_BYTES, fiber);
    }
    emulate_self = next;
    emulate_context_switch(from, &next->context);
}

void block_suspend(void)
{
    struct thread *t = self(), *next = next_thread();
    block.dirty = true;
    if (next == t)
        return;
    if (next)
        enter(next, &t->context);
    else
        to_main();
}

/* ---- barriers ---- */

void emulate_barrier(struct emulate_site site)
{
    struct thread *t = self();
    if (block.waiting == 0)
        block.barrier = site;
    else if (!emulate_same_site(site, block.barrier))
        block_fail(cudaErrorLaunchFailure, "is at the barrier of %s:%d while others are at %s:%d",
                   site.file, site.line, block.barrier.file, block.barrier.line);
    t->meeting = AT_BARRIER;
    t->site = site;
    if (++block.waiting == block.alive)
        barrier_open();
    block_suspend();
}

/* ---- shared memory ---- */

void *emulate_shared(size_t alignment)
{
    block.dirty = true;
    size_t bytes = (block.launch->shared_bytes + 15) / 16 * 16;
    if (alignment > 16)
        block_fail(cudaErrorLaunchFailure, "wants shared memory aligned to %zu", alignment);
    return block.shared_end - bytes;
}

bool block_is_shared(const void *address, size_t bytes)
{
    const char *at = (const char *)address;
    size_t dynamic_bytes = (block.launch->shared_bytes + 15) / 16 * 16;
    return (at >= block.fixed && at + bytes <= block.fixed + block.fixed_bytes) ||
           (at >= block.shared_end - dynamic_bytes && at + bytes <= block.shared_end);
}

/* Thread-local variables of the program itself are the __shared__ ones of kernels. */
static int find_fixed(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            block.fixed = (char *)info->dlpi_tls_data;
            block.fixed_bytes = info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program comes first */
}

static void poison_shared(void)
{
    size_t bytes = (block.launch->shared_bytes + 15) / 16 * 16;
    memset(block.shared_end - bytes, 0xff, bytes);
    if (block.fixed)
        memset(block.fixed, 0xff, block.fixed_bytes);
    block.dirty = false;
}

/* ---- failure ---- */

void simt_where(char text[160])
{
    text[0] = '\0';
    if (!block.launch)
        return;
    const dim3 *b = &emulate_block_index;
    const uint3 *t = &emulate_self->index;
    snprintf(text, 160, "kernel %.80s, block (%u,%u,%u), thread (%u,%u,%u): ", block.launch->name,
             b->x, b->y, b->z, t->x, t->y, t->z);
}

bool simt_is_stack(const void *address)
{
    const char *at = (const char *)address;
    return block.stacks && at >= block.stacks &&
           at < block.stacks + (size_t)MAX_THREADS * (STACK_BYTES + GUARD_BYTES);
}

void block_fail(cudaError_t code, const char *fmt, ...)
{
    char where[160], text[400];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    simt_where(where);
    emulate_fail(code, "%s%s", where, text);
    block.failed = true;
    to_main();
    __builtin_unreachable();
}

void emulate_misaligned(const char *what, const void *address, size_t bytes)
{
    block_fail(cudaErrorMisalignedAddress, "%s of %p, no multiple of %zu", what, address, bytes);
}

static void report_stuck(void)
{
    static const char *const names[] = {[NOWHERE] = "nowhere",
                                        [AT_BARRIER] = "__syncthreads",
                                        [AT_WARP_BARRIER] = "__syncwarp",
                                        [AT_BALLOT] = "__ballot_sync",
                                        [AT_SHUFFLE] = "a shuffle",
                                        [AT_MMA] = "mma",
                                        [AT_MATRICES] = "load_matrices"};
    char where[160], first[160] = "", text[2][160] = {"", ""};
    int sites = 0;
    for (int i = 0; i < block.count && sites < 2; i++) {
        struct thread *t = &block.threads[i];
        if (!(t->warp->alive >> t->lane & 1))
            continue;
        if (sites == 1 && t->meeting == block.threads[t->number - 1].meeting &&
            t->site.line == block.threads[t->number - 1].site.line)
            continue;
        emulate_self = t;
        simt_where(where);
        if (sites == 0)
            memcpy(first, where, sizeof first);
        snprintf(text[sites++], sizeof text[0], "thread %d waits at %s (%.60s:%d, mask %08x)",
                 t->number, names[t->meeting], t->site.file, t->site.line, t->mask);
    }
    emulate_fail(cudaErrorLaunchFailure, "%snobody can go on: %s%s%s", first, text[0],
                 sites > 1 ? "; " : "", text[1]);
    block.failed = true;
}

/* ---- blocks ---- */

static void setup(const struct emulate_launch *launch, const std::function<void()> *body)
{
    block.launch = launch;
    block.body = body;
    block.failed = false;
    emulate_self = &block.threads[0];
    block.count = (int)(launch->block.x * launch->block.y * launch->block.z);
    emulate_block_dim = launch->block;
    emulate_grid_dim = launch->grid;
    if (!block.stacks) {
        block.stacks = (char *)mmap(nullptr, (size_t)MAX_THREADS * (STACK_BYTES + GUARD_BYTES),
                                    PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        size_t bytes = (MAX_SHARED + 4095) / 4096 * 4096;
        char *shared = (char *)mmap(nullptr, bytes + GUARD_BYTES, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(shared + bytes, GUARD_BYTES, PROT_NONE);
        block.shared_end = shared + bytes;
        dl_iterate_phdr(find_fixed, nullptr);
    }
    for (int i = 0; i < block.count; i++) {
        struct thread *t = &block.threads[i];
        unsigned x = launch->block.x, y = launch->block.y, n = (unsigned)i;
        t->index = {n % x, n / x % y, n / x / y};
        t->number = i;
        t->lane = i % LANES;
        t->warp = &block.warps[i / LANES];
    }
}

static void run_block(void)
{
    if (block.dirty)
        poison_shared();
    block.head = block.tail = RING;
    block.waiting = 0;
    block.alive = block.count;
    for (int i = 0; i < block.count; i += LANES) {
        int lanes = block.count - i < LANES ? block.count - i : LANES;
        block.warps[i / LANES] = {&block.threads[i], ALL_LANES >> (LANES - lanes), 0};
    }
    block.wake_first = block_random(2);
    push_all();
    enter(next_thread(), &block.main);
    if (!block.failed && block.alive > 0)
        report_stuck();
}

/* What a launch that did not end well left behind. */
static void clean_up(void)
{
    block.stacks_free = 0;
    for (int i = 0; i < block.stacks_used; i++)
        block.free_stack[block.stacks_free++] =
            block.stacks + (size_t)i * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES;
    for (struct thread &t : block.threads) {
        t.stack = nullptr;
        t.copies.clear();
        t.groups.clear();
    }
}

void simt_run(const struct emulate_launch *launch, const std::function<void()> &body)
{
    bool finished = fault_guard([&] {
        setup(launch, &body);
        block.dirty = true;
        block.chance = emulate_seed() * 0x100000001b3u + block.launches++;
        uint64_t x = launch->grid.x, y = launch->grid.y, blocks = x * y * launch->grid.z;
        uint64_t step = step_through(blocks), at = block_random(1000) % blocks;
        for (uint64_t i = 0; i < blocks && !block.failed; i++, at = (at + step) % blocks) {
            emulate_block_index =
                dim3((unsigned)(at % x), (unsigned)(at / x % y), (unsigned)(at / x / y));
            run_block();
        }
    });
    if (!finished || block.failed)
        clean_up();
    block.launch = nullptr;
}

/* ---- launches ---- */

static std::map<const void *, size_t> &shared_limits(void)
{
    static std::map<const void *, size_t> *limits = new std::map<const void *, size_t>;
    return *limits;
}

size_t simt_shared_limit(const void *kernel)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    auto found = shared_limits().find(kernel);
    return found == shared_limits().end() ? (size_t)USUAL_SHARED : found->second;
}

cudaError_t simt_set_shared_limit(const void *kernel, int bytes)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    if (bytes < 0 || bytes > MAX_SHARED)
        return cudaErrorInvalidValue;
    size_t &limit = shared_limits()[kernel];
    if (limit < (size_t)bytes || limit == 0)
        limit = bytes > USUAL_SHARED ? (size_t)bytes : (size_t)USUAL_SHARED;
    return cudaSuccess;
}

static const char *refuse(const struct emulate_launch *l, cudaError_t *code)
{
    *code = cudaErrorInvalidConfiguration;
    if (!l->valid || l->grid.x > INT32_MAX)
        return "a dimension is negative or too large";
    if (!l->grid.x || !l->grid.y || !l->grid.z || !l->block.x || !l->block.y || !l->block.z)
        return "a dimension is 0";
    if (l->grid.y > 65535 || l->grid.z > 65535)
        return "grid.y or grid.z is over 65535";
    if (l->block.x > MAX_THREADS || l->block.y > MAX_THREADS || l->block.z > 64 ||
        (uint64_t)l->block.x * l->block.y * l->block.z > MAX_THREADS)
        return "a block has over 1024 threads, or over 64 in z";
    *code = cudaErrorInvalidValue;
    if (l->shared_bytes > simt_shared_limit(l->kernel))
        return "more dynamic shared memory than the kernel may have";
    return nullptr;
}

void emulate_start(const struct emulate_launch *launch, cudaStream_t stream,
                   std::function<void()> body)
{
    cudaError_t code;
    char kernel[240];
    const char *why = refuse(launch, &code);
    snprintf(kernel, sizeof kernel, "%s at %p", launch->name, launch->kernel);
    if (!why) {
        why = loading_refuses(kernel, stream);
        code = cudaErrorNotPermitted;
    }
    if (why) {
        fprintf(stderr,
                "trireme emulator: kernel %s<<<(%u,%u,%u), (%u,%u,%u), %zu>>> is refused: %s\n",
                launch->name, launch->grid.x, launch->grid.y, launch->grid.z, launch->block.x,
                launch->block.y, launch->block.z, launch->shared_bytes, why);
        emulate_last(code);
        return;
    }
    struct emulate_launch copy = *launch;
    emulate_last(emulate_enqueue(
        stream,
        [copy, body] {
            simt_run(&copy, body);
            return EMULATE_DONE;
        },
        copy.name));
}
