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
 *
 * With use_dora, the magnitudes too (graph/op_magnitude.c):
 *
 *   W by rows      m by rows                    each rank has the norms of its rows
 *   W by columns   m whole, gradient a term     squares are terms, and summed; m scales own rows of
 *                                               the sum of products
 */
#include "model/adapters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "graph/build.h"
#include "graph/op.h"
#include "model/modules.h"

static const char suffix_a[] = ".lora_A", suffix_b[] = ".lora_B";
static const char suffix_m[] = ".lora_magnitude_vector";

/* How the name of an adapter's tensor ends; "": it is none. */
static const char *suffix_of(const char *name)
{
    static const char *const all[] = {suffix_a, suffix_b, suffix_m};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (text_ends_with(name, all[i]))
            return all[i];
    return "";
}

int adapters_own(const char *name)
{
    return suffix_of(name)[0] != 0;
}

int adapters_magnitude_of(const char *name, char base[MODEL_TENSOR])
{
    if (!text_ends_with(name, suffix_m))
        return 0;
    snprintf(base, MODEL_TENSOR, "%.*s", (int)(strlen(name) - strlen(suffix_m)), name);
    return 1;
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

/* Names are "base_model.model." MODULE ".lora_A.weight" (or ".lora_B.weight"), and
 * "base_model.model." MODULE ".lora_magnitude_vector".  Tensors of a module that is trained whole
 * have their usual name after "base_model.model.".  Tensors that are one in the files have one
 * lora_A. */
int adapters_place(const struct model *model, const char *own, struct model_place *place)
{
    static const char front[] = "base_model.model.";
    char base[MODEL_TENSOR], module[HF_NAME];
    struct model_place whole;
    const char *suffix = suffix_of(own);
    snprintf(base, sizeof base, "%.*s", (int)(strlen(own) - strlen(suffix)), own);
    if (modules_name(model, base, module) || model_hf_place(model, base, 0, &whole))
        return -1;
    *place = whole;
    place->name[0] = 0;
    text_append(place->name, sizeof place->name, "%s%s%s%s", front, suffix[0] ? module : whole.name,
                suffix, suffix[0] && suffix != suffix_m ? ".weight" : "");
    if (suffix[0])
        place->is_transposed = 0;
    if (suffix == suffix_a)
        place->number = 0, place->stacked = 1, place->first_row = place->other_rows = 0;
    return 0;
}

/* ---- declaring ---- */

/* The tensor of a parameter as the family's table knows it: block 0 stands for all. */
static void logical_name(char name[HF_NAME], const char *tensor)
{
    snprintf(name, HF_NAME, "layers.0.%s", tensor);
}

/* Write the module of tensor t of a parameter into module, if it is adapted; else "". */
static void target_of(const struct graph *graph, const struct graph_param *param, int t,
                      char module[HF_NAME])
{
    const struct config_lora *lora = &graph->model->lora;
    char name[HF_NAME];
    logical_name(name, param->tensor_name[t]);
    if (modules_name(graph->model, name, module) ||
        !(adapters_are_everywhere(lora) || modules_is_listed(lora->target_modules, module)) ||
        modules_is_listed(lora->modules_to_save, module))
        module[0] = 0;
}

/* Add a tensor to a parameter that is about to be declared. */
static void add_tensor(struct graph_param *param, const char *name, const char *suffix,
                       int64_t rows)
{
    snprintf(param->tensor_name[param->tensors], GRAPH_NAME, "%s%s", name, suffix);
    param->tensor_rows[param->tensors++] = rows;
    param->dim[0] += rows;
}

/* Fill in the shapes of A, B and m beside parameter w, as whole tensors, for module `only` ("": all
 * modules of w).  Returns the columns to which their product is added. */
static struct graph_adapter lay_out(const struct graph *graph, const struct graph_param *w,
                                    const char *only, struct graph_param *a, struct graph_param *b,
                                    struct graph_param *m)
{
    struct graph_adapter adapted = {.rank = graph->model->lora.r};
    char before[HF_NAME] = "", module[HF_NAME];
    int64_t first = 0;
    for (int t = 0; t < w->tensors; t++, first += w->tensor_rows[t - 1]) {
        target_of(graph, w, t, module);
        if (!module[0] || (only[0] && strcmp(module, only) != 0))
            continue;
        if (strcmp(module, before) != 0)
            add_tensor(a, w->tensor_name[t], suffix_a, graph->model->lora.r);
        snprintf(before, sizeof before, "%s", module);
        adapted.tensor[adapted.tensors].first = first;
        adapted.tensor[adapted.tensors].columns = w->tensor_rows[t];
        adapted.tensor[adapted.tensors++].slice = a->tensors - 1;
        add_tensor(b, w->tensor_name[t], suffix_b, w->box[t].whole[0]);
        add_tensor(m, w->tensor_name[t], suffix_m, w->box[t].whole[0]);
    }
    adapted.slices = a->tensors;
    return adapted;
}

/* Declare of which tensors of an adapter each tensor rank makes a term of the gradient. */
static void divide(struct graph *graph, const struct graph_param *w, struct graph_group terms,
                   int a, int b, int m)
{
    int is_by_columns = w->division.dim == 1;
    const int tensors[] = {a, b, m};
    if (w->division.group.size > 1)
        build_divided(graph, is_by_columns ? b : a, w->division.group);
    if (w->division.group.size > 1 && is_by_columns && m >= 0)
        build_divided(graph, m, w->division.group);
    for (int i = 0; terms.size > 1 && i < 3; i++)
        if (tensors[i] >= 0)
            build_divided(graph, tensors[i], terms);
}

/* The squares of the rows of w + factor * B A, summed over ranks that each have own columns. */
static int squares_of(struct graph *graph, int w, const struct adapters_of *own)
{
    const struct graph_division *division = &graph->params[graph->values[w].index].division;
    int squares = build_row_squares(graph, w, own->product[0].a, own->product[0].b, own->factor,
                                    &own->product[0].adapted);
    return division->dim ? build_exchange(graph, &op_all_reduce, squares, division->group)
                         : squares;
}

/* Declare A and B of w's modules, or of module `only` alone, and m with use_dora, and add them to
 * *own.  Does nothing where no module is adapted. */
static void declare_product(struct graph *graph, int w, const char *only, struct adapters_of *own)
{
    const struct config_lora *lora = &graph->model->lora;
    const struct graph_param param = graph->params[graph->values[w].index];
    struct graph_param a = {.dims = 2, .init = INIT_UNIFORM, .is_low_rank = 1};
    struct graph_param b = {.dims = 2, .init = INIT_ZEROS, .is_low_rank = 1};
    struct graph_param m = {.dims = 1, .init = INIT_ROW_NORMS};
    const struct graph_adapter adapted = lay_out(graph, &param, only, &a, &b, &m);
    if (!adapted.tensors)
        return;
    a.dim[1] = param.box[0].whole[1];
    a.std = (float)(1 / sqrt((double)a.dim[1])); /* as PyTorch's linear layers begin */
    b.dim[1] = lora->r;
    if (param.division.dim)
        a.division = param.division;
    else
        b.division = m.division = param.division;
    int k = own->count++;
    own->column = param.box[0].start[1];
    own->product[k].adapted = adapted;
    own->product[k].a = build_param(graph, &a);
    own->product[k].b = build_param(graph, &b);
    if (lora->use_dora)
        own->m = build_param(graph, &m);
    divide(graph, &param, graph->values[w].divided, own->product[k].a, own->product[k].b, own->m);
}

struct adapters_of adapters_declare(struct graph *graph, int w)
{
    const struct config_lora *lora = graph->model ? &graph->model->lora : NULL;
    struct adapters_of own = {.m = -1, .squares = -1};
    char before[HF_NAME] = "", module[HF_NAME];
    if (!lora || !lora->r)
        return own;
    const struct graph_param param = graph->params[graph->values[w].index];
    own.factor = (float)adapters_factor(lora);
    if (!lora->dropout)
        declare_product(graph, w, "", &own);
    for (int t = 0; lora->dropout && t < param.tensors; t++) {
        target_of(graph, &param, t, module);
        if (module[0] && strcmp(module, before) != 0)
            declare_product(graph, w, module, &own);
        snprintf(before, sizeof before, "%s", module);
    }
    if (own.m >= 0)
        own.squares = squares_of(graph, w, &own);
    return own;
}

int adapters_add_product(struct graph *graph, const struct adapters_of *own, int x, int y)
{
    for (int k = 0; k < own->count; k++) {
        int a = own->product[k].a;
        const char *name = graph->params[graph->values[a].index].tensor_name[0];
        int read = build_dropout(graph, x, -1, graph->model->lora.dropout, name, own->column,
                                 (struct graph_group){0});
        int u = build_scale(graph, build_linear(graph, read, a, -1), own->factor);
        y = build_adapter(graph, y, u, own->product[k].b, &own->product[k].adapted);
    }
    return y;
}

int adapters_scale(struct graph *graph, const struct adapters_of *own, int y)
{
    return own->m < 0 ? y
                      : build_magnitude(graph, y, own->m, own->squares, &own->product[0].adapted);
}
