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
    HF_QWEN = HF_QWEN2 | HF_QWEN3,
    HF_DECODERS = HF_LLAMA | HF_MISTRAL | HF_QWEN,
    HF_ANY = HF_DECODERS | HF_GPT2
};

/* What model_type says: all but gpt2 are the family llama, with these options of it. */
struct hf_type {
    enum hf_kinds kind;
    const char *name, *architecture;
    int qkv_bias, qk_norm;
};
extern const struct hf_type hf_types[]; /* ended by a row without a name */

/* A member, and the key that it sets. */
struct hf_member {
    enum hf_kinds of;
    const char *name, *key;
    enum { HF_NUMBER, HF_REAL, HF_TRUTH } type;
    const char *otherwise; /* what its absence means; NULL: it must be there */
    const char *null;      /* what null means; NULL: what its absence does */
};
extern const struct hf_member hf_members[]; /* ended by a row without a name */

/* A member that changes what is computed in a way that is not here: it must be absent, null, or
 * what is computed here, which is one of the texts; the number; or, where there is neither, false,
 * 0 or nothing. */
struct hf_fixed {
    enum hf_kinds of;
    const char *name;
    const char *texts[3]; /* that mean the same here */
    double number;
};
extern const struct hf_fixed hf_fixed[];

/* Is it a member that does not change what is computed, or one that is read elsewhere? */
int hf_is_harmless(const char *name);

/* Set a key from text or a number; set the key of a row from its member of json. */
int hf_set(struct config *config, const char *key, const char *value, struct error *err);
int hf_set_real(struct config *config, const char *key, double value, struct error *err);
int hf_set_member(struct config *config, const struct hf_member *m, const struct js *json,
                  struct error *err);

/* Is a name there, whatever it is, null too?  A list or an object that is not empty?  Anything that
 * is more than null, false, 0 or empty?  Texts are not looked at. */
int hf_is_named(const struct js *json, const char *name);
int hf_is_full(const struct js *json, const char *name);
int hf_has_meaning(const struct js *json, const char *name);

/* Rotary positions, read from json, a whole config.json, and added to it. */
int hf_read_rope(struct config *config, const struct js *json, struct error *err);
void hf_add_rope(const struct config_rope *rope, struct js *json);

#endif
