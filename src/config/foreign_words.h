/* foreign_words.h - the keys of another program's configuration, with their values: of YAML, JSON,
 * TOML and Python's assignments, or the options of a command in a shell script. */
#ifndef TRIREME_CONFIG_FOREIGN_WORDS_H
#define TRIREME_CONFIG_FOREIGN_WORDS_H

#include <stddef.h>

enum {
    FOREIGN_NAME = 128, /* bytes of a name, its 0 included */
    FOREIGN_VALUE = 64  /* the same of a value */
};

struct foreign_word {
    char name[FOREIGN_NAME];            /* "lora_alpha"; of an option "lora_alpha" too, or "-b" */
    char map[FOREIGN_NAME];             /* the map that it is in; "": none */
    char value[FOREIGN_VALUE];          /* "": a list, a map, or longer than this */
    int is_map, has_value, is_answered; /* of several with these names: a map, and a value */
    int depth, column;                  /* in so many braces; where it begins in its line */
};

/* All zero is an empty list.  The caller frees `word`. */
struct foreign_words {
    struct foreign_word *word; /* [count] in the order of the text */
    int count, capacity;
};

/* Add the keys of a text.  keys: the text with blanks for comments and quoted values. */
void foreign_words_read(struct foreign_words *words, const char *text, const char *keys);

/* Add the options of a shell script: "--train-iters 500", "--bf16" (true), "--seed=1", "-b 4". */
void foreign_words_read_options(struct foreign_words *words, const char *text);

/* Find a key that a name of foreign.c stands for, and count it as answered.  Of
 * "optimizer.params.lr" the parts but the last are maps of the file.  NULL: there is none that is
 * not answered yet. */
struct foreign_word *foreign_words_take(struct foreign_words *words, const char *name);

#endif
