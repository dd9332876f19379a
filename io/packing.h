/* packing.h - which documents each sequence holds, where sequences are made of whole documents: as
 * many documents as fit (PACK_TOGETHER), or one document (PACK_SINGLY).
 *
 * A row is an input token and its target, the token after it.  A document of n tokens has n - 1
 * rows, as the last token is a target only: so no target is of another document.  A document of
 * more than seq_len rows is cut: PACK_TOGETHER makes pieces of seq_len rows and a rest, each of
 * which is packed like a document; PACK_SINGLY drops the rows after the first seq_len.  Documents
 * of fewer than two tokens are in no sequence.
 *
 * A packing is computed once, from the lengths of the documents and a key: so it is the same on
 * every rank, and after a resume.  It takes 4 bytes per document and 8 per sequence, and 12 more
 * per document while it is made.
 */
#ifndef TRIREME_IO_PACKING_H
#define TRIREME_IO_PACKING_H

#include <stdint.h>

#include "base/error.h"
#include "io/tokens.h"

enum packing_form { PACK_TOGETHER, PACK_SINGLY };

struct packing;

/* Pack the first `documents` documents of a file (0: all) into sequences of seq_len rows.  key
 * makes the random order of documents of equal lengths (a philox key).  Returns 0 and a packing for
 * packing_destroy(), or -1 with err set: the file cannot be read, no document has two tokens, there
 * are 2^32 - 1 documents or more, memory is out. */
int packing_create(struct packing **packing, struct tokens *tokens, enum packing_form form,
                   int64_t seq_len, int64_t documents, uint64_t key, struct error *err);
void packing_destroy(struct packing *packing); /* NULL allowed */

/* Returns the number of sequences. */
int64_t packing_sequences(const struct packing *packing);

/* Returns the number of rows that PACK_SINGLY has dropped. */
int64_t packing_cut_rows(const struct packing *packing);

/* Returns the number of documents of more than seq_len rows. */
int64_t packing_cut_documents(const struct packing *packing);

/* Rows of one document in a sequence.  Inputs are tokens [first, first + rows) of the file, targets
 * tokens [first + 1, first + rows + 1). */
struct packing_part {
    int64_t first, rows;
};

/* Find part number k of sequence number `sequence`, both counted from 0; parts lie in the sequence
 * one after the other.  tokens is the packed file.  Returns 1 and *part; 0 if the sequence has no
 * more than k parts; -1 with err set: as tokens_starts(), or the document's length is not what it
 * was when it was packed. */
int packing_part(const struct packing *packing, struct tokens *tokens, int64_t sequence, int64_t k,
                 struct packing_part *part, struct error *err);

#endif
