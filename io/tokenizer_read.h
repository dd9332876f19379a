/* tokenizer_read.h - reading parts of tokenizer.json, with errors for values of a wrong type. */
#ifndef TRIREME_IO_TOKENIZER_READ_H
#define TRIREME_IO_TOKENIZER_READ_H

#include "base/json.h"
#include "io/tokenizer_private.h"

/* Read member `key` of part into *value, or `otherwise` where it is absent or null.  Return 0, or
 * -1 with err set where it is of another type. */
int tokenizer_read_bool(const struct js *part, const char *key, int otherwise, int *value,
                        struct error *err);
int tokenizer_read_int(const struct js *part, const char *key, int64_t otherwise, int64_t *value,
                       struct error *err);
int tokenizer_read_text(const struct js *part, const char *key, const char *otherwise,
                        const char **value, struct error *err);

/* Look part's "type" up in a table of `rows` rows of `size` bytes, each of which begins with a
 * const char *name.  Returns the row's index, or -1 with err saying that `what` is of a type that
 * is not in the table. */
int tokenizer_read_type(const struct js *part, const char *what, const void *table, int rows,
                        size_t size, struct error *err);

/* Call read() for part; or, if part is a "Sequence", for each part that it lists under `key`.
 * Returns 0, or -1 with err set. */
int tokenizer_read_each(struct tokenizer_data *data, const struct js *part, const char *key,
                        const char *what,
                        int (*read)(struct tokenizer_data *data, const struct js *part,
                                    struct error *err),
                        struct error *err);

/* Read part's "pattern": of {"String": text} make a copy in *text, of {"Regex": pattern} a compiled
 * pattern in *regex, both to be freed; the other of the two is left as it is, so the caller sets
 * both to NULL first.  *source becomes the text of "Regex", which is part's, or NULL.  Returns 0,
 * or -1 with err set. */
int tokenizer_read_pattern(const struct js *part, char **text, struct tokenizer_regex **regex,
                           const char **source, struct error *err);

/* Read "vocab" of a model, an object of texts and their ids, into vocab.  Returns 0, or -1 with err
 * set. */
int tokenizer_read_vocab(const struct js *model, struct tokenizer_vocab *vocab, struct error *err);

#endif
