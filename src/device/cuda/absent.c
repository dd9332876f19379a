/* absent.c - the GPU of a build without CUDA: there is none, and every question says so. */
#include "device/driver.h"

#include <stdio.h>

static int open_none(struct device *d, const struct device_request *request, struct error *err)
{
    return error_set(err, "this trireme was built without CUDA: use device=cpu, or configure it "
                          "where nvcc is found (--with-cuda=DIR)");
}

const struct device_driver cuda_driver = {.open = open_none};

int device_gpu_built_in(void)
{
    return 0;
}

int device_gpu_count(char why[128])
{
    snprintf(why, 128, "this trireme was built without CUDA");
    return 0;
}

int device_gpu_describe(int index, struct device_gpu *gpu, struct error *err)
{
    return error_set(err, "this trireme was built without CUDA");
}

int device_gpu_check_fp8(const struct device_gpu *gpu, struct error *err)
{
    return error_set(err, "a build with CUDA");
}

int device_gpu_peers(int index, int peer)
{
    return 0;
}

const char *device_gpu_libraries(char text[256])
{
    snprintf(text, 256, "none");
    return text;
}

void device_gpu_use(int index)
{
}
