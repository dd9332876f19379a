/* adapters.h - trained matrices of low rank beside a model's frozen linear layers.
 *
 * Source: Hu et al. 2021, "LoRA" (arXiv 2106.09685); factor alpha / r, or alpha / sqrt(r) with
 * use_rslora: Kalajdzievski 2023 (arXiv 2312.03732).  A tensor "layers.3.attn.q" that is adapted
 * has beside it "layers.3.attn.q.lora_A" [r, in] and "layers.3.attn.q.lora_B" [out, r]; those that
 * are one tensor in Hugging Face's files (query, key and value of GPT-2) have one lora_A, under the
 * name of the first of them.
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

/* Is it the name of an adapter's matrix? */
int adapters_own(const char *name);

/* Where a tensor that a model with adapters trains is in peft's files.  0, or -1: it is in none. */
struct model_place;
int adapters_place(const struct model *model, const char *own, struct model_place *place);

/* What the product of an adapter is multiplied by. */
double adapters_factor(const struct config_lora *lora);

/* y, the product of x and matrix w, a parameter, with what the adapter of w adds, which is declared
 * here: divided as w is, and a term of a sum where w is.  Where w has none: y. */
int adapters_apply(struct graph *graph, int x, int w, int y);

#endif
