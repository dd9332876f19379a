/* settings.cc - the properties of the emulated machine, from environment variables. */
#include <cublasLt.h>
#include <nccl.h>
#include <stdlib.h>

#include "private.h"

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

uint64_t emulate_seed(void)
{
    static const uint64_t seed = number("TRIREME_EMULATE_SEED", 1);
    return seed;
}

int emulate_gpus(void)
{
    return (int)number("TRIREME_EMULATE_GPUS", 1);
}

/* Operations that a stream holds: CUDA lets a launch wait behind about as many. */
size_t emulate_queue(void)
{
    return number("TRIREME_EMULATE_QUEUE", 1024);
}

bool emulate_network(void)
{
    return number("TRIREME_EMULATE_NETWORK", 1) != 0;
}

bool emulate_abort_returns(void)
{
    return number("TRIREME_EMULATE_ABORT", 1) != 0;
}

/* Must a product have run before it may be captured? */
bool emulate_strict_loading(void)
{
    return number("TRIREME_EMULATE_STRICT_LOADING", 1) != 0;
}

/* Of the algorithms for a product, the one that takes the least of the emulated time; -1, as
 * without a setting: none takes any, and all add up in the same order. */
int emulate_fastest_algorithm(void)
{
    return (int)number("TRIREME_EMULATE_FASTEST", (uint64_t)-1);
}

/* The version of CUDA that the driver is for; 0: there is none. */
int emulate_driver(void)
{
    return (int)number("TRIREME_EMULATE_DRIVER", emulate_gpus() > 0 ? CUDART_VERSION : 0);
}

/* Compute capability, without the point. */
int emulate_level(void)
{
    return (int)number("TRIREME_EMULATE_LEVEL", 90);
}

/* Of cuBLASLt, as it says it. */
size_t emulate_cublaslt_version(void)
{
    return number("TRIREME_EMULATE_CUBLASLT", CUBLAS_VERSION);
}

/* Products of so many terms are wrong; 0: none is. */
int64_t emulate_wrong_k(void)
{
    return (int64_t)number("TRIREME_EMULATE_WRONG_K", 0);
}

/* The algorithm by which they are; -1: any. */
int emulate_wrong_algorithm(void)
{
    return (int)number("TRIREME_EMULATE_WRONG_ALGORITHM", (uint64_t)-1);
}

/* What is wrong of them. */
enum emulate_fault emulate_wrong(void)
{
    const char *fault = getenv("TRIREME_EMULATE_WRONG");
    return !fault                      ? EMULATE_LAST_TERM
           : !strcmp(fault, "addend")  ? EMULATE_NO_ADDEND
           : !strcmp(fault, "refusal") ? EMULATE_REFUSAL
                                       : EMULATE_LAST_TERM;
}

/* Of NCCL, as it says it. */
int emulate_nccl_version(void)
{
    return (int)number("TRIREME_EMULATE_NCCL", NCCL_VERSION_CODE);
}

/* What cuBLASLt says of every product in fp8; 0: what it says of those that it knows. */
int emulate_fp8_status(void)
{
    return (int)number("TRIREME_EMULATE_FP8_STATUS", 0);
}

size_t emulate_connection_bytes(void)
{
    return number("TRIREME_EMULATE_CONNECTION", 0);
}

size_t emulate_gpu_bytes(void)
{
    return number("TRIREME_EMULATE_BYTES", (uint64_t)4 << 30);
}
