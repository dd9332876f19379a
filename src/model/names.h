/* names.h - what Hugging Face's files call a model's tensors.
 *
 * A family has a table of rows, a logical name and the file's name each.  Several logical tensors
 * may be one tensor in the files, stacked by rows; a matrix may be stored transposed there:
 *
 *     layers.3.attn.k   ->   transformer.h.3.attn.c_attn.weight, part 1 of 3, transposed
 */
#ifndef TRIREME_MODEL_NAMES_H
#define TRIREME_MODEL_NAMES_H

#include "model/model.h"

enum { HF_NAME = 128 }; /* bytes of a name */

/* A row of a family's table, which a row without names ends.  %s stands for the number of a block,
 * in both names. */
struct model_name {
    const char *own;   /* the logical name: "layers.%s.attn.q" */
    const char *hf;    /* the file's name: "model.layers.%s.self_attn.q_proj.weight" */
    int part, parts;   /* the file's tensor is `parts` logical ones stacked, this one number `part`;
                          parts 0: it is this one alone */
    int is_transposed; /* 1: the file has the matrix as [in, out] */
};

/* Where the files have a logical tensor; members as in struct model_name, parts at least 1. */
struct model_place {
    char name[HF_NAME];
    int part, parts, is_transposed;
};

/* Find the place of the tensor with the logical name `own`.  Returns 0, or -1 if the family has no
 * such tensor. */
int model_hf_place(const struct model_family *family, const char *own, struct model_place *place);

/* Write into `first` the logical name of part 0 of the file's tensor that `own` is a part of; a
 * copy of own, where it is a tensor alone or the family does not know it. */
void model_hf_first(const struct model_family *family, const char *own, char first[HF_NAME]);

/* Is a tensor of such files none of the model's: a table or a mask, or a head that is tied? */
int model_hf_is_ignored(const struct config_model *config, const char *name);

#endif
