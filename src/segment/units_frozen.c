/* units_frozen.c - see units_frozen.h. */
#include "segment/units_frozen.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/schema.h"
#include "model/adapters.h"
#include "model/modules.h"

const char *units_param_name(char name[FLAT_NAME], const struct graph_param *param, int p,
                             const struct model_unit *block)
{
    snprintf(name, FLAT_NAME, "%s%s", param->shared ? "" : block[param->block].prefix,
             param->part[p]);
    return name;
}

/* The next of patterns, which have commas and spaces between them; 0 where there is none. */
static int next_pattern(const char **patterns, char pattern[CONFIG_TEXT])
{
    if (!*patterns)
        return 0;
    const char *start = *patterns + strspn(*patterns, ", ");
    size_t length = strcspn(start, ", ");
    snprintf(pattern, CONFIG_TEXT, "%.*s", (int)length, start);
    *patterns = start + length;
    return length > 0;
}

int units_is_frozen(const char *patterns, const char *name)
{
    char pattern[CONFIG_TEXT];
    while (next_pattern(&patterns, pattern))
        if (!fnmatch(pattern, name, 0))
            return 1;
    return 0;
}

static int matches_tensor(const struct units *units, const char *pattern)
{
    for (int f = 0; f < units->flats; f++)
        for (int t = 0; t < units->flat[f].tensors; t++)
            if (!fnmatch(pattern, units->flat[f].tensor[t].name, 0))
                return 1;
    return 0;
}

/* Is name a tensor's in Hugging Face's files, or its module's? */
static int is_called(const struct units *units, const char *pattern, const char *own)
{
    const struct model *model = units->model;
    struct model_place place;
    char module[HF_NAME];
    return model->family->names && !model_hf_place(model->family, own, &place) &&
           (!fnmatch(pattern, place.name, 0) ||
            (!modules_name(model, own, module) && !fnmatch(pattern, module, 0)));
}

/* Of alike blocks one stands for all: has a name another number than 0? */
static int is_of_later_block(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (dot[1] >= '1' && dot[1] <= '9')
            return 1;
    return 0;
}

/* A pattern is no tensor's name: which one is, and else, which there are. */
static int error_no_tensor(const struct units *units, const char *pattern, struct error *err)
{
    struct nearest nearest = {.wanted = pattern};
    const char *meant = NULL;
    char names[512] = "";
    for (int f = 0; f < units->flats; f++)
        for (int t = 0; t < units->flat[f].tensors; t++) {
            const char *own = units->flat[f].tensor[t].name;
            nearest_try(&nearest, own, own);
            if (!meant && is_called(units, pattern, own))
                meant = own;
            if (!is_of_later_block(own))
                text_join(names, sizeof names, ", ", "%s", own);
        }
    meant = meant ? meant : nearest.name;
    return error_set(err, "train.freeze: no tensor is called %.100s; %s%s", pattern,
                     meant ? "did you mean " : "the model has ", meant ? meant : names);
}

static int freezes(const struct units *units, const char *name)
{
    const struct model *model = units->model;
    return units_is_frozen(units->request.freeze, name) ||
           (model->lora.r && !adapters_train(model, name));
}

/* Parts of one matrix that are frozen and trained: by which key? */
static int error_one_matrix(const struct units *units, const char *one, const char *other,
                            struct error *err)
{
    const struct model *model = units->model;
    char module[HF_NAME], other_module[HF_NAME];
    if (model->lora.r && adapters_train(model, one) != adapters_train(model, other) &&
        !modules_name(model, one, module) && !modules_name(model, other, other_module))
        return error_set(err,
                         "lora.modules_to_save: %s and %s are stored as one matrix: name both or "
                         "neither",
                         module, other_module);
    return error_set(err,
                     "train.freeze: %s and %s are stored as one matrix: freeze both or neither",
                     one, other);
}

int units_freeze(const struct units *units, int unit, struct graph *graph, struct error *err)
{
    const struct model_unit *block = &units->model->block[units->model->unit[unit].first];
    for (int i = 0; i < graph->param_count; i++) {
        struct graph_param *param = &graph->params[i];
        char name[FLAT_NAME], first[FLAT_NAME];
        int is_adapter = 0;
        for (int p = 0; p < param->parts; p++) {
            units_param_name(name, param, p, block);
            int matches = freezes(units, name);
            if (p > 0 && matches != param->frozen)
                return error_one_matrix(units, units_param_name(first, param, 0, block), name, err);
            param->frozen = matches;
            is_adapter |= units->model->lora.r && adapters_train(units->model, name);
        }
        param->frozen_adapter = param->frozen && is_adapter;
    }
    return 0;
}

/* Refuse parts of one matrix that are frozen and trained, as units_freeze() does, in the model that
 * is not divided: tensor ranks may have them apart, and another layout is to load the checkpoint.
 */
static int check_matrices(const struct units *units, struct error *err)
{
    const struct model_graph form = {
        .purpose = MODEL_LOSS, .batch = 1, .seq = {1, 1}, .dtype = DTYPE_F32, .loss_factor = 1};
    int rc = 0;
    for (int u = 0; !rc && u < units->model->units; u++) {
        struct graph *graph = model_unit_graph(units->model, u, &form, err);
        rc = graph ? units_freeze(units, u, graph, err) : -1;
        graph_destroy(graph);
    }
    return rc;
}

int units_check_freeze(const struct units *units, struct error *err)
{
    const char *patterns = units->request.freeze;
    char pattern[CONFIG_TEXT];
    int trained = 0;
    while (next_pattern(&patterns, pattern))
        if (!matches_tensor(units, pattern))
            return error_no_tensor(units, pattern, err);
    if (check_matrices(units, err))
        return -1;
    for (int f = 0; f < units->flats; f++)
        trained |= units->flat[f].trained;
    return trained ? 0
                   : error_set(err, "train.freeze: %.100s leaves nothing to train",
                               units->request.freeze);
}

static void freeze_graph(const void *user, int unit, struct graph *graph)
{
    units_freeze(user, unit, graph, NULL); /* units_check_freeze() found nothing to refuse */
}

struct model_flops units_flops_per_token(const struct units *units, int64_t seq)
{
    return model_flops_per_token(units->model, seq, freeze_graph, units);
}
