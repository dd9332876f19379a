/* tokenizer_train.h - a byte-level BPE vocabulary from text.
 *
 * Words are GPT-2's.  The pair of neighbours that occurs most often becomes a token, of equal ones
 * the one of lesser ids, until there are enough tokens or no pair occurs twice.  The same text
 * makes the same tokenizer, in whatever pieces it is given, on any machine: the one that the
 * trainer of `tokenizers` makes with min_frequency=2.
 */
#ifndef TRIREME_IO_TOKENIZER_TRAIN_H
#define TRIREME_IO_TOKENIZER_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct tokenizer_trainer;

/* The fewest tokens: "<|endoftext|>", of id 0, and one for each byte. */
enum { TOKENIZER_FEWEST = 257 };

/* Make a trainer that has seen no text, for tokenizer_trainer_destroy(). */
void tokenizer_trainer_create(struct tokenizer_trainer **trainer);
void tokenizer_trainer_destroy(struct tokenizer_trainer *trainer);

/* Count the words of a text, which begins and ends at ends of words.  Returns 0, or -1 with err
 * set: there are more than 2^24 - 1 different words. */
int tokenizer_trainer_add(struct tokenizer_trainer *trainer, const char *text, size_t bytes,
                          struct error *err);
/* How many bytes of text can be added, so that the rest begins with a whole word, whatever follows
 * it; 0: none. */
size_t tokenizer_trainer_cut(const struct tokenizer_trainer *trainer, const char *text,
                             size_t bytes);

/* Make at most `tokens` tokens (257 or more) of the words so far and write a tokenizer.json, which
 * replaces the file at path.  Returns 0 and how many tokens there are, or -1 with err set. */
int tokenizer_trainer_write(struct tokenizer_trainer *trainer, int64_t tokens, const char *path,
                            int64_t *made, struct error *err);

#endif
