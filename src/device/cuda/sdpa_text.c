/* sdpa_text.c - cuDNN's plans and properties of GPUs as text.
 *
 * An object of cuDNN is used by one thread alone, from when it is made to when it is destroyed: the
 * library does not say that a plan of one thread and handle may be run by another.  Any thread may
 * read a text.  That of a plan holds the compiled kernels, so that reading it compiles nothing.
 */
#include <stdlib.h>

#include "device/cuda/sdpa_graph.h"

/* An attribute that is text. */
static int write_text(struct sdpa_text *to, cudnnBackendDescriptor_t from,
                      cudnnBackendAttributeName_t name)
{
    int64_t bytes = 0;
    if (cudnnBackendGetAttribute(from, name, CUDNN_TYPE_CHAR, 0, &bytes, NULL) !=
            CUDNN_STATUS_SUCCESS ||
        bytes <= 0)
        return -1;
    to->text = malloc((size_t)bytes);
    if (to->text &&
        cudnnBackendGetAttribute(from, name, CUDNN_TYPE_CHAR, bytes, &to->bytes, to->text) ==
            CUDNN_STATUS_SUCCESS &&
        to->bytes == bytes)
        return 0;
    sdpa_text_free(to);
    return -1;
}

void sdpa_text_free(struct sdpa_text *text)
{
    free(text->text);
    *text = (struct sdpa_text){0};
}

int sdpa_plan_write(struct sdpa_text *text, const struct sdpa_plan *plan)
{
    *text = (struct sdpa_text){.engine = plan->engine, .tensors = plan->tensors};
    return write_text(text, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
}

/* For whom it is, which cuDNN must know before it finalizes a plan of a text. */
static cudnnStatus_t set_target(cudnnBackendDescriptor_t plan, const struct sdpa_target *target)
{
    if (target->handle)
        return cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                        1, &target->handle);
    return cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
}

int sdpa_plan_read(struct sdpa_plan *plan, const struct sdpa_text *text,
                   const struct sdpa_target *target)
{
    *plan = (struct sdpa_plan){.engine = text->engine, .tensors = text->tensors};
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, text->bytes, text->text);
    if (status == CUDNN_STATUS_SUCCESS)
        status = set_target(plan->plan, target);
    return sdpa_plan_finalize(plan, status);
}

/* With one attribute set. */
static int make_properties(cudnnBackendDescriptor_t *made, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    *made = NULL;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, made) !=
        CUDNN_STATUS_SUCCESS)
        return -1;
    if (cudnnBackendSetAttribute(*made, name, type, count, value) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(*made) == CUDNN_STATUS_SUCCESS)
        return 0;
    cudnnBackendDestroyDescriptor(*made);
    *made = NULL;
    return -1;
}

int sdpa_gpu_write(struct sdpa_text *text, int index)
{
    cudnnBackendDescriptor_t properties;
    const int32_t id = index;
    *text = (struct sdpa_text){0};
    if (make_properties(&properties, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id))
        return -1;
    int status = write_text(text, properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    cudnnBackendDestroyDescriptor(properties);
    return status;
}

int sdpa_gpu_read(cudnnBackendDescriptor_t *properties, const struct sdpa_text *text)
{
    return make_properties(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                           text->bytes, text->text);
}
