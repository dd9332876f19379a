/* block.h - one block of threads being run: what simt.cc, warp.cc and async.cc share. */
#ifndef TRIREME_EMULATE_BLOCK_H
#define TRIREME_EMULATE_BLOCK_H

#include <vector>

#include "context.h"
#include "device/cuda/simt.cuh"

/* simt.cuh's names for kernels would get in the way of field names here. */
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

enum { MAX_THREADS = 1024, LANES = 32 };

enum meeting { NOWHERE, AT_BARRIER, AT_WARP_BARRIER, AT_BALLOT, AT_SHUFFLE, AT_MMA, AT_MATRICES };

struct copy {
    void *to;
    const void *from;
    bool keep;
};

struct warp;

struct thread : emulate_thread {
    struct emulate_context context;
    char *stack; /* NULL: not started, or ended */
    int number, lane;
    struct warp *warp;

    /* where it waits, and what it brought */
    enum meeting meeting;
    struct emulate_site site;
    unsigned mask;
    uint64_t value; /* given, then got */
    enum emulate_shuffle_kind shuffle;
    int shuffle_lane, shuffle_width;
    enum dtype type; /* of a and b */
    float *d;
    const uint32_t *a, *b;
    uint32_t *r;
    const void *row;
    bool transposed;

    /* copies of groups[0], then groups[1], ...; the last group is not committed */
    std::vector<struct copy> copies;
    std::vector<int> groups;
};

struct warp {
    struct thread *threads; /* lane 0 */
    unsigned alive, waiting;
};

/* The running thread. */
static inline struct thread *self(void)
{
    return static_cast<struct thread *>(emulate_self);
}

/* Wait for the others of mask, who bring the same; what it comes to is in the thread on return. */
void warp_meet(enum meeting meeting, struct emulate_site site, unsigned mask);

/* A lane ended: those who wait only for it go on. */
void warp_left(struct warp *warp, int lane);

/* Let others run until somebody calls block_wake() for this thread. */
void block_suspend(void);
void block_wake(struct thread *t);

/* 0 .. n-1 */
uint32_t block_random(uint32_t n);

/* Is it in the block's shared memory? */
bool block_is_shared(const void *address, size_t bytes);

/* End the launch with one line about it; does not return. */
void block_fail(cudaError_t code, const char *fmt, ...) __attribute__((format(printf, 2, 3)))
__attribute__((noreturn));

#endif
