/* runtime.cc - the CUDA runtime's functions on GPUs and memory. */
#include <stdio.h>
#include <string.h>

#include "private.h"

enum { MULTIPROCESSORS = 132, L2_BYTES = 50 << 20 };

static thread_local int current;

int emulate_current_device(void)
{
    return current;
}

static bool exists(int device)
{
    return device >= 0 && device < emulate_gpus();
}

/* For calls that a capture may forbid. */
static cudaError_t allowed(void)
{
    std::lock_guard<std::mutex> locked(schedule_lock());
    return capture_allows();
}

static void wait_for_device(int device)
{
    operation_ptr all;
    {
        std::lock_guard<std::mutex> locked(schedule_lock());
        all = stream_all(device);
    }
    schedule_wait(all);
}

/* ---- copies ---- */

struct side {
    bool device, pageable, broken;
};

static struct side side_of(const void *at, size_t bytes)
{
    struct side s;
    s.device = emulate_is_device(at, bytes);
    s.broken = !at || (!s.device && emulate_is_device(at, 1));
    s.pageable = !s.device && !emulate_is_pinned(at, bytes);
    return s;
}

static bool right_kind(enum cudaMemcpyKind kind, struct side to, struct side from)
{
    switch (kind) {
    case cudaMemcpyHostToHost: return !to.device && !from.device;
    case cudaMemcpyHostToDevice: return to.device && !from.device;
    case cudaMemcpyDeviceToHost: return !to.device && from.device;
    case cudaMemcpyDeviceToDevice: return to.device && from.device;
    default: return kind == cudaMemcpyDefault;
    }
}

static cudaError_t append(cudaStream_t handle, const char *name, operation_step step, bool pageable,
                          operation_ptr *made)
{
    stream_wait_for_place(handle);
    cudaError_t failure = schedule_failure();
    std::lock_guard<std::mutex> locked(schedule_lock());
    struct CUstream_st *stream = stream_find(handle);
    if (failure != cudaSuccess)
        return failure;
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    if (stream->capture && pageable)
        return capture_spoil(stream->capture.get(), cudaErrorStreamCaptureUnsupported);
    return stream_append(stream, name, std::move(step), false, made);
}

/* From pageable memory the source is read at once; to it, the host waits. */
static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream, bool wait)
{
    struct side t = side_of(to, bytes), f = side_of(from, bytes);
    std::shared_ptr<std::vector<char>> staged;
    operation_ptr made;
    if (bytes == 0)
        return cudaSuccess;
    if (t.broken || f.broken)
        return cudaErrorInvalidValue;
    if (!right_kind(kind, t, f))
        return cudaErrorInvalidMemcpyDirection;
    if (f.pageable && !wait)
        staged =
            std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    cudaError_t code = append(
        stream, "a copy",
        [to, from, bytes, staged] {
            memory_copy(to, staged ? staged->data() : from, bytes);
            return EMULATE_DONE;
        },
        t.pageable || f.pageable, &made);
    if (code != cudaSuccess || !(wait || t.pageable))
        return code;
    schedule_wait(made);
    return schedule_failure();
}

/* Rows between blocks of the GPU, as one operation. */
static cudaError_t copy_rows(char *to, size_t to_pitch, const char *from, size_t from_pitch,
                             size_t width, size_t rows, cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch)
        return cudaErrorInvalidPitchValue;
    if (!width || !rows)
        return cudaSuccess;
    struct side t = side_of(to, (rows - 1) * to_pitch + width);
    struct side f = side_of(from, (rows - 1) * from_pitch + width);
    if (t.broken || f.broken || t.pageable || f.pageable)
        return cudaErrorInvalidValue;
    return append(
        stream, "a copy of rows",
        [=] {
            for (size_t i = 0; i < rows; i++)
                memory_copy(to + i * to_pitch, from + i * from_pitch, width);
            return EMULATE_DONE;
        },
        false, nullptr);
}

static cudaError_t fill(void *to, int value, size_t bytes, cudaStream_t stream)
{
    struct side t = side_of(to, bytes);
    if (bytes == 0)
        return cudaSuccess;
    if (t.broken || t.pageable)
        return cudaErrorInvalidValue;
    return append(
        stream, "a fill",
        [to, value, bytes] {
            memory_fill(to, value, bytes);
            return EMULATE_DONE;
        },
        false, nullptr);
}

extern "C" {

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return emulate_last(copy(to, from, bytes, kind, stream, false));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t code = allowed();
    return emulate_last(code != cudaSuccess ? code : copy(to, from, bytes, kind, nullptr, true));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
        return emulate_last(cudaErrorInvalidMemcpyDirection);
    return emulate_last(
        copy_rows((char *)to, to_pitch, (const char *)from, from_pitch, width, rows, stream));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes,
                                cudaStream_t stream)
{
    return emulate_last(copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream, false));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return emulate_last(fill(to, value, bytes, stream));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    cudaError_t code = allowed();
    return emulate_last(code != cudaSuccess ? code : fill(to, value, bytes, nullptr));
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **block, size_t bytes)
{
    cudaError_t code = allowed();
    if (code == cudaSuccess)
        code = !block ? cudaErrorInvalidValue : schedule_failure();
    return emulate_last(code != cudaSuccess ? code : memory_alloc(block, current, bytes));
}

cudaError_t cudaFree(void *block)
{
    struct emulate_place place;
    cudaError_t code = allowed();
    if (code != cudaSuccess || !block)
        return emulate_last(code);
    if (emulate_locate(block, &place) != 0)
        return emulate_last(cudaErrorInvalidValue);
    wait_for_device((int)place.device);
    code = memory_free(block);
    return emulate_last(code != cudaSuccess ? code : schedule_failure());
}

cudaError_t cudaHostAlloc(void **block, size_t bytes, unsigned)
{
    cudaError_t code = allowed();
    if (code == cudaSuccess && !block)
        code = cudaErrorInvalidValue;
    return emulate_last(code != cudaSuccess ? code : memory_host_alloc(block, bytes));
}

cudaError_t cudaMallocHost(void **block, size_t bytes)
{
    return cudaHostAlloc(block, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *block)
{
    cudaError_t code = allowed();
    if (code != cudaSuccess || !block)
        return emulate_last(code);
    for (int device = 0; device < emulate_gpus(); device++)
        wait_for_device(device);
    code = memory_host_free(block);
    return emulate_last(code != cudaSuccess ? code : schedule_failure());
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    size_t used = memory_used(current);
    *total_bytes = emulate_gpu_bytes();
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
    return emulate_last(exists(current) ? schedule_failure() : cudaErrorNoDevice);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *pointer)
{
    struct emulate_place place;
    memset(a, 0, sizeof *a);
    a->device = -1;
    a->type = cudaMemoryTypeUnregistered;
    if (emulate_locate(pointer, &place) == 0) {
        a->type = cudaMemoryTypeDevice;
        a->device = (int)place.device;
        a->devicePointer = (void *)pointer;
    } else if (emulate_is_pinned(pointer, 1)) {
        a->type = cudaMemoryTypeHost;
        a->device = current;
        a->devicePointer = a->hostPointer = (void *)pointer;
    }
    return cudaSuccess;
}

/* ---- GPUs ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = emulate_driver() < CUDART_VERSION ? 0 : emulate_gpus();
    if (emulate_driver() < CUDART_VERSION)
        return emulate_last(cudaErrorInsufficientDriver);
    return emulate_last(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (!exists(device))
        return emulate_last(emulate_gpus() > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    current = device;
    return emulate_last(schedule_failure());
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return emulate_last(emulate_gpus() > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaDeviceReset(void)
{
    schedule_reset();
    memory_reset(current);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (!exists(device))
        return emulate_last(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    strcpy(p->name, "emulated");
    memcpy(p->uuid.bytes, "trireme emulator", sizeof p->uuid.bytes);
    p->uuid.bytes[15] = (char)device;
    p->totalGlobalMem = emulate_gpu_bytes();
    p->sharedMemPerBlock = USUAL_SHARED;
    p->sharedMemPerBlockOptin = MAX_SHARED;
    p->sharedMemPerMultiprocessor = MAX_SHARED + 1024;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT32_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = 2048;
    p->major = emulate_level() / 10;
    p->minor = emulate_level() % 10;
    p->multiProcessorCount = MULTIPROCESSORS;
    p->l2CacheSize = L2_BYTES;
    p->unifiedAddressing = p->concurrentKernels = p->canMapHostMemory = 1;
    p->streamPrioritiesSupported = 1;
    p->asyncEngineCount = 3;
    p->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaError_t code = cudaGetDeviceProperties(&p, device);
    if (code != cudaSuccess)
        return code;
    const struct {
        enum cudaDeviceAttr attribute;
        int value;
    } known[] = {
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)p.sharedMemPerBlockOptin},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)p.sharedMemPerMultiprocessor},
        {cudaDevAttrWarpSize, p.warpSize},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrPciBusId, p.pciBusID},
        {cudaDevAttrPciDeviceId, 0},
        {cudaDevAttrPciDomainId, 0},
        {cudaDevAttrUnifiedAddressing, 1},
        {cudaDevAttrConcurrentKernels, 1},
        {cudaDevAttrStreamPrioritiesSupported, 1},
        {cudaDevAttrPageableMemoryAccess, 0},
    };
    for (const auto &k : known)
        if (k.attribute == attribute) {
            *value = k.value;
            return cudaSuccess;
        }
    return emulate_last(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    if (!exists(device))
        return emulate_last(cudaErrorInvalidDevice);
    return snprintf(text, (size_t)bytes, "0000:%02X:00.0", device + 1) < bytes
               ? cudaSuccess
               : emulate_last(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = exists(device) && exists(peer) && device != peer;
    return emulate_last(exists(device) && exists(peer) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned)
{
    return emulate_last(exists(peer) && peer != current ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = emulate_driver();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return emulate_last(cudaErrorInvalidValue);
    return emulate_last(simt_set_shared_limit(kernel, value));
}

} /* extern "C" */
