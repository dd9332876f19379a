/* names.h - what Hugging Face's files call a model's tensors.
 *
 * A family has a table of rows, a logical name and the file's name each.  Several logical tensors
 * may be one tensor in the files, stacked by rows; a matrix may be stored transposed there:
 *
 *     layers.3.attn.k   ->   transformer.h.3.attn.c_attn.weight, number 1 of 3, transposed
 *
 * Or a logical tensor is many tensors there, one for each matrix of its last two dimensions:
 *
 *     layers.3.mlp.experts.gate_up [experts, 2, ffn, hidden]
 *         matrix 10   ->   model.layers.3.mlp.experts.5.gate_proj.weight
 *         matrix 11   ->   model.layers.3.mlp.experts.5.up_proj.weight
 *
 * What the experts of a mixture are called follows from the model's configuration: with qk_norm as
 * in Qwen3-MoE, else as in Mixtral.  transformers since version 5 has them in memory, and on
 * request in files, under third names, those of all experts in one tensor ("fused").  Phi-3 is a
 * Llama in which query, key and value are one tensor, and gate and up another ("stacked").
 */
#ifndef TRIREME_MODEL_NAMES_H
#define TRIREME_MODEL_NAMES_H

#include "model/model.h"

enum { HF_NAME = 128 }; /* bytes of a name */

/* The models whose files have a name. */
enum model_names { NAMES_ANY, NAMES_MIXTRAL, NAMES_QWEN3_MOE, NAMES_FUSED, NAMES_STACKED };

/* What a tensor of the files is stacked of. */
enum model_stack { STACK_NONE, STACK_QKV, STACK_GATE_UP, STACKS };

/* A row of a family's table, which a row without names ends.  %s stands for the number of a block,
 * in all names, and %e, in the files' names, for that of an expert: then each matrix of the last
 * two dimensions is a tensor of the files. */
struct model_name {
    const char *own;     /* the logical name: "layers.%s.attn.q" */
    const char *hf;      /* the file's name: "model.layers.%s.self_attn.q_proj.weight" */
    const char *hf_next; /* with %e, not NULL: an expert has two matrices, and this is the name of
                            the second one; NULL: it has one */
    enum model_names of;
    enum model_stack stack; /* STACK_NONE: the file's tensor is this one alone */
    int number;             /* else this one is number `number` in the stack, from 0 */
    int is_transposed;      /* 1: the file has the matrix as [in, out] */
};

/* Where the files have a logical tensor: it is rows first_row, first_row + 1, ... of the tensor
 * `name`, which has other_rows rows beside them. */
struct model_place {
    char name[HF_NAME];
    int number, stacked; /* number in the stack, and of how many; 0 and 1: it is there alone */
    int64_t first_row, other_rows;
    int is_transposed; /* as in struct model_name */
    int is_matrix;     /* 1: the place is that of one matrix of the last two dimensions */
};

/* Find the place of the tensor with the logical name `own`, or of its matrix number `matrix` (in
 * row-major order of the dimensions before the last two) where each is a tensor of the files.
 * Returns 0, or -1 if the model has no such tensor. */
int model_hf_place(const struct model *model, const char *own, int64_t matrix,
                   struct model_place *place);

/* The same in files where the experts of a block are one tensor, and in those of a Phi-3. */
int model_hf_fused_place(const struct model *model, const char *own, struct model_place *place);
int model_hf_stacked_place(const struct model *model, const char *own, struct model_place *place);

/* Write into `first` the logical name of number 0 of the stack that `own` is in; a copy of own,
 * where it is in none or the model does not know it. */
void model_hf_first(const struct model *model, const char *own, char first[HF_NAME]);

/* Is a tensor of such files none of the model's: a table or a mask, or a head that is tied? */
int model_hf_is_ignored(const struct config_model *config, const char *name);

#endif
