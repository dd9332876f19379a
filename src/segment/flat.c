/* flat.c - lay tensors end to end, and find them again; see flat.h. */
#include "segment/flat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"

/* Returns where they end. */
static int64_t add_tensors(struct flat *flat, const struct graph_param *param, const char *prefix,
                           int64_t offset)
{
    for (int p = 0; p < param->tensors; p++) {
        struct flat_tensor *tensor = &flat->tensor[flat->tensors++];
        snprintf(tensor->name, sizeof tensor->name, "%s%s", prefix, param->tensor_name[p]);
        tensor->box = param->box[p];
        tensor->elems = box_elems(&tensor->box);
        tensor->offset = offset;
        tensor->init = param->init;
        tensor->std = param->std;
        offset += tensor->elems;
        flat->elems += tensor->elems;
    }
    return offset;
}

static void add_pad(struct flat *flat, int64_t start, int64_t end)
{
    if (end > start)
        flat->pad[flat->pads++] = (struct flat_range){start, end - start};
}

void flat_create(struct flat *flat, const char *name, int unit, const struct graph *graph,
                 const struct model_unit *unit_block, const char *takes, int shards, int64_t block)
{
    size_t params = (size_t)graph->param_count;
    int64_t align = block > FLAT_ALIGN ? block : FLAT_ALIGN;
    *flat = (struct flat){.unit = unit, .trained = 1, .block = block};
    snprintf(flat->name, sizeof flat->name, "%s", name);
    flat->tensor = array_make(params * PARAM_TENSORS, sizeof *flat->tensor);
    flat->pad = array_make(params + 1, sizeof *flat->pad);
    int64_t end = 0;
    for (int i = 0; i < graph->param_count; i++) {
        const struct graph_param *param = &graph->params[i];
        if (takes ? !takes[i] : param->is_borrowed)
            continue;
        int64_t offset = round_up(end, align);
        add_pad(flat, end, offset);
        end = add_tensors(flat, param, unit_block[param->block].prefix, offset);
    }
    flat->padded = round_up(end, align * shards);
    flat->shard_elems = flat->padded / shards;
    add_pad(flat, end, flat->padded);
}

void flat_destroy(struct flat *flat)
{
    free(flat->tensor);
    free(flat->pad);
    *flat = (struct flat){0};
}

int64_t flat_whole_elems(const struct flat *flat)
{
    int64_t elems = 0;
    for (int t = 0; t < flat->tensors; t++) {
        struct box whole = box_whole(flat->tensor[t].box.dims, flat->tensor[t].box.whole);
        elems += box_elems(&whole);
    }
    return elems;
}

int flat_find(const struct flat *flat, const char *name)
{
    for (int t = 0; t < flat->tensors; t++)
        if (!strcmp(flat->tensor[t].name, name))
            return t;
    return -1;
}

int flat_next_part(const struct flat *flat, int64_t from, int64_t to, int after,
                   struct flat_part *part)
{
    for (int t = after + 1; t < flat->tensors; t++) {
        const struct flat_tensor *tensor = &flat->tensor[t];
        int64_t start = tensor->offset > from ? tensor->offset : from;
        int64_t end = tensor->offset + tensor->elems < to ? tensor->offset + tensor->elems : to;
        if (start >= end)
            continue;
        *part = (struct flat_part){tensor, start - tensor->offset, end - start, start - from};
        return t;
    }
    return -1;
}
