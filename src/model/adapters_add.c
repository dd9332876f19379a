/* adapters_add.c - adapters_add(): checks the adapters that a run asks for against the modules that
 * the model has. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/adapters.h"
#include "model/modules.h"

/* What look_at() finds out about a model's modules. */
struct modules {
    const struct model *model;
    const char *name;            /* the name that is looked for */
    char linear[512], all[1024]; /* names of linear layers and of all modules, for messages */
    int linears, modules;        /* how many linear layers and modules have the name, */
    int experts;                 /* and how many experts and routers */
};

static void add_name(char *names, size_t bytes, const char *module)
{
    const char *dot = strrchr(module, '.'), *word = dot ? dot + 1 : module;
    if (!modules_is_listed(names, word))
        text_join(names, bytes, ", ", "%s", word);
}

/* Experts and routers stay as they are beside adapters. */
static void look_at_experts(struct modules *m, const struct model_tensor *tensor)
{
    char module[HF_NAME];
    int64_t matrices = 1;
    for (int d = 0; d < tensor->dims - 2; d++)
        matrices *= tensor->dim[d];
    for (int64_t i = 0; i < matrices; i++)
        m->experts += !modules_name_of(m->model, tensor->name, i, module) &&
                      modules_is_called(module, m->name);
}

static int look_at(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct modules *m = user;
    char module[HF_NAME];
    if (tensor->is_of_experts)
        look_at_experts(m, tensor);
    if (tensor->is_of_experts || adapters_own(tensor->name) ||
        modules_name(m->model, tensor->name, module))
        return 0;
    add_name(m->all, sizeof m->all, module);
    if (tensor->is_linear)
        add_name(m->linear, sizeof m->linear, module);
    m->modules += modules_is_called(module, m->name);
    m->linears += tensor->is_linear && modules_is_called(module, m->name);
    return 0;
}

static int check_names(const struct model *model, const char *key, const char *names, int linear,
                       struct error *err)
{
    char name[HF_NAME];
    while (modules_next(&names, name)) {
        struct modules m = {.model = model, .name = name};
        if (linear && name[0] == '*')
            return error_set(err, "%s: %s has a *, which is of lora.modules_to_save; name modules",
                             key, name);
        if (model_each_tensor(model, look_at, &m, err))
            return -1;
        if (m.experts)
            return error_set(err,
                             "%s: %s is of the experts of a mixture, or of the router that chooses "
                             "among them, and neither is adapted or trained beside adapters; these "
                             "are the others: %s",
                             key, name, linear ? m.linear : m.all);
        if (linear ? m.linears : m.modules)
            continue;
        if (m.modules)
            return error_set(err,
                             "%s: %s is no linear layer of a block; these can be adapted: %s; "
                             "lora.modules_to_save trains any module whole",
                             key, name, m.linear);
        return error_set(err, "%s: the model has no module \"%s\"; it has: %s%s", key, name,
                         linear ? m.linear : m.all,
                         linear && !model->config.experts.count ? "; all-linear is every one" : "");
    }
    return 0;
}

/* Does a module get an adapter? */
static int is_target(const struct model *model, const char *module)
{
    return adapters_are_everywhere(&model->lora) ||
           modules_is_listed(model->lora.target_modules, module);
}

/* Blocks have the same adapters: a list that names the modules of some has to name those of all. */
static int check_alike(void *user, const struct model_tensor *tensor, struct error *err)
{
    const struct model *model = user;
    const struct config_lora *lora = &model->lora;
    char module[HF_NAME], first[HF_NAME], own[MODEL_TENSOR];
    int rest = 0;
    sscanf(tensor->name, "layers.%*[0-9].%n", &rest);
    if (!rest || !tensor->is_linear || adapters_own(tensor->name))
        return 0;
    snprintf(own, sizeof own, "layers.0.%s", tensor->name + rest);
    if (modules_name(model, tensor->name, module) || modules_name(model, own, first))
        return 0;
    int differs = is_target(model, module) != is_target(model, first);
    const char *key = differs ? "lora.target_modules" : "lora.modules_to_save";
    if (!differs && is_target(model, module))
        differs = modules_is_listed(lora->modules_to_save, module) !=
                  modules_is_listed(lora->modules_to_save, first);
    return differs ? error_set(err,
                               "%s names one of %s and %s, and not the other; all blocks have the "
                               "same adapters: name the module without its number, \"%s\"",
                               key, first, module, strrchr(module, '.') + 1)
                   : 0;
}

/* Count the matrices that get adapters. */
static int count_adapted(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct modules *m = user;
    char module[HF_NAME];
    (void)err;
    if (!tensor->is_linear || adapters_own(tensor->name) ||
        modules_name(m->model, tensor->name, module))
        return 0;
    m->linears +=
        is_target(m->model, module) && !modules_is_listed(m->model->lora.modules_to_save, module);
    return 0;
}

/* What is trained whole gets no adapter: does anything get one? */
static int check_any(const struct model *model, struct error *err)
{
    struct modules m = {.model = model};
    if (model_each_tensor(model, count_adapted, &m, err))
        return -1;
    if (m.linears)
        return 0;
    return error_set(err,
                     "lora.modules_to_save trains all modules of lora.target_modules (%.200s) "
                     "whole, so that there are no adapters; name other lora.target_modules, or "
                     "leave lora.r out and freeze the rest by train.freeze",
                     model->lora.target_modules);
}

/* The modules that peft adapts where none are named. */
static const char *default_targets(const struct model *model)
{
    return !strcmp(model->family->name, "gpt2") ? "c_attn" : "q_proj, v_proj";
}

int adapters_add(struct model *model, const struct config_lora *lora, struct error *err)
{
    if (!lora->r)
        return 0;
    model->lora = *lora;
    if (!lora->target_modules[0])
        snprintf(model->lora.target_modules, sizeof model->lora.target_modules, "%s",
                 default_targets(model));
    const char *saved = model->lora.modules_to_save;
    if (adapters_are_everywhere(lora) && model->config.experts.count)
        return error_set(err,
                         "lora.target_modules is all-linear, which to peft is also the experts "
                         "and routers of a model that has some, and these are not adapted "
                         "here; name modules: lora.target_modules=q_proj,k_proj,v_proj,o_proj");
    if (!adapters_are_everywhere(lora) &&
        check_names(model, "lora.target_modules", model->lora.target_modules, 1, err))
        return -1;
    if (model->config.tie_embeddings &&
        (modules_is_listed(saved, "model.embed_tokens") ||
         modules_is_listed(saved, "transformer.wte") || modules_is_listed(saved, "lm_head")))
        return error_set(err, "lora.modules_to_save names the embedding or the head, which are one "
                              "matrix in this model (model.tie_embeddings); leave both out");
    if (check_names(model, "lora.modules_to_save", saved, 0, err) ||
        model_each_tensor(model, check_alike, model, err) || check_any(model, err))
        return -1;
    return 0;
}
