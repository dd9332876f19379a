/* cudnn.cc - a cuDNN that has an engine for nothing, so that the own kernels are what is tested.
 *
 * Graphs may be described; to finish one is not supported, as for shapes the library lacks.
 */
#include <cudnn.h>
#include <stdio.h>
#include <string.h>

struct cudnnContext {
    cudaStream_t stream;
};

namespace
{

struct descriptor {
    cudnnBackendDescriptorType_t type;
};

thread_local const char *last_words = "";

cudnnStatus_t refuse(cudnnStatus_t status, const char *words)
{
    last_words = words;
    return status;
}

} // namespace

extern "C" {

size_t CUDNNWINAPI cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

size_t CUDNNWINAPI cudnnGetMaxDeviceVersion(void)
{
    return CUDNN_MAX_DEVICE_VERSION;
}

size_t CUDNNWINAPI cudnnGetCudartVersion(void)
{
    return CUDART_VERSION;
}

const char *CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return "CUDNN_STATUS_SUCCESS";
    switch (status / 1000) {
    case 2: return "CUDNN_STATUS_BAD_PARAM";
    case 3: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
    }
}

void CUDNNWINAPI cudnnGetLastErrorString(char *message, size_t size)
{
    snprintf(message, size, "%s", last_words);
}

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t *handle)
{
    *handle = new cudnnContext{NULL};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle)
{
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!handle)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream)
{
    if (!handle || !stream)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle");
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t *made)
{
    if (!made)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for a descriptor");
    *made = new descriptor{type};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    delete (descriptor *)d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                                   cudnnBackendAttributeName_t,
                                                   cudnnBackendAttributeType_t, int64_t count,
                                                   const void *values)
{
    if (!d || (count && !values))
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute without values");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    if (!d)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    if (((descriptor *)d)->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "the emulation has no engines");
    return CUDNN_STATUS_SUCCESS;
}

/* Of a GPU's properties a text; nothing else. */
cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(cudnnBackendDescriptor_t const,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t, int64_t room,
                                                   int64_t *count, void *values)
{
    static const char properties[2] = {'{', '}'};
    if (name == CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION && count) {
        *count = sizeof properties;
        if (values && room >= *count)
            memcpy(values, properties, sizeof properties);
        return CUDNN_STATUS_SUCCESS;
    }
    if (count)
        *count = 0;
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the emulation has no engines");
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t,
                                              cudnnBackendDescriptor_t)
{
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the emulation has no engines");
}

} // extern "C"
