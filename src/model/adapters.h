/* adapters.h - trained matrices of low rank beside a model's frozen linear layers.
 *
 * Source: Hu et al. 2021, "LoRA" (arXiv 2106.09685); factor alpha / r, or alpha / sqrt(r) with
 * use_rslora: Kalajdzievski 2023 (arXiv 2312.03732).  A tensor "layers.3.attn.q" that is adapted
 * has beside it "layers.3.attn.q.lora_A" [r, in] and "layers.3.attn.q.lora_B" [out, r]; those that
 * are one tensor in Hugging Face's files (query, key and value of GPT-2) have one lora_A, under the
 * name of the first of them.
 *
 * use_dora: Liu et al. 2024, "DoRA" (arXiv 2402.09353).  Beside these stands
 * "layers.3.attn.q.lora_magnitude_vector" [out], m: y_i = m_i / |(W + factor B A)_i| (W x + factor
 * B A x)_i.  It begins with the norms of W's rows, so that y is W x at first.
 */
#ifndef TRIREME_MODEL_ADAPTERS_H
#define TRIREME_MODEL_ADAPTERS_H

#include "model/model.h"

/* Give a model the adapters that are asked for, before graphs are made of it; lora->r 0: none.
 * Returns 0, or -1 with err set: target_modules or modules_to_save that name none of its modules,
 * or what cannot be adapted or trained by itself. */
int adapters_add(struct model *model, const struct config_lora *lora, struct error *err);

/* Does every linear layer of the blocks get one ("all-linear")? */
int adapters_are_everywhere(const struct config_lora *lora);

/* Does a model with adapters train a tensor of this logical name? */
int adapters_train(const struct model *model, const char *name);

/* Is it the name of an adapter's tensor? */
int adapters_own(const char *name);

/* Is it the name of the magnitudes of a matrix?  Its name goes into base. */
int adapters_magnitude_of(const char *name, char base[MODEL_TENSOR]);

/* Where a tensor that a model with adapters trains is in peft's files.  0, or -1: it is in none. */
struct model_place;
int adapters_place(const struct model *model, const char *own, struct model_place *place);

/* modules_to_save of peft's adapter_config.json as lora.modules_to_save, and that of a model with
 * adapters as peft takes it, for the same modules: full paths where peft would find others.  0, or
 * -1 with err set: the list is too long. */
int adapters_saved_read(const struct model *model, const char *names, char to[CONFIG_TEXT],
                        struct error *err);
int adapters_saved_write(const struct model *model, char to[CONFIG_TEXT], struct error *err);

/* What the product of an adapter is multiplied by. */
double adapters_factor(const struct config_lora *lora);

/* The adapter of a matrix, as values of a graph: its products, of all modules together, or where
 * numbers are dropped one of each, as each drops by itself in peft; and m -1: it has no magnitudes.
 */
struct adapters_of {
    int count; /* of products; 0: there is no adapter */
    struct {
        int a, b;
        struct graph_adapter parts;
    } product[PARAM_PARTS];
    int m, squares;
    int64_t column; /* of the whole matrix, at which the rank's columns begin */
    float factor;
};

/* Declare the adapter of matrix w, a parameter, divided as w is, before w is used. */
struct adapters_of adapters_declare(struct graph *graph, int w);

/* y, the product of x and the matrix, and of nothing else, with what its adapter adds: a term of a
 * sum where y is.  Where it has none: y. */
int adapters_add_product(struct graph *graph, const struct adapters_of *own, int x, int y);

/* y, that or a sum of such terms, scaled to the magnitudes.  Where there are none: y. */
int adapters_scale(struct graph *graph, const struct adapters_of *own, int y);

#endif
