/* adapters_saved.c - write lora.modules_to_save as peft's modules_to_save.
 *
 * Both are lists of names of modules.  trireme compares a name with the last words of a module's
 * path, and only one that begins with "*", as peft does any, with its last letters:
 *
 *   "norm"              is to trireme  model.norm
 *   "*norm", and to peft "norm", is    model.norm, and every input_layernorm,
 *                                      post_attention_layernorm, q_norm and k_norm
 *
 *   peft's "norm"       becomes  *norm         (config/adapter.c, which takes the * away again)
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
    int others; /* tensors of modules that have the name to peft, and that the model's
                   lora.modules_to_save does not have */
};

static int count_module(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct saved_name *saved = user;
    char module[HF_NAME];
    (void)err;
    if (adapters_own(tensor->name) || modules_name(saved->model, tensor->name, module) ||
        !text_ends_with(module, saved->name))
        return 0;
    saved->others += !modules_is_listed(saved->model->lora.modules_to_save, module);
    return 0;
}

/* Add the path of a module that has the name to trireme. */
static int add_path(void *user, const struct model_tensor *tensor, struct error *err)
{
    struct saved_name *saved = user;
    char module[HF_NAME];
    (void)err;
    if (!adapters_own(tensor->name) && !modules_name(saved->model, tensor->name, module) &&
        modules_is_called(module, saved->name) && !modules_is_listed(saved->to, module))
        text_join(saved->to, CONFIG_TEXT, ",", "%s", module);
    return 0;
}

int adapters_saved_write(const struct model *model, char to[CONFIG_TEXT], struct error *err)
{
    const char *names = model->lora.modules_to_save;
    char name[HF_NAME];
    to[0] = 0;
    while (modules_next(&names, name)) {
        struct saved_name saved = {.model = model, .name = name, .to = to};
        if (model_each_tensor(model, count_module, &saved, err))
            return -1;
        if (!saved.others)
            text_join(to, CONFIG_TEXT, ",", "%s", name);
        else if (model_each_tensor(model, add_path, &saved, err))
            return -1;
    }
    return strlen(to) < CONFIG_TEXT - 1
               ? 0
               : error_set(err,
                           "lora.modules_to_save: the names of all modules are longer than %d "
                           "characters",
                           CONFIG_TEXT);
}
