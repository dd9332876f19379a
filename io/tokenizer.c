/* tokenizer.c - opening and closing a tokenizer; see tokenizer.h. */
#include "io/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "io/h5.h"
#include "io/tokenizer_file.h"

/* Fill the tokenizer "bytes": tokens 0 to 255 are the bytes, spelled "<0x00>" to "<0xFF>", 256 ends
 * texts. */
static void open_bytes(struct tokenizer *tokenizer)
{
    struct tokenizer_data *data = tokenizer->data;
    char text[8];
    data->model = &tokenizer_bytes;
    for (int i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        tokenizer_vocab_add(&data->texts, text, 6, (uint32_t)i);
    }
    tokenizer_vocab_add(&data->texts, "<|endoftext|>", 13, 256);
    tokenizer->end_of_text = tokenizer->role[TOKENIZER_EOS] = 256;
    tokenizer->vocab = data->texts.size;
    data->flags = array_make((size_t)tokenizer->vocab, 1);
    data->flags[256] = TOKENIZER_IS_SPECIAL | TOKENIZER_IS_STOP;
    snprintf(tokenizer->name, sizeof tokenizer->name, "%s", data->model->name);
}

/* Returns 1 if path is meant as a path: it has a slash, or a file of this name exists. */
static int is_there(const char *path)
{
    return strchr(path, '/') || !access(path, F_OK);
}

int tokenizer_open(struct tokenizer **opened, const char *name_or_path, struct error *err)
{
    struct tokenizer *tokenizer = array_make(1, sizeof *tokenizer);
    *opened = NULL;
    tokenizer->data = array_make(1, sizeof *tokenizer->data);
    tokenizer->end_of_text = -1;
    for (int i = 0; i < TOKENIZER_ROLES; i++)
        tokenizer->role[i] = tokenizer->unknown_id[i] = -1;
    int rc = 0;
    if (!strcmp(name_or_path, "bytes"))
        open_bytes(tokenizer);
    else if (h5_is_file(name_or_path))
        rc = error_set(err, "%s is an HDF5 file, as token files are, and no tokenizer.json",
                       name_or_path);
    else if (is_there(name_or_path))
        rc = tokenizer_file_open(tokenizer, name_or_path, err);
    else
        rc = error_set(err,
                       "no tokenizer \"%s\": it is neither \"bytes\", nor a tokenizer.json, nor a "
                       "folder that has one",
                       name_or_path);
    if (!rc) {
        *opened = tokenizer;
        return 0;
    }
    tokenizer_close(tokenizer);
    return -1;
}

/* Free what rules, steps and undos own. */
static void free_steps(struct tokenizer_data *data)
{
    for (int i = 0; i < TOKENIZER_MOST_STEPS; i++) {
        free(data->rules[i].from);
        free(data->rules[i].to);
        tokenizer_regex_destroy(data->rules[i].regex);
        free(data->steps[i].prefix);
        free(data->steps[i].space);
        free(data->steps[i].literal);
        tokenizer_regex_destroy(data->steps[i].regex);
        free(data->undos[i].from);
        free(data->undos[i].to);
    }
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    struct tokenizer_data *data = tokenizer->data;
    free_steps(data);
    tokenizer_added_free(&data->added[0]);
    tokenizer_added_free(&data->added[1]);
    tokenizer_bpe_free(data->bpe);
    tokenizer_wordpiece_free(data->wordpiece);
    tokenizer_vocab_free(&data->texts);
    free(data->before);
    free(data->after);
    free(data->classes);
    free(data->flags);
    free(data);
    free(tokenizer->path);
    free(tokenizer);
}
