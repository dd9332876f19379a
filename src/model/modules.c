/* modules.c - see modules.h. */
#include "model/modules.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

int modules_name(const struct model *model, const char *own, char module[HF_NAME])
{
    return modules_name_of(model, own, 0, module);
}

int modules_name_of(const struct model *model, const char *own, int64_t matrix,
                    char module[HF_NAME])
{
    struct model_place place;
    if (!model->family->names || model_hf_place(model, own, matrix, &place))
        return -1;
    char *end = strrchr(place.name, '.');
    if (end)
        *end = 0;
    snprintf(module, HF_NAME, "%s", place.name);
    return 0;
}

int modules_next(const char **names, char name[HF_NAME])
{
    const char *start = *names + strspn(*names, ", ");
    size_t length = strcspn(start, ", ");
    snprintf(name, HF_NAME, "%.*s", (int)length, start);
    *names = start + length;
    return length > 0;
}

int modules_is_called(const char *module, const char *name)
{
    size_t length = strlen(module), tail = strlen(name);
    if (name[0] == '*')
        return text_ends_with(module, name + 1);
    if (length < tail || strcmp(module + length - tail, name) != 0)
        return 0;
    return length == tail || module[length - tail - 1] == '.';
}

int modules_is_listed(const char *names, const char *module)
{
    char name[HF_NAME];
    while (modules_next(&names, name))
        if (modules_is_called(module, name))
            return 1;
    return 0;
}
