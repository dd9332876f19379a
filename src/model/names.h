/* names.h - what Hugging Face's files call a model's tensors. */
#ifndef TRIREME_MODEL_NAMES_H
#define TRIREME_MODEL_NAMES_H

#include "model/model.h"

enum { HF_NAME = 128 };

/* A row of a family's table, which a row without names ends.  %s stands for the number of a block,
 * in both names. */
struct model_name {
    const char *own;   /* "layers.%s.attn.q" */
    const char *hf;    /* "model.layers.%s.self_attn.q_proj.weight" */
    int part, parts;   /* of `parts` tensors that are one there, stacked: which; parts 0: one */
    int is_transposed; /* 1: a matrix is [in, out] there */
};

/* Where a logical tensor is in such files. */
struct model_place {
    char name[HF_NAME];
    int part, parts, is_transposed;
};

/* The place of the tensor of a logical name.  0, or -1: the family has no such tensor. */
int model_hf_place(const struct model_family *family, const char *own, struct model_place *place);

/* The first of the tensors that are one there with that of a logical name: itself, where it is one
 * alone. */
void model_hf_first(const struct model_family *family, const char *own, char first[HF_NAME]);

/* Is a tensor of such files none of the model's: a table or a mask, or a head that is tied? */
int model_hf_is_ignored(const struct config_model *config, const char *name);

#endif
