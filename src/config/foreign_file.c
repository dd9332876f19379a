/* foreign_file.c - files of other trainers: recognised by a few words in them, since lists and tags
 * may keep them from being read as trireme's YAML. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "config/foreign.h"

enum { FILE_BYTES = 1 << 16, WORD = 128 };

/* The first program of which a file has a word is the one it is of. */
static const struct {
    const char *words, *program;
} programs[] = {
    {.words = "compute_environment|distributed_type|main_training_function|fsdp_config",
     .program = "Accelerate"},
    {.words = "zero_optimization|train_micro_batch_size_per_gpu|zero_allow_untested_optimizer",
     .program = "DeepSpeed"},
    {.words = "per_device_train_batch_size|num_train_epochs", .program = "Hugging Face's Trainer"},
    {.words = "data_parallel_shard_degree|local_batch_size|dump_folder", .program = "torchtitan"},
    {.words = "architectures|transformers_version", .program = "a Hugging Face model"},
};

/* 1 where text has word as a key: "word: ", "word = " or a quoted one. */
static int has_key(const char *text, const char *word, size_t length)
{
    for (const char *at = text; (at = strstr(at, word)); at += length) {
        const char *end = at + length;
        if (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
            continue;
        end += *end == '"' || *end == '\'';
        end += strspn(end, " \t");
        if (*end == ':' || *end == '=')
            return 1;
    }
    return 0;
}

/* The first of names "a|b" that text has as a key, into word; of a dotted name only its parts are
 * looked for.  0 if there is none. */
static int first_key(const char *text, const char *names, char *word, size_t size)
{
    for (const char *n = names; n; n = strchr(n, '|')) {
        n += *n == '|';
        snprintf(word, size, "%.*s", (int)strcspn(n, "|"), n);
        char parts[WORD], *rest = parts, *part;
        int found = *word != '-';
        snprintf(parts, sizeof parts, "%s", word);
        while (found && (part = strsep(&rest, ".")))
            found = has_key(text, part, strlen(part));
        if (found)
            return 1;
    }
    return 0;
}

static int read_start(const char *path, char *text, size_t size)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got =
        fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode) ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0 ? 0 : -1;
}

static const char *program_of(const char *text)
{
    char word[WORD];
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (first_key(text, programs[i].words, word, sizeof word))
            return programs[i].program;
    return NULL;
}

/* "gradient_clipping is train.clip, ..." of the keys that the file has, as many as fit
 * in. */
static void translate(const char *text, char *answer, size_t size)
{
    char word[WORD];
    answer[0] = 0;
    for (int i = 0; i < foreign_count && strlen(answer) + 2 * WORD < size; i++) {
        const struct foreign *f = &foreign_names[i];
        if (f->here && first_key(text, f->names, word, sizeof word))
            text_join(answer, size, ", ", "%s is %s", word, f->here);
    }
}

int foreign_file(const char *path, struct error *err)
{
    char text[FILE_BYTES], answer[900];
    const char *program;
    if (read_start(path, text, sizeof text) || !(program = program_of(text)))
        return -1;
    translate(text, answer, sizeof answer);
    return error_set(err,
                     "%s is a configuration of %s, not of trireme%s%s; trireme config --show "
                     "lists the keys",
                     path, program, answer[0] ? ". Here " : "", answer);
}
