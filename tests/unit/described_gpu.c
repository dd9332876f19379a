/* described_gpu.c - a libcuda.so.1 for machines without a driver, by which cuDNN makes real plans.
 *
 * cuDNN finishes a plan by compiling its kernel (NVRTC, which needs no GPU) and giving it to the
 * driver to load.  This driver takes whatever it is given and does nothing, so everything up to
 * running the plan is the library's own: which engine it chooses, whether the kernel compiles, how
 * much workspace it wants.  What the GPU is like is said by the test, in a descriptor.
 *
 * Only what cuDNN looks up by name is here.
 */
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int index);
int cuCtxGetCurrent(void **context);
int cuLibraryLoadData(void **library);
int cuLibraryLoadFromFile(void **library);
int cuLibraryGetKernel(void **kernel);
int cuLinkCreate(unsigned options, void *names, void *values, void **link);
int cuLinkComplete(void *link, void **image, unsigned long *bytes);
int cuKernelGetAttribute(int *value);
int cuOccupancyMaxPotentialClusterSize(int *size);

static int something; /* what handles point to */

static int give(void **handle)
{
    *handle = &something;
    return 0;
}

static int answer(int *value, int number)
{
    *value = number;
    return 0;
}

int cuDriverGetVersion(int *version)
{
    return answer(version, 13000);
}

int cuDeviceGetCount(int *count)
{
    return answer(count, 1);
}

int cuDeviceGet(int *device, int index)
{
    return answer(device, index);
}

int cuCtxGetCurrent(void **context)
{
    return give(context);
}

int cuLibraryLoadData(void **library)
{
    return give(library);
}

int cuLibraryLoadFromFile(void **library)
{
    return give(library);
}

int cuLibraryGetKernel(void **kernel)
{
    return give(kernel);
}

int cuLinkCreate(unsigned options, void *names, void *values, void **link)
{
    return give(link);
}

int cuLinkComplete(void *link, void **image, unsigned long *bytes)
{
    *bytes = sizeof something;
    return give(image);
}

int cuKernelGetAttribute(int *value)
{
    return answer(value, 1024);
}

int cuOccupancyMaxPotentialClusterSize(int *size)
{
    return answer(size, 8);
}

#define SUCCEEDS(name) \
    int name(void);    \
    int name(void)     \
    {                  \
        return 0;      \
    }

SUCCEEDS(cuGetErrorName)
SUCCEEDS(cuGetErrorString)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuStreamGetCtx)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuKernelSetAttribute)
