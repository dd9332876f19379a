/* stream.h - put work of one's own into an emulated stream; errors; chance.
 *
 * Nothing runs when it is enqueued.  The scheduler (schedule.cc) runs what is pending when the
 * host waits for something, in an order drawn from TRIREME_EMULATE_SEED that respects streams
 * and events, and as late as the host lets it.  Steps run on one OS thread of the emulator, one
 * at a time.
 */
#ifndef TRIREME_EMULATE_STREAM_H
#define TRIREME_EMULATE_STREAM_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <functional>

enum emulate_status {
    EMULATE_DONE,
    EMULATE_LATER, /* waits for another process: others run meanwhile, then it is asked again */
};

/* Append step to the stream, or to the graph the stream is being captured into.  A step is
 * copied before it runs, once for each launch of a graph: state it changes between two calls
 * (after EMULATE_LATER) belongs in the closure, by value (mutable).  A step that fails calls
 * emulate_fail() and returns EMULATE_DONE; after a failure no step runs.  name stays valid, it
 * is printed with errors.  Steps that return EMULATE_LATER are `external`: they are run after a
 * while even when the host waits for nothing, because peers may depend on them.
 * Returns cudaSuccess, or what cudaGetLastError() will say. */
cudaError_t emulate_enqueue(cudaStream_t stream, std::function<enum emulate_status()> step,
                            const char *name);
cudaError_t emulate_enqueue_external(cudaStream_t stream, std::function<enum emulate_status()> step,
                                     const char *name);

/* The name of transfers between ranks, which wait for one another. */
constexpr const char *EMULATE_TRANSFER = "NCCL";

/* A stream holds so many operations that are not done (TRIREME_EMULATE_QUEUE); a call that would
 * give it one more waits here until one is.  Without a lock held, before each call that appends. */
void stream_wait_for_place(cudaStream_t stream);

/* Have the stream's last operation take so many more places, until it is done. */
void stream_take_places(cudaStream_t stream, int places);

/* Does the network carry what ranks send to one another (else their transfers wait for ever), and
 * does ncclCommAbort() return?  TRIREME_EMULATE_NETWORK=0 and TRIREME_EMULATE_ABORT=0: no. */
bool emulate_network(void);
bool emulate_abort_returns(void);

/* The GPU a stream belongs to. */
int emulate_stream_device(cudaStream_t stream);

/* The GPU failed: code is what every call answers from now on.  One line on stderr. */
void emulate_fail(cudaError_t code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0 .. n-1, from the seed.  For the emulator's threads and the host's. */
uint32_t emulate_random(uint32_t n);

#endif
