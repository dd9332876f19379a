/* tokenizer_train.h - a byte-level BPE vocabulary from text.
 *
 * Texts are cut into words by GPT-2's pattern; at first each byte of a word is a token.  Then the
 * pair of neighbouring tokens that occurs most often becomes a token (of pairs that occur equally
 * often the one with the lesser ids), and so on until there are enough tokens or no pair occurs
 * twice.  The same text makes the same tokenizer, in whatever pieces it is given, on any machine:
 * the one that the trainer of `tokenizers` makes with min_frequency=2.
 */
#ifndef TRIREME_IO_TOKENIZER_TRAIN_H
#define TRIREME_IO_TOKENIZER_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct tokenizer_trainer;

/* The fewest tokens: "<|endoftext|>", of id 0, and one for each byte; special ones come on top. */
enum { TOKENIZER_FEWEST = 257, TOKENIZER_MOST_SPECIALS = 1000 };

/* Make a trainer without text, for tokenizer_trainer_destroy(). */
void tokenizer_trainer_create(struct tokenizer_trainer **trainer);
void tokenizer_trainer_destroy(struct tokenizer_trainer *trainer);

/* Add a special token, such as "<|im_start|>": it gets the next id from 1 on, before those of
 * bytes. Returns 0, or -1 with err set: it is empty, has other characters than visible ones of
 * ASCII or 100 of them, is there already, or there are TOKENIZER_MOST_SPECIALS. */
int tokenizer_trainer_add_special(struct tokenizer_trainer *trainer, const char *text, size_t bytes,
                                  struct error *err);

/* Count the words of a text, which begins and ends at ends of words.  Returns 0, or -1 with err
 * set: there are more than 2^24 - 1 different words. */
int tokenizer_trainer_add(struct tokenizer_trainer *trainer, const char *text, size_t bytes,
                          struct error *err);
/* Returns how many bytes of text can be given to tokenizer_trainer_add() now, so that the rest
 * begins with a whole word whatever follows these bytes; 0: none. */
size_t tokenizer_trainer_cut(const struct tokenizer_trainer *trainer, const char *text,
                             size_t bytes);

/* Make at most `tokens` tokens (TOKENIZER_FEWEST and the special ones, or more) from the words
 * counted so far, and replace the file at path by their tokenizer.json.  Returns 0 and in *made the
 * number of tokens, or -1 with err set. */
int tokenizer_trainer_write(struct tokenizer_trainer *trainer, int64_t tokens, const char *path,
                            int64_t *made, struct error *err);

#endif
