/* schema.h - the table of keys, as the files of this folder see it. */
#ifndef TRIREME_CONFIG_SCHEMA_H
#define TRIREME_CONFIG_SCHEMA_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/config.h"

enum key_type { KEY_INT, KEY_REAL, KEY_BOOL, KEY_TEXT, KEY_CHOICE };

enum { CHOICE_LATER = -1 }; /* a known name of something that this version does not have */

struct key_choice {
    const char *name; /* NULL ends a list */
    int value;
    const char *aliases; /* other spellings, "a|b", or NULL; case never matters */
};

struct key {
    const char *name; /* dotted */
    enum key_type type;
    size_t offset, bytes;             /* the field in struct config */
    const char *initial;              /* default, as a user would write it */
    int64_t min, max;                 /* KEY_INT */
    double least, most;               /* KEY_REAL */
    const struct key_choice *choices; /* KEY_CHOICE; KEY_TEXT: the only texts allowed, or NULL */
    const char *or_file; /* KEY_TEXT with choices: the end of a file's name, which is allowed too */
    const char *later;   /* KEY_INT: what a value above max would mean, or NULL */
    int list; /* KEY_TEXT: 1: a YAML list is taken, with commas between; an item may be */
    const char *options; /* a map of a path and of these, "a|b", or NULL: "path:a=1:b=2" */
    int by_rank; /* 1: ranks may have different values: no number and no transfer depends on it, or
                    it is compared by what it names */
    const char *help;
};

/* A key that other versions or tools have, refused with a reason. */
struct key_absent {
    const char *name, *what;
};

extern const struct key config_keys[];
extern const int config_key_count;
extern const struct key_absent config_absent_keys[];
extern const int config_absent_count;

/* The row of a dotted name, or NULL. */
const struct key *key_find(const char *name);

/* 1 if name is the part of a key before a dot ("train"). */
int key_is_group(const char *name);

/* Characters of the name of the group that the i-th key is the first of; 0: it is the first of
 * none. */
int key_opens_group(int i);

/* Is value a path in the home folder, as shells write it: "~/runs"?  Of what a user writes it is
 * refused; what a run has kept stands.  Returns 0, or -1 with err set. */
int key_refuse_home(const struct key *key, const char *value, struct error *err);

/* Put value into the field of key, checked.  Returns 0, or -1 with err set. */
int key_set(struct config *config, const struct key *key, const char *value, struct error *err);

/* err for a name that is no key: absent here, a group, or misspelt.  Returns -1. */
int key_unknown(const char *name, struct error *err);

/* err for a group of a file, "trian:", that is none.  Returns -1. */
int key_group_unknown(const char *name, struct error *err);

/* The key that was probably meant by a name that is none, or NULL. */
const char *key_meant(const char *name);

/* The value of key as key_set() takes it, in buffer (of CONFIG_TEXT bytes). */
const char *key_text(const struct config *config, const struct key *key, char *buffer);

/* The names of a list that this version has: "a, b, c". */
void key_choices(const struct key_choice *choices, char *buffer, size_t bytes);

/* The type and what is allowed, for people: "whole number, 1 to 8". */
void key_describe(const struct key *key, char *buffer, size_t bytes);

/* Published and small models.  preset_find ignores case, '-' and '_'; NULL if there is none. */
extern const struct config_model config_presets[];
extern const int config_preset_count;
const struct config_model *preset_find(const char *name);

/* The preset with the longest name within a longer one: "Meta-Llama-3-8B-Instruct".  Or NULL. */
const struct config_model *preset_within(const char *name);

/* Parameters of a preset's model; what model_params() counts of the model itself. */
int64_t preset_params(const struct config_model *preset);

/* Edits (insert, delete, replace, swap neighbours) from a to b, case ignored. */
int nearest_distance(const char *a, const char *b);

/* The state of a search for the name nearest to what was typed. */
struct nearest {
    const char *wanted, *name; /* name NULL: nothing is near */
    int distance;
};
void nearest_try(struct nearest *nearest, const char *compared, const char *name);

/* Fill in what follows from other keys and check combinations.  Returns 0, or -1 with err. */
int config_finish(struct config *config, struct error *err);

/* The parts of config_finish(): the model's keys and what follows from them; those of training; and
 * those of weights and adapters, which follow last.  Return 0, or -1 with err naming the keys. */
int config_check_model(struct config *config, struct error *err);
int config_check_train(struct config *config, struct error *err);
int config_check_weights(const struct config *config, struct error *err);

/* A setting, keys dotted: "key: value" or "group:" of a YAML file, or an argument "key=value". */
enum config_entry_kind { ENTRY_VALUE, ENTRY_GROUP, ENTRY_EMPTY, ENTRY_ARGUMENT };

struct config_entry {
    char *key, *value; /* value NULL: the key opens a group or is empty */
    int line;
    enum config_entry_kind kind;
};

/* Entries in the order of the file; {0} has none. */
struct config_file {
    struct config_entry *entries;
    int count, capacity;
};

/* Append an entry; key and value (or NULL) are copied. */
void config_file_add(struct config_file *file, const char *key, const char *value, int line,
                     enum config_entry_kind kind);

/* Take the i-th entry out. */
void config_file_remove(struct config_file *file, int i);

/* Read a configuration file, with a 0 behind its bytes.  Of one that is too large for
 * config_text_read() the text has only the first MiB, and bytes are those of the file.  Returns 0
 * and a text to free(), also after a failure, or -1 with err set. */
int config_file_text(const char *path, char **text, size_t *bytes, struct error *err);

/* Append the entries of a YAML text of so many bytes; name: where it came from, for err.  Returns
 * 0, or -1 with err naming line and column.  Either way file is for config_file_free(). */
int config_text_read(struct config_file *file, const char *name, const char *text, size_t bytes,
                     struct error *err);
void config_file_free(struct config_file *file);

/* Of two keys that say the same in two ways, such as model.preset and model.path, an argument takes
 * the place of the file's entry for the other.  Returns how many entries it has taken out. */
int config_file_drop_rivals(struct config_file *file);

#endif
