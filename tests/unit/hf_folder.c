/* hf_folder.c - see hf_folder.h. */
#include "tests/unit/hf_folder.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "config/hf.h"
#include "io/disk.h"
#include "io/safetensors.h"
#include "train/hf_tensors.h"

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

/* Add the tensor of the files that a tensor of the model is in, or that a matrix of it is. */
static int add_place(struct folder *folder, const struct model_tensor *tensor, int64_t matrix,
                     int64_t *count, struct error *err)
{
    struct model_place place;
    const struct box box = box_whole(tensor->dims, tensor->dim);
    if (model_hf_place(folder->model, tensor->name, matrix, &place))
        return error_set(err, "%s has no name", tensor->name);
    *count = hf_tensors_count(&place, &box);
    if (place.number) /* its tensor is there already */
        return 0;
    folder->source =
        array_grow(folder->source, folder->count, &folder->capacity, sizeof *folder->source);
    struct safetensors_source *source = &folder->source[folder->count++];
    *source = (struct safetensors_source){.elems = box_elems(&box) / *count * place.stacked,
                                          .read = read_numbers};
    source->dims = hf_tensors_shape(&place, HF_MODEL, &box, source->dim);
    snprintf(source->name, sizeof source->name, "%s", place.name);
    return 0;
}

static int add_tensor(void *user, const struct model_tensor *tensor, struct error *err)
{
    int64_t count = 1;
    int rc = 0;
    for (int64_t matrix = 0; !rc && matrix < count; matrix++)
        rc = add_place(user, tensor, matrix, &count, err);
    return rc;
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
