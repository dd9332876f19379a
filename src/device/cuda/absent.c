/* absent.c - the GPU of a build without CUDA: there is none, and every question says so. */
#include "device/driver.h"

#include <stdio.h>

static int open_none(struct device *d, const struct device_request *request, struct error *err)
{
    return error_set(err, "this trireme was built without CUDA: use device=cpu, or configure it "
                          "where nvcc is found (--with-cuda=DIR)");
}

const struct device_driver cuda_driver = {.open = open_none};

static int count(char why[128])
{
    snprintf(why, 128, "this trireme was built without CUDA");
    return 0;
}

static int describe(int index, struct device_gpu *gpu, struct error *err)
{
    return error_set(err, "this trireme was built without CUDA");
}

static int peers(int index, int peer)
{
    return 0;
}

static const char *libraries(char text[256])
{
    snprintf(text, 256, "none");
    return text;
}

static void use(int index)
{
}

const struct device_discovery cuda_discovery = {
    .built_in = 0,
    .count = count,
    .describe = describe,
    .peers = peers,
    .use = use,
    .libraries = libraries,
};
