/* flat.c - see flat.h. */
#include "segment/flat.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"

static void add_tensors(struct flat *flat, const struct graph_param *param, const char *prefix,
                        int64_t offset)
{
    for (int p = 0; p < param->parts; p++) {
        struct flat_tensor *tensor = &flat->tensor[flat->tensors++];
        snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, param->part[p]);
        tensor->dims = param->dims;
        tensor->elems = 1;
        for (int i = 0; i < param->dims; i++) {
            tensor->dim[i] = i == 0 ? param->part_rows[p] : param->dim[i];
            tensor->elems *= tensor->dim[i];
        }
        tensor->offset = offset;
        tensor->init = param->init;
        tensor->std = param->std;
        offset += tensor->elems;
        flat->elems += tensor->elems;
    }
}

static void add_pad(struct flat *flat, int64_t start, int64_t end)
{
    if (end > start)
        flat->pad[flat->pads++] = (struct flat_range){start, end - start};
}

static int64_t round_up(int64_t value, int64_t to)
{
    return (value + to - 1) / to * to;
}

void flat_create(struct flat *flat, const struct graph *graph, const struct model_unit *block,
                 int shards)
{
    size_t params = (size_t)graph->param_count;
    *flat = (struct flat){0};
    flat->tensor = array_make(params * PARAM_PARTS, sizeof *flat->tensor);
    flat->param_offset = array_make(params, sizeof *flat->param_offset);
    flat->pad = array_make(params + 1, sizeof *flat->pad);
    int64_t at = 0;
    for (int i = 0; i < graph->param_count; i++) {
        flat->param_offset[i] = graph->params[i].shared ? -1 : round_up(at, FLAT_ALIGN);
        if (graph->params[i].shared)
            continue;
        add_pad(flat, at, flat->param_offset[i]);
        add_tensors(flat, &graph->params[i], block[graph->params[i].block].prefix,
                    flat->param_offset[i]);
        at = flat->param_offset[i] + graph_param_elems(&graph->params[i]);
    }
    flat->padded = round_up(at, (int64_t)FLAT_ALIGN * shards);
    flat->shard_elems = flat->padded / shards;
    add_pad(flat, at, flat->padded);
}

void flat_destroy(struct flat *flat)
{
    free(flat->tensor);
    free(flat->param_offset);
    free(flat->pad);
    *flat = (struct flat){0};
}
