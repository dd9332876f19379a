/* catalog.h - which tensors a checkpoint holds, and where each stored interval lies.
 *
 * It is gathered when saving and written twice: as virtual datasets for people, in index.h5 and
 * the shard files, and as the tables index/tensors, index/pieces and index/files of index.h5, which
 * loading uses.  Where tensors are stored in parts, index/boxes says which: the format is
 * FORMAT_BOXES then.
 *
 *   tensor attn.o 4 x 6    box [0+4,0+3]    elements 0 to 7     in shard 0
 *                                           elements 8 to 11    in shard 1
 *                          box [0+4,3+3]    elements 0 to 11    in shard 2
 */
#ifndef TRIREME_IO_CATALOG_H
#define TRIREME_IO_CATALOG_H

#include <stdint.h>

#include "base/box.h"
#include "base/dtype.h"
#include "base/error.h"
#include "comm/world.h"
#include "io/checkpoint.h"

struct h5;

/* CATALOG_BOXES: of one tensor, at most. */
enum { CATALOG_NAME = 256, CATALOG_BOXES = 4096 };

/* FORMAT_WHOLE: every tensor is one box. */
enum catalog_format { FORMAT_WHOLE = 1, FORMAT_BOXES };

struct catalog_tensor {
    char name[CATALOG_NAME];
    char dtype[8];
    int64_t rank, dims[CHECKPOINT_RANK_MAX];
    int64_t elems;
    int64_t first, count; /* its pieces in the table */
};

/* A part of a tensor that its pieces cover. */
struct catalog_box {
    int64_t tensor, first, pieces; /* its pieces in the table */
    struct box box;                /* files hold its start and count */
};

/* Elements [start, start + count) of a box of a tensor lie at byte offset of shard file `shard`. */
struct catalog_piece {
    int64_t tensor, shard, offset, start, count;
    uint64_t checksum; /* XXH3 of its bytes */
    int64_t box;       /* number of its box; not in files */
};

struct catalog_file {
    int64_t bytes;
    uint64_t rest; /* XXH3 of all bytes outside the pieces */
};

struct catalog {
    int64_t step;
    struct catalog_tensor *tensors; /* by name */
    struct catalog_box *boxes;      /* by tensor, start; none of a tensor that has no elements */
    struct catalog_piece *pieces;   /* by box, start */
    struct catalog_file *files;     /* by shard */
    int64_t tensor_count, box_count, piece_count, file_count;
};

/* The description of one piece, as the rank that holds it sends it to rank 0. */
struct catalog_entry {
    char name[CATALOG_NAME];
    int64_t dtype, start, count;
    struct box box;
    int64_t shard;
};

/* Make the tables of all entries; a piece's offset is the index of its entry until the
 * caller puts the true one there.  files is left empty.  Fails where two entries of one
 * name disagree in dtype or dims. */
int catalog_build(struct catalog *catalog, const struct catalog_entry *entries, int64_t count,
                  struct error *err);

/* Does every element of every tensor lie in exactly one box, and every element of a box in exactly
 * one piece?  Returns 0, or -1 with err naming the tensor and the first element that lies in none
 * or in two, or two boxes that overlap. */
int catalog_check(const struct catalog *catalog, struct error *err);

/* Check what all of the above relies on in tables that come from a file, fill in what files do not
 * hold, then catalog_check(). */
int catalog_check_tables(struct catalog *catalog, struct error *err);

/* Write index.h5, or read its tables and check them.  Return 0, or -1 with err set. */
int catalog_write(const struct catalog *catalog, const char *path, struct error *err);
int catalog_read(struct catalog *catalog, const char *path, struct error *err);
void catalog_free(struct catalog *catalog);

/* Give every rank a copy of rank 0's catalog, for catalog_free(); what the others' held is not
 * looked at.  Collective over world (NULL: this process alone). */
void catalog_broadcast(struct catalog *catalog, struct world *world);

/* The number of the shard file that holds the view of a tensor, a virtual dataset of one mapping
 * for each piece; -1 for one without pieces.  A file's views map no more pieces than the mean of
 * all files and those of one tensor. */
int64_t catalog_view_shard(const struct catalog *catalog, const struct catalog_tensor *tensor);

/* Write the views that are file number `shard`'s into it; then, into index.h5, a virtual dataset of
 * one mapping for each tensor, which shows its view.  The pieces' offsets are not used.  Return 0,
 * or -1 with err set. */
int catalog_write_views(const struct catalog *catalog, struct h5 *file, int64_t shard,
                        struct error *err);
int catalog_show_views(const struct catalog *catalog, struct h5 *file, struct error *err);

/* The pieces by the files they are in: those of shard file s are
 * pieces[numbers[first[s]]] to pieces[numbers[first[s + 1] - 1]], in the table's order. */
struct catalog_shards {
    int64_t *first;   /* [file_count + 1] */
    int64_t *numbers; /* [piece_count] */
};

/* Look at every piece of a catalog with files, whose shards are among these.  The caller frees the
 * lists with catalog_shards_free(). */
struct catalog_shards catalog_shards_make(const struct catalog *catalog);
void catalog_shards_free(struct catalog_shards *shards);

/* The tensor of a name, or NULL. */
const struct catalog_tensor *catalog_find(const struct catalog *catalog, const char *name);

/* "[0+4,3+3]" into text, or nothing where the box is the whole tensor; returns text. */
const char *catalog_name_box(const struct box *box, char text[BOX_TEXT]);

/* FORMAT_BOXES where a tensor has more than one box. */
enum catalog_format catalog_format(const struct catalog *catalog);

/* A shard file's name, its path, and the path of a piece's dataset inside it (free() both paths).
 */
enum { SHARD_NAME = 32 };
void catalog_shard_name(char name[SHARD_NAME], int64_t shard);
char *catalog_shard_path(const char *folder, int64_t shard);
char *catalog_dataset_name(const char *tensor, const struct box *box, int64_t start);

#endif
