/* sdpa_absent.c - attention in a build without cuDNN: the own kernels do it all. */
#include <stdio.h>

#include "device/cuda/sdpa.h"
#include "device/cuda/state.h"

int cuda_sdpa_open(struct device *d, struct error *err)
{
    return 0;
}

void cuda_sdpa_close(struct device *d)
{
}

int cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                      const void *qkv, void *scratch, size_t scratch_bytes)
{
    return 0;
}

int cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv, const void *dout,
                       const void *o, const float *lse, const void *qkv, void *scratch,
                       size_t scratch_bytes)
{
    return 0;
}

void cuda_sdpa_prepare(struct device *d, const struct attention *a, enum device_pass pass)
{
}

void cuda_sdpa_refuse(struct device *d, const struct attention *a, enum device_pass pass,
                      const char *why)
{
}

void cuda_sdpa_set_tile_tokens(struct device *d, int64_t tokens)
{
}

size_t cuda_sdpa_scratch(const struct attention *a, enum device_pass pass)
{
    return 0;
}

const char *cuda_sdpa_library(char text[64])
{
    snprintf(text, 64, "no cuDNN");
    return text;
}

void cuda_sdpa_report(const struct device *d, struct device_attention *a)
{
    *a = (struct device_attention){.by_own = 1};
}
