/* adapters_saved.c - translate between lora.modules_to_save and peft's modules_to_save.
 *
 * Both are lists of names of modules.  trireme compares a name with the last words of a module's
 * path, peft with its last letters:
 *
 *   "norm"              is to trireme  model.norm
 *                       is to peft     model.norm, and every input_layernorm,
 *                                      post_attention_layernorm, q_norm and k_norm
 *
 *   peft's "norm"       becomes  norm,input_layernorm,post_attention_layernorm,...
 *   trireme's "norm"    becomes  model.norm
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/adapters.h"
#include "model/modules.h"

/* A name of a list, and the modules that have it. */
struct saved_name {
    const struct model *model;
    const char *name;
    char *to;   /* the other list, of CONFIG_TEXT bytes, to which names are added */
    int called; /* tensors of modules that the name is to trireme, */
    int ending; /* and that it is to peft; */
    int others; /* those of the latter that the model's lora.modules_to_save does not have */
};

static int count_module(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct saved_name *saved = user;
    char module[HF_NAME];
    if (adapters_own(tensor->name) || modules_name(saved->model, tensor->name, module) ||
        !text_ends_with(module, saved->name))
        return 0;
    saved->ending++;
    saved->called += modules_is_called(module, saved->name);
    saved->others += !modules_is_listed(saved->model->lora.modules_to_save, module);
    return 0;
}

/* Take the next name from *names into `name`, and count the modules that have it.  Returns 1; or 0
 * at the end, and -1 with err set. */
static int next_name(struct saved_name *saved, const char **names, char name[HF_NAME],
                     struct error *err)
{
    if (!modules_next(names, name))
        return 0;
    *saved = (struct saved_name){.model = saved->model, .name = name, .to = saved->to};
    return model_each_tensor(saved->model, count_module, saved, err) ? -1 : 1;
}

/* Add the last word of the path of a module that has the name to peft.  All blocks have the same
 * modules, so that the word stands for those of all blocks. */
static int add_ending(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct saved_name *saved = user;
    char module[HF_NAME];
    if (adapters_own(tensor->name) || modules_name(saved->model, tensor->name, module) ||
        !text_ends_with(module, saved->name) || modules_is_listed(saved->to, module))
        return 0;
    const char *dot = strrchr(module, '.');
    text_join(saved->to, CONFIG_TEXT, ",", "%s", dot ? dot + 1 : module);
    return 0;
}

/* Add the path of a module that has the name to trireme. */
static int add_path(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct saved_name *saved = user;
    char module[HF_NAME];
    if (!adapters_own(tensor->name) && !modules_name(saved->model, tensor->name, module) &&
        modules_is_called(module, saved->name) && !modules_is_listed(saved->to, module))
        text_join(saved->to, CONFIG_TEXT, ",", "%s", module);
    return 0;
}

static int check_length(const char *names, struct error *err)
{
    return strlen(names) < CONFIG_TEXT - 1
               ? 0
               : error_set(err,
                           "lora.modules_to_save: the names of all modules are longer than %d "
                           "characters",
                           CONFIG_TEXT);
}

int adapters_saved_read(const struct model *model, const char *names, char to[CONFIG_TEXT],
                        struct error *err)
{
    struct saved_name saved = {.model = model, .to = to};
    char name[HF_NAME];
    int next;
    to[0] = 0;
    while ((next = next_name(&saved, &names, name, err)) > 0) {
        if (saved.called || !saved.ending)
            text_join(to, CONFIG_TEXT, ",", "%s", name);
        if (model_each_tensor(model, add_ending, &saved, err))
            return -1;
    }
    return next ? -1 : check_length(to, err);
}

int adapters_saved_write(const struct model *model, char to[CONFIG_TEXT], struct error *err)
{
    struct saved_name saved = {.model = model, .to = to};
    const char *names = model->lora.modules_to_save;
    char name[HF_NAME];
    int next;
    to[0] = 0;
    while ((next = next_name(&saved, &names, name, err)) > 0) {
        if (!saved.others)
            text_join(to, CONFIG_TEXT, ",", "%s", name);
        else if (model_each_tensor(model, add_path, &saved, err))
            return -1;
    }
    return next ? -1 : check_length(to, err);
}
