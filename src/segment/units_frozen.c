/* units_frozen.c - see units_frozen.h. */
#include "segment/units_frozen.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/schema.h"
#include "model/adapters.h"
#include "model/modules.h"

const char *units_param_name(char name[FLAT_NAME], const struct graph_param *param, int t,
                             const struct model_unit *block)
{
    snprintf(name, FLAT_NAME, "%s%s", param->is_borrowed ? "" : block[param->block].prefix,
             param->tensor_name[t]);
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

/* What a pattern is compared with: the names of all tensors of a model. */
struct frozen_search {
    const struct model *model;
    const char *pattern;
    int matches;            /* tensors that it matches */
    char called[FLAT_NAME]; /* the first tensor that has it in Hugging Face's files; "": none */
    struct nearest nearest;
    char near[FLAT_NAME]; /* the nearest name */
    char names[512];      /* of the tensors of the first block, and those of no block */
};

/* Is name a tensor's in Hugging Face's files, or its module's? */
static int is_called(const struct model *model, const char *pattern, const char *own)
{
    struct model_place place = {.is_matrix = 1};
    char module[HF_NAME];
    int called = 0;
    for (int64_t matrix = 0; matrix < 2 && place.is_matrix && !called; matrix++) /* of an expert */
        called = model->family->names && !model_hf_place(model, own, matrix, &place) &&
                 (!fnmatch(pattern, place.name, 0) ||
                  (!modules_name_of(model, own, matrix, module) && !fnmatch(pattern, module, 0)));
    return called;
}

/* Has a name a number other than 0, as the tensors of later blocks have?  Blocks are alike, so
 * those of block 0 stand for all. */
static int is_of_later_block(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (dot[1] >= '1' && dot[1] <= '9')
            return 1;
    return 0;
}

static int look_at(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct frozen_search *s = user;
    int before = s->nearest.distance;
    const char *was = s->nearest.name;
    (void)err;
    s->matches += !fnmatch(s->pattern, tensor->name, 0);
    nearest_try(&s->nearest, tensor->name, s->near);
    if (s->nearest.name && (!was || s->nearest.distance != before))
        snprintf(s->near, sizeof s->near, "%s", tensor->name);
    if (!s->called[0] && is_called(s->model, s->pattern, tensor->name))
        snprintf(s->called, sizeof s->called, "%s", tensor->name);
    if (!is_of_later_block(tensor->name))
        text_join(s->names, sizeof s->names, ", ", "%s", tensor->name);
    return 0;
}

/* Refuse a pattern that matches no tensor, saying which one was meant, or else which there are. */
static int check_pattern(const struct model *model, const char *pattern, struct error *err)
{
    struct frozen_search s = {.model = model, .pattern = pattern, .nearest = {.wanted = pattern}};
    if (model_each_tensor(model, look_at, &s, err))
        return -1;
    if (s.matches)
        return 0;
    const char *meant = s.called[0] ? s.called : s.nearest.name;
    return error_set(err, "train.freeze: no tensor is called %.100s; %s%s", pattern,
                     meant ? "did you mean " : "the model has ", meant ? meant : s.names);
}

static int freezes(const struct model *model, const char *patterns, const char *name)
{
    return units_is_frozen(patterns, name) || (model->lora.r && !adapters_train(model, name));
}

/* Set err for two tensors that are stored as one matrix and of which only one is trained, and name
 * the key that says so: lora.modules_to_save or train.freeze.  Returns -1. */
static int error_one_matrix(const struct model *model, const char *one, const char *other,
                            struct error *err)
{
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

static int freeze_unit(const struct model *model, const char *patterns, int unit,
                       struct graph *graph, struct error *err)
{
    const struct model_unit *block = &model->block[model->unit[unit].first];
    for (int i = 0; i < graph->param_count; i++) {
        struct graph_param *param = &graph->params[i];
        char name[FLAT_NAME], first[FLAT_NAME];
        int is_adapter = 0;
        for (int t = 0; t < param->tensors; t++) {
            units_param_name(name, param, t, block);
            int matches = freezes(model, patterns, name);
            if (t > 0 && matches != param->frozen)
                return error_one_matrix(model, units_param_name(first, param, 0, block), name, err);
            param->frozen = matches;
            is_adapter |= model->lora.r && adapters_train(model, name);
        }
        param->frozen_adapter = param->frozen && is_adapter;
    }
    return 0;
}

int units_freeze(const struct units *units, int unit, struct graph *graph, struct error *err)
{
    return freeze_unit(units->model, units->request.freeze, unit, graph, err);
}

/* Refuse tensors of one matrix of which some are frozen and some trained, as units_freeze() does,
 * in the model that is not divided: tensor ranks may have them apart, and another layout is to load
 * the checkpoint. Count the parameters that are trained in *trained. */
static int check_matrices(const struct model *model, const char *patterns, int *trained,
                          struct error *err)
{
    const struct model_graph form = {
        .purpose = MODEL_LOSS, .batch = 1, .seq = {1, 1}, .dtype = DTYPE_F32, .loss_factor = 1};
    int rc = 0;
    *trained = 0;
    for (int u = 0; !rc && u < model->units; u++) {
        struct graph *graph = model_unit_graph(model, u, &form, err);
        rc = graph ? freeze_unit(model, patterns, u, graph, err) : -1;
        for (int i = 0; !rc && i < graph->param_count; i++)
            *trained += !graph->params[i].frozen;
        graph_destroy(graph);
    }
    return rc;
}

int units_check_freeze(const struct model *model, const char *patterns, struct error *err)
{
    char pattern[CONFIG_TEXT];
    const char *rest = patterns;
    int trained;
    while (next_pattern(&rest, pattern))
        if (check_pattern(model, pattern, err))
            return -1;
    if (check_matrices(model, patterns, &trained, err))
        return -1;
    return trained ? 0 : error_set(err, "train.freeze: %.100s leaves nothing to train", patterns);
}

static void freeze_graph(const void *user, int unit, struct graph *graph)
{
    units_freeze(user, unit, graph, NULL); /* units_check_freeze() found nothing to refuse */
}

struct model_flops units_flops_per_token(const struct units *units, int64_t seq)
{
    return model_flops_per_token(units->model, seq, freeze_graph, units);
}
