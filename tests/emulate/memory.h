/* memory.h - where emulated device memory is, for other processes.
 *
 * All device memory of a process is one memfd, mapped at one base; what cudaMalloc() returns is
 * base + offset.  Another process of the same user opens /proc/PID/fd/FD of it.
 * Device memory may be touched only in steps (stream.h): the host itself faults.
 */
#ifndef TRIREME_EMULATE_MEMORY_H
#define TRIREME_EMULATE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Plain data: may be sent to other processes. */
struct emulate_place {
    int64_t process; /* pid */
    int64_t file;    /* descriptor there */
    int64_t offset;  /* in the file */
    int64_t bytes;   /* from there to the end of the allocation */
    int64_t device;  /* GPU of that process */
};

/* Place of a pointer into an allocation of cudaMalloc().  Returns 0, or -1 when it is in none. */
int emulate_locate(const void *pointer, struct emulate_place *place);

/* Address in this process of a place of any process; NULL when that is gone.  Valid while the
 * process lives, may be used in steps and outside. */
void *emulate_peer(const struct emulate_place *place);

/* Is [pointer, pointer + bytes) inside one allocation of device memory? */
int emulate_is_device(const void *pointer, size_t bytes);

/* Is it inside memory of cudaHostAlloc()? */
int emulate_is_pinned(const void *pointer, size_t bytes);

/* Count bytes of a GPU as used, or no longer, by what is not emulated: NCCL's connections, of which
 * each takes so many for a thread block, to send to one rank and receive from one. */
void emulate_hold(int device, int64_t bytes);
size_t emulate_connection_bytes(void);

#endif
