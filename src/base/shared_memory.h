/* shared_memory.h - memory that other processes of the same user on this node can map.
 *
 * The kernel's memory files (memfd_create(2)) have no name and no limit of a folder's, and are gone
 * with the last process that maps them, however it ends.  Another process opens one by /proc, as
 * long as its maker keeps it open.  Memory of 2 MiB or more has huge pages, which MADV_COLLAPSE
 * makes (Linux 6.1, whatever the administrator set for shared memory), or is not made at all: in
 * small pages a training step of two ranks took 1.29 times as long (doc/experiments.md).
 */
#ifndef TRIREME_BASE_SHARED_MEMORY_H
#define TRIREME_BASE_SHARED_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* By what another process finds a memory file and knows that it found the right one. */
struct shared_memory_name {
    int64_t process, descriptor, device, inode;
};

/* Make `bytes` > 0 bytes of zeroed memory, aligned as mem_block()'s, and set *name.  Returns memory
 * for shared_memory_unmap(), or NULL where the kernel has none that is as fast as other memory. */
void *shared_memory_make(size_t bytes, struct shared_memory_name *name);

/* Close this process's file of the memory, after all that want it have opened it; the memory stays.
 */
void shared_memory_close(const struct shared_memory_name *name);

/* Map `bytes` bytes of another process's memory for reading, all pages at once.  Returns it for
 * shared_memory_unmap(), or NULL: the process is gone or another user's, or its /proc is another
 * one. */
const void *shared_memory_open(const struct shared_memory_name *name, size_t bytes);

/* Undo shared_memory_make() or shared_memory_open() of as many bytes; memory NULL: do nothing. */
void shared_memory_unmap(const void *memory, size_t bytes);

#endif
