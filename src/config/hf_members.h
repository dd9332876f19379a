/* hf_members.h - tables of the members of config.json, for the files hf*.c alone. */
#ifndef TRIREME_CONFIG_HF_MEMBERS_H
#define TRIREME_CONFIG_HF_MEMBERS_H

#include "base/json.h"
#include "config/schema.h"

/* Kinds of models, as bits. */
enum hf_kinds {
    HF_LLAMA = 1,
    HF_MISTRAL = 2,
    HF_QWEN2 = 4,
    HF_QWEN3 = 8,
    HF_GPT2 = 16,
    HF_MIXTRAL = 32,
    HF_QWEN3_MOE = 64,
    HF_PHI3 = 128,
    HF_QWEN = HF_QWEN2 | HF_QWEN3,
    HF_MOE = HF_MIXTRAL | HF_QWEN3_MOE, /* with experts */
    HF_DECODERS = HF_LLAMA | HF_MISTRAL | HF_QWEN | HF_PHI3 | HF_MOE,
    HF_ANY = HF_DECODERS | HF_GPT2
};

/* A model_type.  All but gpt2 are trireme's family llama, with the options of their row. */
struct hf_type {
    enum hf_kinds kind;
    const char *name, *architecture; /* "llama", "LlamaForCausalLM" */
    int qkv_bias, qk_norm;           /* model.qkv_bias and model.qk_norm */
    double rope_theta;               /* where the file says none; 0: 10000 */
};
extern const struct hf_type hf_types[]; /* ended by a row without a name */

/* A member, and trireme's key that it sets. */
struct hf_member {
    enum hf_kinds of; /* the kinds of models whose config.json has it */
    const char *name, *key;
    enum { HF_NUMBER, HF_REAL, HF_TRUTH } type;
    const char *otherwise; /* the key's value where the member is absent; NULL: it must be there */
    const char *null;      /* the key's value where the member is null; NULL: `otherwise` */
};
extern const struct hf_member hf_members[]; /* ended by a row without a name */

/* A member of which trireme computes one value alone.  The member must be absent, null, or this
 * value: one of the texts; without texts the number, where 0 also stands for false and for an empty
 * list or object, and 1 for true. */
struct hf_fixed {
    enum hf_kinds of;
    const char *name;
    const char *why; /* why others are refused, after "NAME is VALUE, and "; NULL: there is nothing
                        to say but that */
    const char *texts[3]; /* names of the same thing; NULL after the last */
    double number;
};
extern const struct hf_fixed hf_fixed[]; /* ended by a row without a name */

/* A member by which other types say what hf_members has by another name: it must be absent, or say
 * the same. */
struct hf_alias {
    enum hf_kinds of;
    const char *name, *key;
};
extern const struct hf_alias hf_aliases[]; /* ended by a row without a name */

/* Is a member one that does not change what a model of this kind computes, or one that hf*.c read
 * or check of it? */
int hf_is_harmless(enum hf_kinds kind, const char *name);

/* Set a key from a text, from a number, or (hf_set_member) the key of a row from the row's member
 * of json.  Return 0, or -1 with err set. */
int hf_set(struct config *config, const char *key, const char *value, struct error *err);
int hf_set_real(struct config *config, const char *key, double value, struct error *err);
int hf_set_member(struct config *config, const struct hf_member *m, const struct js *json,
                  struct error *err);

/* Has json a member of this name, also one that is null? */
int hf_is_named(const struct js *json, const char *name);
/* Is the member a list or an object that is not empty? */
int hf_is_full(const struct js *json, const char *name);
/* Is the member true, a number other than 0, or full?  A text counts as none of these. */
int hf_has_meaning(const struct js *json, const char *name);

/* Set the keys of rotary positions from json, a whole config.json.  theta: their base where the
 * file says none.  Returns 0, or -1 with err naming the member. */
int hf_read_rope(struct config *config, const struct js *json, double theta, struct error *err);

/* Set the keys of experts from json, a whole config.json: to none where the kind has none.  Returns
 * 0, or -1 with err naming the member. */
int hf_read_experts(struct config *config, enum hf_kinds kind, const struct js *json,
                    struct error *err);
/* Add the members of a model's experts to json, where the kind has them. */
void hf_add_experts(const struct config_model *model, enum hf_kinds kind, struct js *json);
/* What a model_type that is not in hf_types has and trireme has not; NULL: not known. */
const char *hf_type_lacks(const char *name);
/* Add the members of rotary positions to json. */
void hf_add_rope(const struct config_rope *rope, struct js *json);

#endif
