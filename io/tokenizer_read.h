/* tokenizer_read.h - parts of tokenizer.json, whose values are of the type that they must have. */
#ifndef TRIREME_IO_TOKENIZER_READ_H
#define TRIREME_IO_TOKENIZER_READ_H

#include "base/json.h"
#include "io/tokenizer_private.h"

/* A member of part that may be absent, or null; another type is an error.  0, or -1 with err set.
 */
int tokenizer_read_bool(const struct js *part, const char *key, int otherwise, int *value,
                        struct error *err);
int tokenizer_read_int(const struct js *part, const char *key, int64_t otherwise, int64_t *value,
                       struct error *err);
int tokenizer_read_text(const struct js *part, const char *key, const char *otherwise,
                        const char **value, struct error *err);

/* The i-th row of a table of names that begins with part's "type", or -1 with err saying that
 * `what` is of a type that is not in the table.  Rows of size bytes begin with a const char *name.
 */
int tokenizer_read_type(const struct js *part, const char *what, const void *table, int rows,
                        size_t size, struct error *err);

/* Call read for a part, or for each of those that a "Sequence" lists under key.  0, or -1 with err
 * set. */
int tokenizer_read_each(struct tokenizer_data *data, const struct js *part, const char *key,
                        const char *what,
                        int (*read)(struct tokenizer_data *data, const struct js *part,
                                    struct error *err),
                        struct error *err);

/* A "pattern": {"String": text} or {"Regex": pattern}: one of the two is made, to be freed. */
int tokenizer_read_pattern(const struct js *part, char **text, struct tokenizer_regex **regex,
                           const char **source, struct error *err);

/* "vocab" of a model, text to id, to vocab.  unk is the id of its "unk_token", -1: none. */
int tokenizer_read_vocab(const struct js *model, struct tokenizer_vocab *vocab, struct error *err);

#endif
