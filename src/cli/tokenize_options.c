/* tokenize_options.c - the options of tokenize; see tokenize.h. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/tokenize.h"
#include "io/ordered.h"

enum { MOST_DEFAULT_THREADS = 32 };

static int read_fraction(const char *text, double *fraction, struct error *err)
{
    char *end;
    *fraction = strtod(text, &end);
    if (end == text || *end || !(*fraction > 0 && *fraction < 1))
        return error_set(err, "--valid-fraction %s: it must be between 0 and 1", text);
    return 0;
}

/* Set *value to the number of an option's word among words; where the option is not given, leave
 * *value. */
static int read_choice(const char *name, int *argc, char **argv, const char *const *words,
                       int *value, struct error *err)
{
    const char *text = arguments_option(name, argc, argv);
    char all[128] = "";
    for (int i = 0; words[i]; i++) {
        if (text && !strcmp(text, words[i])) {
            *value = i;
            return 0;
        }
        text_join(all, sizeof all, ", ", "%s", words[i]);
    }
    return text ? error_set(err, "%s %s: it must be one of %s", name, text, all) : 0;
}

/* Count the cores that this process may use. */
static int cores(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return count < 1 ? 1 : count > MOST_DEFAULT_THREADS ? MOST_DEFAULT_THREADS : count;
}

static int read_how(struct tokenize_options *o, int *argc, char **argv, struct error *err)
{
    static const char *const formats[] = {"auto", "text", "jsonl", "npy", "bin", NULL};
    static const char *const losses[] = {"completion", "all", NULL};
    int format = INPUT_ANY, loss = TOKENIZE_COMPLETION;
    int64_t threads;
    if (read_choice("--format", argc, argv, formats, &format, err) ||
        read_choice("--loss", argc, argv, losses, &loss, err) ||
        arguments_count("--max-tokens", argc, argv, 1, INT32_MAX, &o->max_tokens, 0, err) ||
        arguments_count("--vocab", argc, argv, 1, INT32_MAX, &o->vocab, 0, err) ||
        arguments_count("--threads", argc, argv, 1, ORDERED_MOST_THREADS, &threads, cores(), err))
        return -1;
    o->format = (enum inputs_format)format;
    o->loss = (enum tokenize_loss)loss;
    o->threads = (int)threads;
    o->drops_long = arguments_flag("--drop-long", argc, argv);
    o->skips_bad = arguments_flag("--skip-bad", argc, argv);
    o->specials = arguments_flag("--specials", argc, argv);
    if (arguments_option("--special-tokens", argc, argv))
        return error_set(err,
                         "--special-tokens goes with --train-bpe, which makes a tokenizer; one "
                         "that is there has its own");
    o->fields.text = arguments_option("--field", argc, argv);
    o->fields.prompt = arguments_option("--prompt-field", argc, argv);
    o->fields.completion = arguments_option("--completion-field", argc, argv);
    if (o->drops_long && !o->max_tokens)
        return error_set(err, "--drop-long wants a length: --max-tokens N");
    if (o->fields.prompt && !o->fields.completion)
        o->fields.completion = "completion";
    if (o->fields.completion && !o->fields.prompt)
        o->fields.prompt = "prompt";
    if (o->fields.text && o->fields.prompt)
        return error_set(err, "--field names a text, --prompt-field and --completion-field two "
                              "parts of one: give one or the other");
    return 0;
}

int tokenize_options_read(struct tokenize_options *o, int *argc, char **argv, struct error *err)
{
    const int given = *argc;
    *o = (struct tokenize_options){0};
    const char *fraction = arguments_option("--valid-fraction", argc, argv);
    o->tokenizer = arguments_option("--tokenizer", argc, argv);
    o->chat = arguments_option("--chat-template", argc, argv);
    o->eos = arguments_option("--eos", argc, argv);
    o->train = arguments_option("-o", argc, argv);
    o->valid = arguments_option("--valid", argc, argv);
    if (arguments_flag("--verify", argc, argv))
        o->use = TOKENIZE_VERIFY;
    if (arguments_flag("--seal", argc, argv))
        o->use = TOKENIZE_SEAL;
    if ((fraction && read_fraction(fraction, &o->valid_fraction, err)) ||
        read_how(o, argc, argv, err))
        return -1;
    if (o->use != TOKENIZE_MAKE && *argc < given - 1)
        return error_set(err, "--verify and --seal take token files, write no other, and have no "
                              "options");
    if (o->use != TOKENIZE_MAKE)
        return *argc > 1 ? 0 : error_set(err, "no token file: trireme tokenize --verify FILE.h5");
    if (!o->train)
        return error_set(err, "no output: trireme tokenize INPUT... -o FILE.h5");
    if (!o->valid != !(o->valid_fraction > 0))
        return error_set(err, "--valid FILE.h5 and --valid-fraction F belong together");
    return 0;
}

int tokenize_options_check(const struct tokenize_options *o, const struct inputs *inputs,
                           struct error *err)
{
    int lines = inputs_of(inputs, INPUT_JSONL), texts = inputs_of(inputs, INPUT_TEXT);
    int numbers = inputs_of(inputs, INPUT_NPY) + inputs_of(inputs, INPUT_BIN);
    const struct {
        const char *name;
        int given, used;
        const char *what;
    } rows[] = {
        {"--field", o->fields.text != NULL, lines, "JSON lines"},
        {"--prompt-field", o->fields.prompt != NULL, lines, "JSON lines"},
        {"--chat-template", o->chat != NULL, lines, "JSON lines"},
        {"--loss all", o->loss == TOKENIZE_ALL, lines, "JSON lines"},
        {"--skip-bad", o->skips_bad, lines, "JSON lines"},
        {"--max-tokens", o->max_tokens != 0, lines, "JSON lines"},
        {"--specials", o->specials, lines + texts, "texts"},
        {"--tokenizer", o->tokenizer != NULL, lines + texts + numbers, "texts and token ids"},
        {"--vocab", o->vocab != 0, numbers, "token ids"},
        {"--eos", o->eos != NULL, numbers, "token ids"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].given && !rows[i].used)
            return error_set(err,
                             "%s is for %s, and there are none (inputs are taken for %s; "
                             "--format names another)",
                             rows[i].name, rows[i].what,
                             lines     ? "JSON lines"
                             : texts   ? "text"
                             : numbers ? "token ids"
                                       : "token files, which are joined");
    if (o->vocab && o->tokenizer)
        return error_set(err, "--vocab is for ids of a tokenizer that is not at hand: give it or "
                              "--tokenizer");
    if (o->vocab && lines + texts)
        return error_set(err,
                         "--vocab is for token ids alone; of the inputs %d are text: name their "
                         "tokenizer (--tokenizer PATH)",
                         lines + texts);
    if (numbers && !o->vocab && !o->tokenizer)
        return error_set(err, "whose token ids are these? name their tokenizer (--tokenizer PATH), "
                              "or their number (--vocab N)");
    return 0;
}
