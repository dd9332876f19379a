/* hf_folder.c - see hf_folder.h. */
#include "tests/unit/hf_folder.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "config/hf.h"
#include "io/disk.h"
#include "io/safetensors.h"
#include "model/names.h"

struct folder {
    const struct model *model;
    struct safetensors_source *source;
    int count, capacity;
};

static int read_numbers(void *user, int source, int64_t start, int64_t count, float *to,
                        struct error *err)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t mixed = (uint32_t)(start + i) * 2654435761u + (uint32_t)source * 40503u;
        to[i] = (float)(mixed >> 8) / (float)(1 << 23) - 1;
    }
    return 0;
}

static int add_tensor(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct folder *folder = user;
    struct model_place place;
    if (model_hf_place(folder->model->family, tensor->name, &place))
        return error_set(err, "%s has no name", tensor->name);
    if (place.part) /* its tensor is there already */
        return 0;
    folder->source =
        array_grow(folder->source, folder->count, &folder->capacity, sizeof *folder->source);
    struct safetensors_source *source = &folder->source[folder->count++];
    *source = (struct safetensors_source){.dims = tensor->dims, .elems = 1, .read = read_numbers};
    snprintf(source->name, sizeof source->name, "%s", place.name);
    for (int d = 0; d < tensor->dims; d++) {
        int stored = place.is_transposed ? tensor->dims - 1 - d : d;
        source->dim[stored] = tensor->dim[d] * (d ? 1 : place.parts);
        source->elems *= source->dim[stored];
    }
    return 0;
}

int hf_folder_write(const struct config *config, enum dtype dtype, int64_t file_bytes,
                    const char *path, struct error *err)
{
    struct folder folder = {0};
    struct model *model;
    if (model_create(&model, &config->model, err))
        return -1;
    folder.model = model;
    int rc =
        disk_make_folders(path, err) || model_each_tensor(model, add_tensor, &folder, err) ||
        safetensors_write(path, "model", folder.source, folder.count, dtype, file_bytes, err) ||
        hf_write_config(config, dtype, NULL, path, err);
    free(folder.source);
    model_destroy(model);
    return rc ? -1 : 0;
}
