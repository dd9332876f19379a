/* adapters.c - see adapters.h.
 *
 * Users name modules as Hugging Face's files do: "q_proj" is every module of that name,
 * "mlp.up_proj" those whose path ends so, "all-linear" every linear layer of the blocks.  The
 * family's table (names.h) says which module a tensor is of.
 *
 * On tensor ranks the adapter of a matrix is divided as that is, and needs no exchange of its own:
 *
 *   W by rows      A whole, gradient a term     B by rows
 *   W by columns   A by columns                 B whole, gradient a term    u and y are terms
 */
#include "model/adapters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "graph/build.h"
#include "model/modules.h"

static const char suffix_a[] = ".lora_A", suffix_b[] = ".lora_B";

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

int adapters_own(const char *name)
{
    return ends_with(name, suffix_a) || ends_with(name, suffix_b);
}

double adapters_factor(const struct config_lora *lora)
{
    return lora->alpha / (lora->use_rslora ? sqrt((double)lora->r) : (double)lora->r);
}

int adapters_are_everywhere(const struct config_lora *lora)
{
    return !strcmp(lora->target_modules, "all-linear");
}

int adapters_train(const struct model *model, const char *name)
{
    char module[HF_NAME];
    if (adapters_own(name))
        return 1;
    return !modules_name(model, name, module) &&
           modules_is_listed(model->lora.modules_to_save, module);
}

/* "base_model.model." MODULE ".lora_A.weight"; a module that is trained whole has its tensors' own
 * names behind the first words.  One lora_A serves all tensors that are one in the files. */
int adapters_place(const struct model *model, const char *own, struct model_place *place)
{
    static const char front[] = "base_model.model.";
    char base[MODEL_TENSOR], module[HF_NAME];
    struct model_place whole;
    const char *suffix = ends_with(own, suffix_a)   ? suffix_a
                         : ends_with(own, suffix_b) ? suffix_b
                                                    : "";
    snprintf(base, sizeof base, "%.*s", (int)(strlen(own) - strlen(suffix)), own);
    if (modules_name(model, base, module) || model_hf_place(model->family, base, &whole))
        return -1;
    *place = whole;
    place->name[0] = 0;
    text_append(place->name, sizeof place->name, "%s%s%s%s", front, suffix[0] ? module : whole.name,
                suffix, suffix[0] ? ".weight" : "");
    if (suffix[0])
        place->is_transposed = 0;
    if (suffix == suffix_a)
        place->part = 0, place->parts = 1;
    return 0;
}

/* ---- declaring ---- */

/* The tensor of a parameter as the family's table knows it: block 0 stands for all. */
static void logical_name(char name[HF_NAME], const char *part)
{
    snprintf(name, HF_NAME, "layers.0.%s", part);
}

/* The module of part p of a parameter, if that is adapted; else "". */
static void target_of(const struct graph *graph, const struct graph_param *param, int p,
                      char module[HF_NAME])
{
    const struct config_lora *lora = &graph->model->lora;
    char name[HF_NAME];
    logical_name(name, param->part[p]);
    if (modules_name(graph->model, name, module) ||
        !(adapters_are_everywhere(lora) || modules_is_listed(lora->target_modules, module)) ||
        modules_is_listed(lora->modules_to_save, module))
        module[0] = 0;
}

/* Add a tensor to a parameter that is about to be declared. */
static void add_part(struct graph_param *param, const char *name, const char *suffix, int64_t rows)
{
    snprintf(param->part[param->parts], GRAPH_NAME, "%s%s", name, suffix);
    param->part_rows[param->parts++] = rows;
    param->dim[0] += rows;
}

/* A and B of a parameter, as whole tensors, and to which columns their product is added. */
static struct graph_adapter lay_out(const struct graph *graph, const struct graph_param *w,
                                    struct graph_param *a, struct graph_param *b)
{
    struct graph_adapter parts = {.rank = graph->model->lora.r};
    char before[HF_NAME] = "", module[HF_NAME];
    int64_t first = 0;
    for (int p = 0; p < w->parts; p++, first += w->part_rows[p - 1]) {
        target_of(graph, w, p, module);
        if (!module[0])
            continue;
        if (strcmp(module, before) != 0)
            add_part(a, w->part[p], suffix_a, graph->model->lora.r);
        snprintf(before, sizeof before, "%s", module);
        parts.part[parts.parts].first = first;
        parts.part[parts.parts].columns = w->part_rows[p];
        parts.part[parts.parts++].slice = a->parts - 1;
        add_part(b, w->part[p], suffix_b, w->box[p].whole[0]);
    }
    parts.slices = a->parts;
    return parts;
}

/* Say of which of the two each tensor rank makes a term of the gradient. */
static void divide(struct graph *graph, const struct graph_param *w, struct graph_group terms,
                   int a, int b)
{
    if (w->division.group.size > 1)
        build_divided(graph, w->division.dim ? b : a, w->division.group);
    if (terms.size > 1) {
        build_divided(graph, a, terms);
        build_divided(graph, b, terms);
    }
}

int adapters_apply(struct graph *graph, int x, int w, int y)
{
    const struct config_lora *lora = graph->model ? &graph->model->lora : NULL;
    if (!lora || !lora->r)
        return y;
    const struct graph_param param = graph->params[graph->values[w].index];
    struct graph_group terms = graph->values[w].divided;
    struct graph_param a = {.dims = 2, .init = INIT_UNIFORM, .is_low_rank = 1};
    struct graph_param b = {.dims = 2, .init = INIT_ZEROS, .is_low_rank = 1};
    const struct graph_adapter parts = lay_out(graph, &param, &a, &b);
    if (!parts.parts)
        return y;
    a.dim[1] = param.box[0].whole[1];
    a.std = (float)(1 / sqrt((double)a.dim[1])); /* as PyTorch's linear layers begin */
    b.dim[1] = lora->r;
    (param.division.dim ? &a : &b)->division = param.division;
    int to_rank = build_param(graph, &a), from_rank = build_param(graph, &b);
    divide(graph, &param, terms, to_rank, from_rank);
    int u = build_scale(graph, build_linear(graph, x, to_rank, -1), (float)adapters_factor(lora));
    return build_adapter(graph, y, u, from_rank, &parts);
}
