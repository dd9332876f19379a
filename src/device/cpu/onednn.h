/* onednn.h - what differs between the C APIs of oneDNN 2 and oneDNN 3, and nothing else. */
#ifndef TRIREME_DEVICE_CPU_ONEDNN_H
#define TRIREME_DEVICE_CPU_ONEDNN_H

#include <dnnl.h>

#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *onednn_md; /* a descriptor as functions take it */

static inline dnnl_status_t onednn_md_create(dnnl_memory_desc_t *md, dnnl_data_type_t type,
                                             const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides);
}

static inline void onednn_md_destroy(dnnl_memory_desc_t *md)
{
}

static inline onednn_md onednn_md_of(const dnnl_memory_desc_t *md)
{
    return md;
}

static inline dnnl_status_t onednn_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static inline dnnl_status_t onednn_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                          onednn_md a, onednn_md b, onednn_md c,
                                          const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, NULL, c);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL)
                                  : status;
}
#else
typedef const_dnnl_memory_desc_t onednn_md;

static inline dnnl_status_t onednn_md_create(dnnl_memory_desc_t *md, dnnl_data_type_t type,
                                             const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(md, 2, dims, type, strides);
}

static inline void onednn_md_destroy(dnnl_memory_desc_t *md)
{
    dnnl_memory_desc_destroy(*md);
}

static inline onednn_md onednn_md_of(const dnnl_memory_desc_t *md)
{
    return *md;
}

static inline dnnl_status_t onednn_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static inline dnnl_status_t onednn_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                          onednn_md a, onednn_md b, onednn_md c,
                                          const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, a, b, NULL, c, attr);
}
#endif

#endif
