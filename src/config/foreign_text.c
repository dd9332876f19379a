/* foreign_text.c - is a text that trireme does not read a configuration of another program?
 *
 * Texts of other trainers are recognised by a few words in them, since lists and tags may keep them
 * from being read as trireme's YAML.  Only keys count: comments and quoted values are blanked out
 * first.  A text that has a key or a group of trireme's at its top level is trireme's own, whatever
 * words it has but those that are `certain`.  Any other text with a table of TOML is TOML.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "config/foreign.h"
#include "config/schema.h"

/* Keys that have other defaults in PyTorch's AdamW and the programs that use it: a weight_decay of
 * 0 or 0.01, and a beta2 of 0.999. */
#define ADAMW_OF_TORCH "train.weight_decay|train.beta2"

/* The same in Hugging Face's Trainer, and programs that train by it, whose schedule is linear. */
#define TRAINER ADAMW_OF_TORCH "|train.schedule"

/* Words that only one program's configurations have.  The first row of which a text has a word
 * names its program. */
static const struct program {
    const char *words, *name; /* words NULL: it has scripts alone */
    const char *script;       /* options and commands of shell scripts "a|b", or NULL */
    const char *defaults;     /* keys "a|b" whose defaults differ there, or NULL */
    int certain; /* 1: also beside groups of trireme's, as torchtune has a group model */
} programs[] = {
    {.words = "_component_",
     .name = "torchtune",
     .defaults = ADAMW_OF_TORCH "|train.clip|train.schedule",
     .certain = 1},
    {.words = "compute_environment|distributed_type|main_training_function",
     .name = "Accelerate",
     .defaults = ADAMW_OF_TORCH "|train.clip|train.schedule"},
    {.words = "zero_optimization|train_micro_batch_size_per_gpu|zero_allow_untested_optimizer",
     .name = "DeepSpeed",
     .defaults = ADAMW_OF_TORCH "|train.clip|train.schedule|train.warmup_type"},
    {.words = "finetuning_type|cutoff_len",
     .name = "LLaMA-Factory",
     .script = "--finetuning_type|--cutoff_len",
     .defaults = TRAINER "|lora.alpha"},
    {.words = "base_model|sample_packing|lora_target_linear|dataset_prepared_path",
     .name = "axolotl",
     .defaults = ADAMW_OF_TORCH},
    {.words = "per_device_train_batch_size|num_train_epochs",
     .name = "Hugging Face's Trainer",
     .script = "--per_device_train_batch_size|--num_train_epochs",
     .defaults = TRAINER},
    {.words = "data_parallel_shard_degree|local_batch_size|dump_folder|tensor_parallel_degree|"
              "parallelism",
     .name = "torchtitan",
     .defaults = "train.schedule|train.warmup_steps"},
    {.words = "tensor_model_parallel_size|pipeline_model_parallel_size|train_iters|language_model",
     .name = "Megatron-LM",
     .script = "--tensor-model-parallel-size|--pipeline-model-parallel-size|--train-iters|"
               "--train-samples|--ffn-hidden-size",
     .defaults = ADAMW_OF_TORCH "|train.schedule"},
    {.words = "device_train_microbatch_size|global_train_batch_size|max_duration",
     .name = "LLM Foundry",
     .defaults = ADAMW_OF_TORCH "|train.clip|train.schedule"},
    {.words = "architectures|transformers_version", .name = "a Hugging Face model"},
    {.words = "always_save_checkpoint|wandb_log|decay_lr",
     .name = "nanoGPT",
     .defaults = "train.schedule|train.warmup_steps|train.min_lr"},
    {.name = "llm.c",
     .script = "train_gpt2cu|train_gpt2|train_gpt2fp32cu",
     .defaults = "train.weight_decay"},
};

enum {
    NAME_CHARS = 128, /* bytes of a name, its 0 included */
    NAME_SHOWN = 900  /* bytes of a path that err shows */
};

/* Return the bytes of a quoted text with its quotes; a text without a closing quote ends with the
 * line. */
static size_t quoted_bytes(const char *text)
{
    size_t i = 1;
    for (; text[i] && text[i] != '\n' && text[i] != text[0]; i++)
        i += text[0] == '"' && text[i] == '\\' && text[i + 1] && text[i + 1] != '\n';
    return i + (text[i] == text[0]);
}

/* Return a copy of a text, for free(), in which comments and quoted values are blanks. */
static char *keys_of(const char *text)
{
    char *keys = array_text(text);
    for (size_t at = 0, bytes; text[at]; at += bytes) {
        const char *begin = text + at, *next;
        char before = at ? begin[-1] : '\n';
        int is_key = 0;
        bytes = 1;
        if (*begin == '#' && strchr(" \t\n", before)) {
            bytes = strcspn(begin, "\n");
        } else if ((*begin == '"' || *begin == '\'') && strchr(" \t\n{[,:=", before)) {
            bytes = quoted_bytes(begin);
            next = begin + bytes + strspn(begin + bytes, " \t");
            is_key = *next == ':' || *next == '=';
        }
        if (bytes > 1 && !is_key)
            memset(keys + at, ' ', bytes);
    }
    return keys;
}

/* Is the word that ends before `end` a key or a group of trireme's?  With begins_line it must also
 * stand at the beginning of a line.  "seed" does not count: every trainer has it. */
static int is_own_key(const char *keys, const char *end, int begins_line)
{
    char name[NAME_CHARS];
    const char *begin;
    while (end > keys && strchr(" \t\"'", end[-1]))
        end--;
    for (begin = end; begin > keys &&
                      (isalnum((unsigned char)begin[-1]) || begin[-1] == '_' || begin[-1] == '.');)
        begin--;
    snprintf(name, sizeof name, "%.*s", (int)(end - begin < NAME_CHARS ? end - begin : 0), begin);
    begin -= begin > keys && (begin[-1] == '"' || begin[-1] == '\'');
    if (begins_line && begin > keys && begin[-1] != '\n')
        return 0;
    return key_is_group(name) || (key_find(name) && strcmp(name, "seed") != 0);
}

/* Has the text a key or a group of trireme's at its top level: at the beginning of a line, or in
 * the outermost map of a JSON text? */
static int is_own(const char *keys)
{
    int in_map = keys[strspn(keys, " \t\n")] == '{', depth = 0;
    for (const char *at = keys; *at; at++) {
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (*at == ':' && depth == in_map && is_own_key(keys, at, !in_map))
            return 1;
    }
    return 0;
}

/* Is the word at `at` the name of a table of TOML, "[word]" at the beginning of a line? */
static int begins_table(const char *text, const char *at)
{
    return at > text && at[-1] == '[' && (at - 1 == text || at[-2] == '\n');
}

/* Has text word as a key with a value other than null: "word: ", "word = ", both also quoted; or as
 * a table "[word]"? */
static int has_key(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length) {
        const char *end = at + length;
        if (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
            continue;
        if (*end == ']' && begins_table(text, at))
            return 1;
        end += *end == '"' || *end == '\'';
        end += strspn(end, " \t");
        if (*end != ':' && *end != '=')
            continue;
        end += 1 + strspn(end + 1, " \t");
        if (strncmp(end, "null", strlen("null")) != 0)
            return 1;
    }
    return 0;
}

/* Has text one of names "a|b" as a key? */
static int has_one(const char *text, const char *names)
{
    char word[NAME_CHARS];
    for (const char *n = names; n; n = strchr(n, '|')) {
        n += *n == '|';
        snprintf(word, sizeof word, "%.*s", (int)strcspn(n, "|"), n);
        if (has_key(text, word))
            return 1;
    }
    return 0;
}

static const struct program *program_of(const char *text, int certain)
{
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (programs[i].certain >= certain && has_one(text, programs[i].words))
            return &programs[i];
    return NULL;
}

/* Has the text a line "[table]" of TOML? */
static int is_toml(const char *text)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t bytes =
            *line == '[' ? strspn(line + 1, "abcdefghijklmnopqrstuvwxyz_.0123456789") : 0;
        const char *end = line + 1 + bytes;
        if (bytes && *end == ']' && strchr("\n\r", end[1 + strspn(end + 1, " \t")]))
            return 1;
    }
    return 0;
}

/* The first program of which a shell script has an option or a command. */
static const struct program *program_of_script(const char *text)
{
    char word[NAME_CHARS];
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        for (const char *n = programs[i].script; n; n = strchr(n, '|')) {
            n += *n == '|';
            snprintf(word, sizeof word, "%.*s", (int)strcspn(n, "|"), n);
            const char *at = strstr(text, word);
            if (at && strchr(" =\t\n\\", at[strlen(word)]))
                return &programs[i];
        }
    return NULL;
}

void foreign_recognise(struct foreign_source *source, const char *name, const char *text)
{
    *source = (struct foreign_source){.name = name, .text = text, .keys = keys_of(text)};
    int own = is_own(source->keys);
    const struct program *program = program_of(source->keys, own);
    if (!program && !own && (program = program_of_script(text)))
        source->is_script = 1;
    if (program) {
        source->program = program->name;
        source->defaults = program->defaults;
    }
    source->is_toml = !program && !own && is_toml(source->keys);
}

void foreign_free(struct foreign_source *source)
{
    free(source->keys);
    source->keys = NULL;
}

int foreign_refuse(const char *name, const char *text, struct error *err)
{
    struct foreign_source source;
    foreign_recognise(&source, name, text);
    if (source.is_toml)
        error_set(err, "%.*s is TOML; a configuration here is YAML", NAME_SHOWN, name);
    if (source.program)
        error_set(err,
                  "%.*s is a configuration of %s, not of trireme; trireme config --translate %.*s "
                  "writes it with trireme's keys",
                  NAME_SHOWN, name, source.program, NAME_SHOWN, name);
    foreign_free(&source);
    return -1;
}
