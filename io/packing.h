/* packing.h - which parts of which documents each sequence has, where sequences are made of whole
 * documents: as many as fit into one (PACK_TOGETHER), or one each (PACK_SINGLY).
 *
 * A document of n tokens has n - 1 rows, as its last token is no row's input but the last row's
 * target: so no target is of another document.  One of more than seq_len rows is, packed, cut into
 * pieces of seq_len rows and a rest, which are packed as if they were documents; padded, it loses
 * what is behind its first seq_len rows.  Documents of fewer than two tokens are in no sequence.
 *
 * A packing is made once, of the documents' lengths and a key: the same on every rank, and after a
 * resume.  It takes 4 bytes a document and 8 a sequence, while it is made 12 bytes a document more.
 */
#ifndef TRIREME_IO_PACKING_H
#define TRIREME_IO_PACKING_H

#include <stdint.h>

#include "base/error.h"
#include "io/tokens.h"

enum packing_form { PACK_TOGETHER, PACK_SINGLY };

struct packing;

/* Pack a file's documents, the first `documents` of them (0: all), into sequences of seq_len rows;
 * key: of the order of those of equal lengths.  Returns 0 and a packing for packing_destroy(), or
 * -1 with err set: the file cannot be read, none of its documents has two tokens, out of memory. */
int packing_create(struct packing **packing, struct tokens *tokens, enum packing_form form,
                   int64_t seq_len, int64_t documents, uint64_t key, struct error *err);
void packing_destroy(struct packing *packing); /* NULL allowed */

/* How many sequences there are. */
int64_t packing_sequences(const struct packing *packing);

/* The rows that PACK_SINGLY leaves away, behind the first seq_len of documents. */
int64_t packing_cut_rows(const struct packing *packing);

/* The rows of a document, or of a piece of one, in a sequence: their inputs are tokens [first,
 * first + rows) of the file, and the targets those one further on. */
struct packing_part {
    int64_t first, rows;
};

/* The k-th part of a sequence.  1 and *part; 0: it has no more; -1 with err set: as tokens_starts()
 * does, or the documents are not those that were packed. */
int packing_part(const struct packing *packing, struct tokens *tokens, int64_t sequence, int64_t k,
                 struct packing_part *part, struct error *err);

#endif
