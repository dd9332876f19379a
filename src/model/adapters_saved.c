/* adapters_saved.c - lora.modules_to_save and that of peft's files.
 *
 * Here a name is that of a module, or the last words of its path: "norm" is model.norm alone.  To
 * peft it is how a path ends, letter by letter: "norm" is model.norm and every input_layernorm,
 * post_attention_layernorm, q_norm and k_norm.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/adapters.h"
#include "model/modules.h"

/* A name that is looked for among a model's modules. */
struct saved_name {
    const struct model *model;
    const char *name;
    char *to;                   /* a list that is made of names, of CONFIG_TEXT bytes */
    int called, ending, others; /* tensors of modules that are called so; whose paths end so; of
                                 * the latter, those that are not trained */
};

static int count_modules(void *user, const struct model_tensor *tensor, struct error *err)
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

/* Add the last word of a path that ends so: of blocks all have the same modules. */
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

/* Add the path of a module that is called so. */
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
    char name[HF_NAME];
    to[0] = 0;
    while (modules_next(&names, name)) {
        struct saved_name saved = {.model = model, .name = name, .to = to};
        if (model_each_tensor(model, count_modules, &saved, err))
            return -1;
        if (saved.called || !saved.ending)
            text_join(to, CONFIG_TEXT, ",", "%s", name);
        if (saved.ending && model_each_tensor(model, add_ending, &saved, err))
            return -1;
    }
    return check_length(to, err);
}

int adapters_saved_write(const struct model *model, char to[CONFIG_TEXT], struct error *err)
{
    const char *names = model->lora.modules_to_save;
    char name[HF_NAME];
    to[0] = 0;
    while (modules_next(&names, name)) {
        struct saved_name saved = {.model = model, .name = name, .to = to};
        if (model_each_tensor(model, count_modules, &saved, err))
            return -1;
        if (!saved.others)
            text_join(to, CONFIG_TEXT, ",", "%s", name);
        else if (model_each_tensor(model, add_path, &saved, err))
            return -1;
    }
    return check_length(to, err);
}
