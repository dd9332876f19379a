/* commands.c - the table of commands: usage, options, and what runs them. */
#include "base/text.h"
#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/launch.h"
#include "config/foreign.h"
#include "config/schema.h"

/* Usage lines leave out how ranks are started (srun, mpirun): that is in the examples. */
const struct command commands[] = {
    {.name = "train",
     .usage = "[CONFIG | RUN] [key=value ...]",
     .summary = "train a model",
     .example =
         "  trireme train model.preset=llama-tiny data.train=text.h5 train.steps=200\n"
         "  mpirun -n 2 trireme train my.yaml train.lr=1e-4      two ranks, one for each GPU\n"
         "  srun --mpi=pmix trireme train my.yaml                in a job of Slurm\n",
     .takes_keys = 1,
     .collective = 1,
     .also = "resume continue fit pretrain finetune",
     .run = command_train},
    {.name = "evaluate",
     .usage = "[CONFIG | RUN | CHECKPOINT] [key=value ...]",
     .summary = "loss and perplexity of a checkpoint on data.valid",
     .example = "  trireme evaluate runs/default data.valid=valid.h5\n"
                "  trireme evaluate runs/default/checkpoints/best data.valid=valid.h5\n"
                "  trireme evaluate model.path=FOLDER data.valid=valid.h5\n",
     .takes_keys = 1,
     .collective = 1,
     .also = "eval test validate valid",
     .run = command_evaluate},
    {.name = "generate",
     .usage = "RUN|CHECKPOINT|MODEL [key=value ...] [--prompt TEXT | --prompts FILE] [--chat] "
              "[--tokens N]\n"
              "      [--min-tokens N] [--temperature X] [--top-k N] [--top-p X] "
              "[--repetition-penalty X]\n"
              "      [--stop TEXT] [--seed N] [--batch N] [--tokenizer NAME] [--chat-template "
              "NAME] [--system TEXT]",
     .summary = "continue texts, or talk; without --prompt, the text of standard input",
     .example = "  trireme generate runs/default --prompt \"Once upon a time\" --tokens 200\n"
                "  trireme generate Llama-3.2-1B-Instruct --chat --chat-template llama3.1\n"
                "  trireme generate runs/default --prompts questions.jsonl --temperature 0 "
                ">answers.jsonl\n"
                "  mpirun -n 2 trireme generate meta-llama/Meta-Llama-3-8B --prompt \"The sea\"\n",
     .options = {{"--prompt", "TEXT"},
                 {"--prompts", "FILE"},
                 {"--chat", NULL},
                 {"--tokens", "N"},
                 {"--min-tokens", "N"},
                 {"--temperature", "X"},
                 {"--top-k", "N"},
                 {"--top-p", "X"},
                 {"--repetition-penalty", "X"},
                 {"--stop", "TEXT"},
                 {"--seed", "N"},
                 {"--batch", "N"},
                 {"--tokenizer", "NAME"},
                 {"--chat-template", "NAME"},
                 {"--system", "TEXT"}},
     .aliases = {{.names = "--max-tokens --max-new-tokens --max-length --num-tokens",
                  .here = "--tokens"},
                 {.names = "--min-new-tokens --min-length", .here = "--min-tokens"},
                 {.names = "--batch-size --max-batch-size", .here = "--batch"},
                 {.names = "--temp", .here = "--temperature"}},
     .collective = 1,
     .also = "sample gen complete inference infer chat",
     .run = command_generate},
    {.name = "tokenize",
     .usage =
         "INPUT... [--tokenizer PATH] [--valid FILE.h5 --valid-fraction F] [--format FORMAT]\n"
         "      [--field NAME | --prompt-field NAME --completion-field NAME] [--chat-template "
         "NAME]\n"
         "      [--loss completion|all] [--max-tokens N [--drop-long]] [--skip-bad] [--specials]\n"
         "      [--vocab N] [--eos TOKEN] [--threads N] -o FILE.h5\n"
         "  trireme tokenize INPUT... --train-bpe N [--special-tokens A,B] -o tokenizer.json\n"
         "  trireme tokenize --verify | --seal FILE.h5...",
     .summary =
         "make a token file from texts, JSON lines, token ids: files, folders, or - for\n"
         "      standard input; verify token files, or add checksums to those that have none",
     .example =
         "  trireme tokenize corpus/*.txt -o train.h5 --valid valid.h5 --valid-fraction 0.01\n"
         "  trireme tokenize chats.jsonl --tokenizer Llama-3-8B-Instruct -o chats.h5\n"
         "  trireme tokenize fineweb_train_*.bin --vocab 50257 --eos 50256 -o web.h5\n",
     .options = {{"--tokenizer", "PATH"},
                 {"--valid", "FILE", .is_output = 1},
                 {"--valid-fraction", "F"},
                 {"-o", "FILE", .is_output = 1},
                 {"--train-bpe", "N"},
                 {"--special-tokens", "A,B"},
                 {"--format", "FORMAT", .words = "auto text jsonl npy bin"},
                 {"--field", "NAME"},
                 {"--prompt-field", "NAME"},
                 {"--completion-field", "NAME"},
                 {"--chat-template", "NAME"},
                 {"--loss", "WHICH", .words = "completion all"},
                 {"--max-tokens", "N"},
                 {"--drop-long", NULL},
                 {"--skip-bad", NULL},
                 {"--specials", NULL},
                 {"--vocab", "N"},
                 {"--eos", "TOKEN"},
                 {"--threads", "N"},
                 {"--verify", NULL},
                 {"--seal", NULL}},
     .aliases = {{.names = "--output --out --output-file", .here = "-o"},
                 {.names = "--num-workers --workers --num-proc", .here = "--threads"}},
     .alone = "--threads N shares the work",
     .also = "prepare preprocess data",
     .run = command_tokenize},
    {.name = "plan",
     .usage = "[CONFIG | RUN | CHECKPOINT] [key=value ...] [--ranks|--gpus N] [--nodes N]\n"
              "      [--threads N] [--machine NAME|FILE[:NAME]] [--network PORTSxRATE]\n"
              "      [--node-memory GIB] [--json FILE] [--schedule-svg FILE]\n"
              "      [--schedule-csv FILE.csv] [--trace FILE.json] [--timeline-svg FILE]\n"
              "      [--search [--yaml FILE | --nodes N-M [--keep global_batch|batch_per_rank]]\n"
              "      | --fewest]",
     .summary = "memory, communication and time of every rank, checked, and of every strategy,\n"
                "      without running; or the fastest layout, or the fewest ranks",
     .example = "  trireme plan my.yaml --ranks 16 --nodes 2 --machine h100\n",
     .options = {{"--ranks", "N"},
                 {"--gpus", "N"},
                 {"--nodes", "N"},
                 {"--keep", "WHAT", .words = "global_batch batch_per_rank"},
                 {"--threads", "N"},
                 {"--machine", "NAME|FILE"},
                 {"--network", "PORTSxRATE"},
                 {"--node-memory", "GIB"},
                 {"--json", "FILE", .is_output = 1},
                 {"--schedule-svg", "FILE", .is_output = 1},
                 {"--schedule-csv", "FILE", .is_output = 1},
                 {"--trace", "FILE", .is_output = 1},
                 {"--timeline-svg", "FILE", .is_output = 1},
                 {"--search", NULL},
                 {"--yaml", "FILE", .is_output = 1},
                 {"--fewest", NULL}},
     .aliases = {{.names = "--num-nodes --nnodes --num-machines", .here = "--nodes"},
                 {.names = "--gpu-memory --gpu-mem --memory", .here = "--machine FILE"}},
     .takes_keys = 1,
     .alone = "--ranks N says how many ranks are planned",
     .also = "estimate-memory estimate memory",
     .run = command_plan},
    {.name = "config",
     .usage = "[--show [KEY|GROUP ...] | --translate FILE | [CONFIG] [key=value ...]]",
     .summary = "describe the keys, check a config, or translate that of another trainer",
     .example =
         "  trireme config --show train.clip parallel\n  trireme config my.yaml train.steps=5\n"
         "  trireme config --translate ds_config.json >my.yaml\n",
     .options = {{"--show", NULL}, {"--translate", "FILE"}},
     .takes_keys = 1,
     .also = "keys show options",
     .alone = "a config is the same on all ranks",
     .run = command_config},
    {.name = "checkpoint",
     .usage = "ls DIR | verify DIR | show DIR",
     .summary = "look at checkpoints; ls of a run lists those in its branches/, too",
     .example = "  trireme checkpoint ls runs/default\n",
     .words = "ls verify show",
     .alone = "it reads what all ranks saved",
     .also = "ls verify checkpoints ckpt",
     .run = command_checkpoint},
    {.name = "convert",
     .usage = "RUN|CHECKPOINT FOLDER [model.path=FOLDER] [--merge] [--dtype fp32|bf16|fp16]\n"
              "      [--file-gb N] [--tokenizer FILE|FOLDER]",
     .summary = "the model of a checkpoint as a folder for Hugging Face's programs:\n"
                "      config.json and safetensors, which model.path takes too; of one with\n"
                "      adapters these alone, as peft keeps them, or with --merge the model that\n"
                "      they make",
     .example = "  trireme convert runs/default model-hf --dtype bf16\n",
     .options = {{"--merge", NULL},
                 {"--dtype", "FORMAT", .words = "fp32 bf16 fp16"},
                 {"--file-gb", "N"},
                 {"--tokenizer", "FILE"}},
     .also = "export save hf huggingface safetensors",
     .alone = "it reads what all ranks saved",
     .run = command_convert},
    {.name = "doctor",
     .usage = "[--gpu | --measure FILE [--disk FOLDER] [--quick]]",
     .summary =
         "what was found on this machine, and what is wrong; --gpu: whether its GPUs\n"
         "      compute what the CPU does, a line for each family of kernels; --measure: how\n"
         "      fast it is, for trireme plan --machine FILE",
     .example = "  mpirun -n 2 trireme doctor --measure machine.yaml\n",
     .options = {{"--gpu", NULL},
                 {"--measure", "FILE", .is_output = 1},
                 {"--disk", "FOLDER"},
                 {"--quick", NULL}},
     .collective = 1,
     .also = "env info diagnose measure benchmark bench",
     .run = command_doctor},
    {.name = "tensorboard",
     .usage = "RUN... -o FOLDER [--follow]",
     .summary = "write metrics of runs as event files, which TensorBoard shows",
     .example = "  trireme tensorboard runs/* -o curves && tensorboard --logdir curves\n"
                "  trireme tensorboard runs/default -o curves --follow    as the run writes them\n",
     .options = {{"-o", "FOLDER", .is_output = 1}, {"--follow", NULL}},
     .aliases = {{.names = "--output --out --logdir --output-dir", .here = "-o"},
                 {.names = "--watch --live -f", .here = "--follow"}},
     .alone = "it reads what all ranks wrote",
     .run = command_tensorboard},
    {.name = "completion",
     .usage = "bash",
     .summary = "print the shell's completion of commands, keys and values",
     .example = "  . <(trireme completion bash)\n",
     .words = "bash",
     .run = command_completion},
};

const int command_count = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *name)
{
    for (int i = 0; i < command_count; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

/* Is the name one of words, "eval test"? */
static int is_word(const char *name, const char *words)
{
    size_t length = strlen(name);
    for (const char *w = words; w && *w; w += strcspn(w, " "), w += *w == ' ')
        if (length && strcspn(w, " ") == length && !strncmp(w, name, length))
            return 1;
    return 0;
}

const char *command_nearest(const char *name)
{
    struct nearest nearest = {name};
    for (int i = 0; i < command_count; i++) {
        if (is_word(name, commands[i].also))
            return commands[i].name;
        nearest_try(&nearest, commands[i].name, commands[i].name);
    }
    return nearest.name;
}

static const struct command_option *option_find(const struct command *command, const char *argument,
                                                size_t length)
{
    for (const struct command_option *o = command->options; o->name; o++)
        if (strlen(o->name) == length && !strncmp(o->name, argument, length))
            return o;
    return NULL;
}

/* "--prompt, --tokens" or "none" */
static const char *option_names(const struct command *command, char *text, size_t size)
{
    text[0] = 0;
    for (const struct command_option *o = command->options; o->name; o++)
        text_join(text, size, ", ", "%s", o->name);
    return text[0] ? text : "none";
}

/* Set err for an option of another program that says how many ranks there are; -n is also llm.c's,
 * and a key.  Returns -1; 0: it is none. */
static int answer_ranks(const struct command *command, const char *name, const char *value,
                        struct error *err)
{
    static const char ranks[] = "-n -np --np --nproc --ntasks --gpus --ranks --num_gpus --num-gpus "
                                "--num_processes --num-processes --nproc_per_node --nproc-per-node "
                                "--world_size --world-size";
    if (!is_word(name, ranks))
        return 0;
    if (option_find(command, "--ranks", strlen("--ranks")))
        return error_set(err, "%s has no option %s; did you mean --ranks?", command->name, name);
    if (!command->collective)
        return 0;
    error_set(err,
              "%s has no option %s: a launcher starts the ranks, as in mpirun -n %s trireme "
              "%s ..., or srun --mpi=pmix",
              command->name, name, value ? value : "N", command->name);
    const struct foreign *f = command->takes_keys && value ? foreign_find(name) : NULL;
    if (f && f->here && name[1] != '-' && !name[2])
        text_append(err->text, sizeof err->text, "; llm.c's %s is a key here: %s=%.80s", name,
                    f->here, value);
    return -1;
}

static int is_number(const char *text)
{
    char *end;
    strtod(text, &end);
    return *text && !*end;
}

/* Set err to say what another program's option is here.  Where there is a note, the option's value
 * is not repeated: it may mean another thing here.  Returns -1. */
static int answer_foreign(const struct command *command, const char *name, const char *value,
                          const struct foreign *f, struct error *err)
{
    if (!f->here)
        return error_set(err, "%s has no option %s: %s", command->name, name, f->note);
    if (f->note)
        return error_set(err, "%s has no option %s; it takes keys: %s=... (%s)", command->name,
                         name, f->here, f->note);
    return error_set(err, "%s has no option %s; it takes keys: %s=%.80s", command->name, name,
                     f->here, value ? value : "...");
}

/* Answer an option to a command that takes keys instead: a configuration file, or a key in the form
 * of an option.  An option of one letter is looked up where it has a value, as llm.c's have.
 * Returns -1 with err set; 0: the option is neither. */
static int answer_key(const struct command *command, const char *name, const char *value,
                      struct error *err)
{
    const char *word = name + strspn(name, "-");
    int is_letter = !word[0] || !word[1];
    if (is_word(name, "--config --config-file --config_file --") ||
        (value && !is_number(value) && is_word(name, "-c -f")))
        return error_set(err, "%s has no option %s: the file stands alone, as in trireme %s %s",
                         command->name, name, command->name, value ? value : "FILE");
    if (is_word(name, "--model")) /* as a key's name, "model" is a group here */
        return error_set(err,
                         "%s has no option %s; it takes keys: model.path=... (a folder of weights, "
                         "or a name of Hugging Face's hub), or model.preset=%.80s",
                         command->name, name, value && preset_find(value) ? value : "...");
    const struct foreign *f = is_letter && !value ? NULL : foreign_find(name);
    if (f)
        return answer_foreign(command, name, value, f, err);
    const char *key = is_letter ? NULL : key_meant(word);
    if (!key)
        return 0;
    return error_set(err, "%s has no option %s; it takes keys: %s=%.80s", command->name, name, key,
                     value ? value : "...");
}

/* Copy the name of the option argv[0], up to '=' or its end, into name.  Returns its value, which
 * may be the next argument; NULL: it has none. */
static const char *option_given(char **argv, char *name, size_t size)
{
    const char *value = strchr(argv[0], '=');
    snprintf(name, size, "%.*s", (int)strcspn(argv[0], "="), argv[0]);
    return value ? value + 1 : argv[1] && argv[1][0] != '-' ? argv[1] : NULL;
}

/* Append to err, which answers another program's option, what the options that follow it are here.
 */
static void answer_others(const struct command *command, char **argv, struct error *err)
{
    char name[64];
    for (; *argv; argv++) {
        const char *value = option_given(argv, name, sizeof name);
        if (strncmp(name, "--", 2) != 0 || option_find(command, name, strlen(name)))
            continue;
        const struct foreign *f = foreign_find(name);
        const char *key = f ? f->here : key_meant(name + 2);
        if (key && f && f->note)
            text_append(err->text, sizeof err->text, "; %s is %s (%s)", name, key, f->note);
        else if (key)
            text_append(err->text, sizeof err->text, "; %s is %s=%.80s", name, key,
                        value ? value : "...");
    }
}

/* Return trireme's name for another program's option of this command; NULL: it is not known. */
static const char *alias_of(const struct command *command, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s", name);
    for (char *at = text; *at; at++)
        *at = *at == '_' ? '-' : *at;
    for (const struct command_alias *a = command->aliases; a->names; a++)
        if (is_word(text, a->names))
            return a->here;
    return NULL;
}

/* Set err for the option argv[0], which the command does not have: the option that was probably
 * meant, or the key, as "--lr 1e-3" and "--config x.yaml" are habits from other programs.  No
 * option is guessed from a single letter, which is near to every other letter.  Returns -1. */
static int not_an_option(const struct command *command, char **argv, struct error *err)
{
    char name[64], names[512];
    const char *value = option_given(argv, name, sizeof name);
    const char *alias = alias_of(command, name);
    struct nearest nearest = {name};
    for (const struct command_option *o = command->options; o->name && strlen(name) > 3; o++)
        nearest_try(&nearest, o->name, o->name);
    if (alias || nearest.name)
        return error_set(err, "%s has no option %s; did you mean %s?", command->name, name,
                         alias ? alias : nearest.name);
    if (answer_ranks(command, name, value, err))
        return -1;
    if (command->takes_keys && answer_key(command, name, value, err)) {
        answer_others(command, argv + 1, err);
        return -1;
    }
    return error_set(err, "%s has no option %s; it has %s%s", command->name, name,
                     option_names(command, names, sizeof names),
                     command->takes_keys ? ", and takes key=value (trireme config --show)" : "");
}

/* Check the value of the option argv[*i], in the same argument or in the next one; *i is then
 * advanced.  An option in place of the value means that the value was forgotten. */
static int check_value(const struct command *command, const struct command_option *option, int argc,
                       char **argv, int *i, struct error *err)
{
    const char *value = strchr(argv[*i], '=');
    if (!option->value)
        return value ? error_set(err, "%s takes no value", option->name) : 0;
    if (!value && *i + 1 == argc)
        return error_set(err, "%s wants a value: %s %s", option->name, option->name, option->value);
    if (!value && option_find(command, argv[*i + 1], strcspn(argv[*i + 1], "=")))
        return error_set(err, "%s wants a value, not the option %s: %s %s, or %s=%s", option->name,
                         argv[*i + 1], option->name, option->value, option->name, option->value);
    value = value ? value + 1 : argv[++*i];
    if (option->is_output && (!*value || !strcmp(value, "-")))
        return error_set(err, "%s '%s': name a file, which is written", option->name, value);
    return 0;
}

int command_check_options(const struct command *command, int argc, char **argv, struct error *err)
{
    for (int i = 1; i < argc; i++) {
        size_t length = strcspn(argv[i], "=");
        if (argv[i][0] != '-' || !argv[i][1])
            continue;
        const struct command_option *option = option_find(command, argv[i], length);
        if (!option)
            return not_an_option(command, argv + i, err);
        if (check_value(command, option, argc, argv, &i, err))
            return -1;
    }
    return 0;
}

/* Slurm also sets its variables for the script of a job and for a shell on a node (srun --pty
 * bash), in which the command is one process. */
int command_check_alone(const struct command *command, struct error *err)
{
    struct launch launch = launch_read();
    int in_shell = launch.kind == LAUNCH_SRUN && isatty(STDIN_FILENO);
    if (!command->alone || launch.tasks < 2 || launch.kind == LAUNCH_BATCH || in_shell)
        return 0;
    if (launch.task > 0)
        return -1;
    return error_set(err, "%s is for one process, and %s started %d; start it without: %s",
                     command->name, launch.name, launch.tasks, command->alone);
}
