/* discover.c - find the GPUs of this process and describe them, without opening one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/state.h"

int cuda_checked(cudaError_t code, const char *what, struct error *err)
{
    if (code == cudaSuccess)
        return 0;
    if (err && code != cudaErrorMemoryAllocation)
        err->code = EXIT_NODE;
    return error_set(err, "%.*s: %s", (int)strcspn(what, "("), what, cudaGetErrorString(code));
}

int device_gpu_built_in(void)
{
    return 1;
}

/* CUDA gives a process 8 connections to a GPU by default.  Streams that share a connection are
 * issued one after the other: while one of them waits for an event, or for a function of the host,
 * which may take as long as reading a file, the others stand still.  32 connections, the most that
 * CUDA has, give every stream its own and leave some for NCCL's streams, as only those streams are
 * made that are used (cuda_stream()).  CUDA reads the variable when it starts; a value that users
 * have set stays.
 */
enum { CONNECTIONS = 32 };
_Static_assert((int)DEVICE_STREAMS <= CONNECTIONS, "a connection for each stream");

static void ask_for_connections(void)
{
    char text[12];
    snprintf(text, sizeof text, "%d", CONNECTIONS);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 0);
}

/* Write why the driver cannot be used.  CUDA has one error code for a driver that is too old and
 * for one that is missing; cudaDriverGetVersion() gives 0 for the latter. */
static void explain_driver(char why[128])
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver)
        snprintf(why, 128,
                 "the NVIDIA driver is for CUDA %d.%d, and this trireme was built with CUDA %d.%d, "
                 "which needs a newer one",
                 driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
    else
        snprintf(why, 128, "no NVIDIA driver is found (libcuda.so.1)");
}

int device_gpu_count(char why[128])
{
    int gpus = 0;
    ask_for_connections(); /* trireme calls nothing of CUDA before */
    cudaError_t code = cudaGetDeviceCount(&gpus);
    why[0] = 0;
    if (code == cudaSuccess && gpus > 0)
        return gpus;
    cudaGetLastError(); /* clear the error: asking is no failure */
    if (code == cudaErrorInsufficientDriver)
        explain_driver(why);
    else
        snprintf(why, 128, "%s",
                 code == cudaSuccess ? "no GPU is visible" : cudaGetErrorString(code));
    return 0;
}

static void hex(char *text, const char *bytes, int count)
{
    for (int i = 0; i < count; i++)
        sprintf(text + 2 * i, "%02x", (unsigned char)bytes[i]);
}

int device_gpu_describe(int index, struct device_gpu *gpu, struct error *err)
{
    struct cudaDeviceProp p;
    memset(gpu, 0, sizeof *gpu);
    if (CUDA_CHECK(cudaGetDeviceProperties(&p, index), err))
        return error_prefix(err, "GPU %d", index);
    snprintf(gpu->name, sizeof gpu->name, "%.95s", p.name);
    hex(gpu->uuid, p.uuid.bytes, (int)sizeof p.uuid.bytes);
    gpu->major = p.major;
    gpu->minor = p.minor;
    gpu->multiprocessors = p.multiProcessorCount;
    gpu->total_bytes = p.totalGlobalMem;
    if (cudaDeviceGetPCIBusId(gpu->bus, sizeof gpu->bus, index) != cudaSuccess)
        gpu->bus[0] = 0;
    return 0;
}

int device_gpu_check_fp8(const struct device_gpu *gpu, struct error *err)
{
    char level[16];
    snprintf(level, sizeof level, "sm_%d%d", gpu->major % 100, gpu->minor % 100);
    return cuda_gemm_check_fp8(gpu->name, level, err);
}

int device_gpu_peers(int index, int peer)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, index, peer) != cudaSuccess)
        cudaGetLastError();
    return can;
}

const char *device_gpu_libraries(char text[256])
{
    int driver = 0, runtime = 0;
    char gemm[64], sdpa[64];
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    char known[48] = "no driver";
    if (driver)
        snprintf(known, sizeof known, "driver for CUDA %d.%d", driver / 1000, driver % 1000 / 10);
    snprintf(text, 256, "%s, CUDA %d.%d, %s, %s", known, runtime / 1000, runtime % 1000 / 10,
             cuda_gemm_library(gemm), cuda_sdpa_library(sdpa));
    return text;
}

void device_gpu_use(int index)
{
    cudaSetDevice(index);
}
