/* mesh_memory.c - memory that transfers read and write: a GPU's, by the device or by NCCL, or the
 * host's, which the other ranks of the node can read where the kernel has such memory. */
#include "comm/gpu/nccl.h"
#include "comm/node_memory.h"

/* Does NCCL allocate the memory of this mesh? */
static int is_of_nccl(const struct mesh *mesh)
{
    return mesh && mesh->link && mesh->link->options.copy_engines;
}

void *mesh_alloc(struct mesh *mesh, struct device *device, struct mem *mem, enum mem_pool pool,
                 size_t bytes, struct error *err)
{
    void *block = NULL;
    if (is_of_nccl(mesh)) {
        block = nccl_alloc(bytes);
        if (!block)
            error_set(err,
                      "out of GPU memory that ranks share (comm.copy_engines): %zu bytes for %s",
                      bytes, mem_pool_name(pool));
    } else if (mesh && device->kind == DEVICE_CPU && !mesh->keeps_apart) {
        block = node_memory_alloc(mesh->world, bytes);
    }
    if (block)
        mem_count(mem, pool, bytes);
    else if (!is_of_nccl(mesh))
        block = device_alloc(device, mem, pool, bytes, err);
    return block;
}

void mesh_free(struct mesh *mesh, struct device *device, struct mem *mem, enum mem_pool pool,
               size_t bytes, void *block)
{
    if (!block)
        return;
    if (is_of_nccl(mesh) && !device->given_up)
        nccl_free(block);
    else if (!is_of_nccl(mesh) && !(mesh && node_memory_free(mesh->world, block))) {
        device_free(device, mem, pool, bytes, block);
        return;
    }
    mem_uncount(mem, pool, bytes);
}

int mesh_register(struct mesh *mesh, void *memory, size_t bytes, struct error *err)
{
    return mesh->link ? nccl_register(mesh->link, memory, bytes, err)
                      : node_memory_share(mesh->world, memory, mesh);
}

void mesh_unregister(struct mesh *mesh, void *memory)
{
    if (mesh->link)
        nccl_unregister(mesh->link, memory);
    else
        node_memory_unshare(mesh->world, memory, mesh);
}
