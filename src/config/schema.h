/* schema.h - the table of keys, for the files of this folder.
 *
 * A configuration becomes a struct in four steps:
 *
 *     YAML text, arguments --> struct config_file     a list of entries (yaml.c, config.c)
 *     entry "train.lr" = "1e-3" --> struct key        the row of schema_*.c with this name (key.c)
 *     row and text --> a field of struct config       checked for type and range (value.c)
 *     struct config --> struct config                 what follows from other keys, combinations
 *                                                     that cannot work (check*.c)
 */
#ifndef TRIREME_CONFIG_SCHEMA_H
#define TRIREME_CONFIG_SCHEMA_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/config.h"

enum key_type { KEY_INT, KEY_REAL, KEY_BOOL, KEY_TEXT, KEY_CHOICE };

enum { CHOICE_LATER = -1 }; /* value of a choice that is known, and not in this version */

struct key_choice {
    const char *name; /* NULL ends a list */
    int value;
    const char *aliases; /* other spellings, "a|b", or NULL; case never matters */
    const char
        *instead; /* of a value for later versions, what there is; NULL: the allowed values */
};

struct key {
    const char *name; /* dotted */
    enum key_type type;
    size_t offset, bytes;             /* of the field in struct config */
    const char *initial;              /* default, as a user would write it */
    int64_t min, max;                 /* KEY_INT: the range of the value, both ends allowed */
    double least, most;               /* KEY_REAL: the same */
    const struct key_choice *choices; /* KEY_CHOICE; KEY_TEXT: the only texts allowed, or NULL */
    const char *or_file; /* KEY_TEXT with choices: ".csv": a file of this ending is allowed, too */
    const char *later;   /* KEY_INT: what a value above max would mean, or NULL */
    int list;            /* KEY_TEXT: 1: a YAML list may be given; its items, with commas between
                            them, become the text */
    const char *options; /* with list: an item may be a map of `path` and of these names, "a|b",
                            and becomes "PATH:a=1:b=2"; NULL: no maps */
    int by_rank;         /* 1: ranks may have different values, because no number and no transfer
                            depends on the key, or because what it names is compared instead */
    const char *help;
};

/* Return the i-th key, from 0, in the order in which keys are shown; NULL: there are fewer. */
const struct key *key_at(int i);

int key_count(void);

/* Find the row of a dotted name; NULL: there is none. */
const struct key *key_find(const char *name);

/* 1 if name is the part of a key before a dot ("train"). */
int key_is_group(const char *name);

/* Return the length of the group's name where the i-th key is the first one of a group ("train.":
 * 5), else 0. */
int key_opens_group(int i);

/* Refuse a value with what a shell would expand and trireme does not: "~" at its beginning, as in
 * "~/runs", and variables, as in "$SCRATCH/runs".  For values that a user wrote; those in the
 * config.yaml of a run are not checked.  Returns 0, or -1 with err set. */
int key_refuse_shell(const struct key *key, const char *value, struct error *err);

/* Check value against the key's type and range, and put it into the key's field.  A model.preset
 * sets all of config->model.  Returns 0, or -1 with err (NULL allowed) set and config unchanged. */
int key_set(struct config *config, const struct key *key, const char *value, struct error *err);

/* Set err for a name that is not a key: a group, another program's word, or a misspelt key. Returns
 * -1. */
int key_unknown(const char *name, struct error *err);

/* Set err for the name of a group in a file, "trian:", of which there is no group.  Returns -1. */
int key_group_unknown(const char *name, struct error *err);

/* Find the key that was probably meant by a name that is not a key; NULL: none is near. */
const char *key_meant(const char *name);

/* Find the key that a name spells with '_' for '.', "lora_alpha", or of which it is the last part,
 * "weight_decay"; NULL: there is none, or several.  Texts have no settings of generate. */
const struct key *key_spelt(const char *name);

/* Return the value of key as a text that key_set() takes: in buffer (of CONFIG_TEXT bytes), in
 * config itself, or a constant. */
const char *key_text(const struct config *config, const struct key *key, char *buffer);

/* Write the names of choices into buffer, "a, b, c", but for those of CHOICE_LATER. */
void key_choices(const struct key_choice *choices, char *buffer, size_t bytes);

/* Write the type of a key and its range into buffer, for people: "whole number, 1 to 8". */
void key_describe(const struct key *key, char *buffer, size_t bytes);

/* The models of model.preset.  preset_find() ignores case, '-' and '_'; NULL: there is none of this
 * name. */
extern const struct config_model config_presets[];
extern const int config_preset_count;
const struct config_model *preset_find(const char *name);

/* Find the preset whose name is part of a longer name: in "Meta-Llama-3-8B-Instruct", llama3-8b.
 * Of several the one with the longest name; NULL: there is none. */
const struct config_model *preset_within(const char *name);

/* Count the parameters of a preset's model, by a formula; model_params() counts them in the model
 * itself, and agrees. */
int64_t preset_params(const struct config_model *preset);

/* Count the edits (insert, delete, replace, swap neighbours) from a to b; case is ignored. */
int nearest_distance(const char *a, const char *b);

/* A search for the name nearest to what was typed: begin with {wanted}, then nearest_try() each. */
struct nearest {
    const char *wanted; /* what was typed */
    const char *name;   /* the nearest one so far; NULL: none is near */
    int distance;       /* of name: edits from wanted */
};
/* Make `name` the nearest if `compared`, which is all or part of it, is nearer to what was typed
 * than what was tried before. */
void nearest_try(struct nearest *nearest, const char *compared, const char *name);

/* Set the fields that follow from others and check combinations.  Returns 0, or -1 with err naming
 * the keys.  A second call changes nothing. */
int config_finish(struct config *config, struct error *err);

/* Returns 1 where ranks may hold copies of a whole model, whose gradients are summed in buckets
 * (parallel.reduce_bucket_bytes): with NO_SHARD, and with a hybrid of one rank for each copy, which
 * parallel.shard=0 may become. */
int config_has_buckets(const struct config_parallel *parallel);

/* The parts of config_finish() in other files: the model's keys, those of training, and those of
 * weights and adapters, which are checked last.  Return 0, or -1 with err naming the keys. */
int config_check_model(struct config *config, struct error *err);
int config_check_train(struct config *config, struct error *err);
int config_check_weights(const struct config *config, struct error *err);

enum config_entry_kind {
    ENTRY_VALUE,   /* "key: value" in a YAML file */
    ENTRY_GROUP,   /* "key:" with a map below it */
    ENTRY_EMPTY,   /* "key:" without a value */
    ENTRY_ARGUMENT /* "key=value" on the command line */
};

struct config_entry {
    char *key;   /* dotted */
    char *value; /* NULL: of ENTRY_GROUP and ENTRY_EMPTY */
    int line;    /* in the file, from 1; 0: of ENTRY_ARGUMENT */
    enum config_entry_kind kind;
};

/* The entries of a file in their order, then those of the command line; {0} has none. */
struct config_file {
    struct config_entry *entries;
    int count, capacity;
};

/* Append an entry; key and value (NULL allowed) are copied. */
void config_file_add(struct config_file *file, const char *key, const char *value, int line,
                     enum config_entry_kind kind);

/* Remove the i-th entry and free it. */
void config_file_remove(struct config_file *file, int i);

/* Read a configuration file into *text, with a 0 after its *bytes bytes.  Of a file that is too
 * large for config_text_read(), *text has only the first MiB, while *bytes is the size of the file.
 * *text is for free(), also after a failure.  Returns 0, or -1 with err set. */
int config_file_text(const char *path, char **text, size_t *bytes, struct error *err);

/* Append the entries of a YAML text of `bytes` bytes to file; name: where the text came from, for
 * err.  Returns 0, or -1 with err naming the line.  file is for config_file_free(), also after a
 * failure. */
int config_text_read(struct config_file *file, const char *name, const char *text, size_t bytes,
                     struct error *err);
void config_file_free(struct config_file *file);

/* Remove entries of the file that an argument replaces by saying the same with another key: an
 * argument model.path removes the file's model.preset (rivals.c has the pairs).  Returns how many
 * entries were removed. */
int config_file_drop_rivals(struct config_file *file);

#endif
