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

/* Give a model the adapters that lora asks for (r 0: none), before graphs are made of it.  lora is
 * copied.  Returns 0, or -1 with err set: target_modules or modules_to_save name a module that the
 * model has not, or one that cannot be adapted or trained by itself. */
int adapters_add(struct model *model, const struct config_lora *lora, struct error *err);

/* Does every linear layer of the blocks get an adapter ("all-linear")? */
int adapters_are_everywhere(const struct config_lora *lora);

/* Does a model with adapters train the tensor with this logical name? */
int adapters_train(const struct model *model, const char *name);

/* Is it the logical name of an adapter's tensor (lora_A, lora_B, lora_magnitude_vector)? */
int adapters_own(const char *name);

/* Is it the logical name of a magnitude vector?  If so, writes the name of its matrix into base. */
int adapters_magnitude_of(const char *name, char base[MODEL_TENSOR]);

/* Find where peft's files have the tensor with the logical name `own`, which a model with adapters
 * trains.  Returns 0, or -1: they have no such tensor. */
struct model_place;
int adapters_place(const struct model *model, const char *own, struct model_place *place);

/* Write lora.modules_to_save of a model with adapters into `to` as peft takes it for the same
 * modules, but for the "*" before names: a name by which peft would find others, too, becomes the
 * full paths.  Returns 0, or -1 with err set: the list is too long, or what a module of the model
 * fails with. */
int adapters_saved_write(const struct model *model, char to[CONFIG_TEXT], struct error *err);

/* What the product of an adapter is multiplied by. */
double adapters_factor(const struct config_lora *lora);

/* The adapter of a parameter w that may stack the matrices of several modules, as values of a
 * graph.  One product serves all adapted modules; with dropout each has a product of its own,
 * because in peft each module drops its own numbers of x. */
struct adapters_of {
    int count; /* of products; 0: there is no adapter */
    struct {
        int a, b;
        struct graph_adapter adapted;
    } product[PARAM_TENSORS];
    int m, squares; /* magnitudes, and the squares of adapted rows; -1: without use_dora */
    int64_t column; /* column of the whole matrix at which the rank's columns begin */
    float factor;   /* of B A */
};

/* Declare the adapter of matrix w, a parameter, before w is used; the adapter is divided among
 * ranks as w is.  Returns one of count 0 where w is not adapted. */
struct adapters_of adapters_declare(struct graph *graph, int w);

/* Add the adapter's product to y = x w^T, to which nothing else may have been added yet.  Where y
 * is a term of a sum over ranks, so is the result.  Returns y itself where there is no adapter. */
int adapters_add_product(struct graph *graph, const struct adapters_of *own, int x, int y);

/* Scale the columns of y, which adapters_add_product() returned or which is the sum over ranks of
 * such terms, to the magnitudes.  Returns y itself where there are none. */
int adapters_scale(struct graph *graph, const struct adapters_of *own, int y);

#endif
