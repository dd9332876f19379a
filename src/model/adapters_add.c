/* adapters_add.c - the adapters that are asked for, checked against the modules that a model has.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/adapters.h"
#include "model/modules.h"

/* What modules a model has. */
struct modules {
    const struct model *model;
    const char *name;            /* that is looked for */
    char linear[512], all[1024]; /* names, for messages */
    int linears, modules;        /* that are called so */
};

static void add_name(char *names, size_t bytes, const char *module)
{
    const char *dot = strrchr(module, '.'), *word = dot ? dot + 1 : module;
    if (!modules_is_listed(names, word))
        text_join(names, bytes, ", ", "%s", word);
}

static int look_at(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct modules *m = user;
    char module[HF_NAME];
    if (adapters_own(tensor->name) || modules_name(m->model, tensor->name, module))
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
        if (model_each_tensor(model, look_at, &m, err))
            return -1;
        if (linear ? m.linears : m.modules)
            continue;
        if (m.modules)
            return error_set(err,
                             "%s: %s is no linear layer of a block; these can be adapted: %s; "
                             "lora.modules_to_save trains any module whole",
                             key, name, m.linear);
        return error_set(err, "%s: the model has no module \"%s\"; it has: %s", key, name,
                         linear ? m.linear : m.all);
    }
    return 0;
}

/* Those that peft adapts where none are named. */
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
    if (!adapters_are_everywhere(lora) &&
        check_names(model, "lora.target_modules", model->lora.target_modules, 1, err))
        return -1;
    if (check_names(model, "lora.modules_to_save", lora->modules_to_save, 0, err))
        return -1;
    if (model->config.tie_embeddings &&
        (modules_is_listed(lora->modules_to_save, "model.embed_tokens") ||
         modules_is_listed(lora->modules_to_save, "transformer.wte") ||
         modules_is_listed(lora->modules_to_save, "lm_head")))
        return error_set(err, "lora.modules_to_save names the embedding or the head, which are one "
                              "matrix in this model (model.tie_embeddings); leave both out");
    return 0;
}
