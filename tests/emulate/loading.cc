/* loading.cc - a kernel is loaded at its first launch.
 *
 * CUDA may hold that launch back until the GPU has done all that it was given, and allows none that
 * loads something in some captures.  So a program must launch each kernel once before it captures
 * it, and before transfers are under way, which wait for other ranks.
 */
#include <set>

#include "private.h"

const char *loading_refuses(const std::string &kernel, cudaStream_t stream)
{
    static std::mutex &lock = *new std::mutex;
    static std::set<std::string> &loaded = *new std::set<std::string>;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!emulate_strict_loading())
        return nullptr;
    std::lock_guard<std::mutex> locked(lock);
    if (loaded.count(kernel))
        return nullptr;
    cudaStreamIsCapturing(stream, &capture);
    if (capture != cudaStreamCaptureStatusNone)
        return "its first launch is in a capture: it is not loaded";
    if (schedule_transfers())
        return "its first launch is beside a transfer: it is not loaded";
    loaded.insert(kernel);
    return nullptr;
}
