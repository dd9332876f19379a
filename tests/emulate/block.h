/* block.h - a block of threads while it runs, for simt.cc, warp.cc and async.cc. */
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

/* What a thread waits at for others. */
enum meeting { NOWHERE, AT_BARRIER, AT_WARP_BARRIER, AT_BALLOT, AT_SHUFFLE, AT_MMA, AT_MATRICES };

/* An asynchronous copy of 16 bytes to shared memory. */
struct copy {
    void *to;
    const void *from;
    bool keep; /* false: zeros are written, and from is not read */
};

struct warp;

struct thread : emulate_thread {
    struct emulate_context context;
    char *stack;      /* NULL: the thread has not started, or has ended */
    int number, lane; /* in its block; in its warp */
    struct warp *warp;

    /* where the thread waits, and its operands of what the threads do together there */
    enum meeting meeting;
    struct emulate_site site; /* place in the source */
    unsigned mask;            /* lanes that meet */
    uint64_t value;           /* operand of a ballot or shuffle, then its result */
    enum emulate_shuffle_kind shuffle;
    int shuffle_lane, shuffle_width;
    enum dtype type; /* of a and b */
    float *d;
    const uint32_t *a, *b;
    uint32_t *r;
    const void *row;
    bool transposed;

    std::vector<struct copy> copies; /* under way: those of groups[0], then of groups[1], ... */
    std::vector<int> groups;         /* copies of each group; the last group is not committed */
};

struct warp {
    struct thread *threads;  /* lane 0; the other lanes follow */
    unsigned alive, waiting; /* lanes, as bits */
};

/* The running thread. */
static inline struct thread *self(void)
{
    return static_cast<struct thread *>(emulate_self);
}

/* Let the running thread wait for the other lanes of mask at the same place, and do together what
 * `meeting` says; its result is in the thread on return. */
void warp_meet(enum meeting meeting, struct emulate_site site, unsigned mask);

/* Note that a lane has ended, and wake lanes that waited for it alone. */
void warp_left(struct warp *warp, int lane);

/* Let other threads run until one calls block_wake() for the running thread. */
void block_suspend(void);
/* Let a suspended thread go on. */
void block_wake(struct thread *t);

/* Draw a number of 0 to n - 1. */
uint32_t block_random(uint32_t n);

/* Are all bytes in the block's shared memory? */
bool block_is_shared(const void *address, size_t bytes);

/* Fail the launch with this error and one line on stderr.  Does not return. */
void block_fail(cudaError_t code, const char *fmt, ...) __attribute__((format(printf, 2, 3)))
__attribute__((noreturn));

#endif
