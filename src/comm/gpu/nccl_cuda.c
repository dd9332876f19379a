/* nccl_cuda.c - find out with which CUDA the NCCL that is loaded was compiled.
 *
 * NCCL has no function for that.  Its library holds the text of its first log line, for example
 * "NCCL version 2.26.2+cuda12.2", and the dynamic linker knows the library's file.
 */
#include "comm/gpu/nccl_cuda.h"

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Return the version of CUDA in the first text of that form; 0: there is none. */
static int find_cuda(const char *data, size_t bytes)
{
    static const char begin[] = "NCCL version ";
    const size_t begin_bytes = sizeof begin - 1;
    const char *const end = data + bytes, *at = data;
    while ((at = memmem(at, (size_t)(end - at), begin, begin_bytes))) {
        char text[64] = "";
        int major, minor;
        at += begin_bytes;
        const size_t left = (size_t)(end - at);
        memcpy(text, at, left < sizeof text ? left : sizeof text - 1);
        if (sscanf(text, "%*d.%*d.%*d+cuda%d.%d", &major, &minor) == 2)
            return major * 1000 + minor * 10;
    }
    return 0;
}

int nccl_cuda_in_file(const char *path)
{
    struct stat status;
    int cuda = 0, file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    if (!fstat(file, &status) && status.st_size > 0) {
        const size_t bytes = (size_t)status.st_size;
        void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (data != MAP_FAILED) {
            cuda = find_cuda(data, bytes);
            munmap(data, bytes);
        }
    }
    close(file);
    return cuda;
}

/* Of dl_iterate_phdr(): set *arg for the library of NCCL.  Returns 1 where this is it. */
static int look_at_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!slash || strncmp(slash, "/libnccl.so", strlen("/libnccl.so")) != 0)
        return 0;
    *(int *)arg = nccl_cuda_in_file(info->dlpi_name);
    return 1;
}

int nccl_cuda(void)
{
    int cuda = 0;
    dl_iterate_phdr(look_at_library, &cuda);
    return cuda;
}

/* Kernels can start so with a driver and a compiler of CUDA 12.3 or newer.  A library that does not
 * say its CUDA is taken to be older than that before NCCL 2.27. */
int nccl_orders_starts(int version, int built, int driver)
{
    enum { CUDA_SINCE = 12030, NCCL_BUILT_SO = 22700 };
    return driver >= CUDA_SINCE && (built ? built >= CUDA_SINCE : version >= NCCL_BUILT_SO);
}
