/* catalog.h - which tensors a checkpoint holds, and where each stored interval lies.
 *
 * A tensor is stored as boxes (base/box.h): one that is all of it, or, with tensor parallelism, one
 * for each part.  The elements of a box, in row-major order, are stored as pieces, each in the
 * shard file of the rank that held it:
 *
 *   tensor attn.o 4 x 6    box [0+4,0+3]    elements 0 to 7     in shard 0
 *                                           elements 8 to 11    in shard 1
 *                          box [0+4,3+3]    elements 0 to 11    in shard 2
 *
 * Rank 0 gathers the catalog when a checkpoint is saved and writes it twice: as virtual datasets
 * for people, in index.h5 and the shard files, and as the tables index/tensors, index/pieces and
 * index/files of index.h5, which loading uses.  Where a tensor has several boxes, there is a table
 * index/boxes too, and the format is FORMAT_BOXES.
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

/* CATALOG_NAME: bytes of a tensor's name, the 0 included.  CATALOG_BOXES: most boxes of a tensor.
 */
enum { CATALOG_NAME = 256, CATALOG_BOXES = 4096 };

/* FORMAT_WHOLE: every tensor is one box. */
enum catalog_format { FORMAT_WHOLE = 1, FORMAT_BOXES };

struct catalog_tensor {
    char name[CATALOG_NAME];
    char dtype[8]; /* dtype_name() */
    int64_t rank;  /* the number of its dimensions */
    int64_t dims[CHECKPOINT_RANK_MAX];
    int64_t elems;
    int64_t first, count; /* its pieces are pieces[first] to pieces[first + count - 1] */
};

/* A box of a tensor, whose elements are stored in its pieces. */
struct catalog_box {
    int64_t tensor;        /* index in tensors */
    int64_t first, pieces; /* its pieces are pieces[first] to pieces[first + pieces - 1] */
    struct box box;        /* index/boxes has its start and count */
};

/* Elements [start, start + count) of a box of a tensor lie at byte `offset` of file `shard`. */
struct catalog_piece {
    int64_t tensor; /* index in tensors */
    int64_t shard;  /* index in files */
    int64_t offset, start, count;
    uint64_t checksum; /* XXH3 of its bytes */
    int64_t box;       /* index in boxes; not in files */
};

/* A shard file. */
struct catalog_file {
    int64_t bytes; /* its size */
    uint64_t rest; /* XXH3 of all its bytes outside the pieces */
};

struct catalog {
    int64_t step;                   /* of the checkpoint */
    struct catalog_tensor *tensors; /* sorted by name */
    struct catalog_box *boxes;      /* sorted by tensor, start; an empty tensor has none */
    struct catalog_piece *pieces;   /* sorted by box, start */
    struct catalog_file *files;     /* [s] is shard file s */
    int64_t tensor_count, box_count, piece_count, file_count;
};

/* The description of one piece, as the rank that holds it sends it to rank 0. */
struct catalog_entry {
    char name[CATALOG_NAME];
    int64_t dtype, start, count;
    struct box box;
    int64_t shard;
};

/* Make the tables from the entries of all ranks; files is left empty.  The offset of a piece is the
 * index of its entry until the caller replaces it.  Returns 0 and a catalog for catalog_free(), or
 * -1 with err set where two entries of one name disagree in dtype or dimensions. */
int catalog_build(struct catalog *catalog, const struct catalog_entry *entries, int64_t count,
                  struct error *err);

/* Check that every element of every tensor lies in exactly one box, and every element of a box in
 * exactly one piece.  Returns 0, or -1 with err naming the tensor and the first element that lies
 * in no piece or in two, or two boxes that overlap. */
int catalog_check(const struct catalog *catalog, struct error *err);

/* Check tables that were read from a file, nothing in which is trusted: indices, sizes and order.
 * Then fill in the fields that files do not hold, and call catalog_check().  Returns 0, or -1 with
 * err set. */
int catalog_check_tables(struct catalog *catalog, struct error *err);

/* Write index.h5 at path; or read its tables into a catalog for catalog_free() and check them.
 * Return 0, or -1 with err set. */
int catalog_write(const struct catalog *catalog, const char *path, struct error *err);
int catalog_read(struct catalog *catalog, const char *path, struct error *err);
void catalog_free(struct catalog *catalog);

/* Copy rank 0's catalog to all other ranks, each of which calls catalog_free(); what their structs
 * held before is overwritten and not freed.  Collective over world (NULL: this process alone). */
void catalog_broadcast(struct catalog *catalog, struct world *world);

/* Returns the number of the shard file that holds the view of a tensor, which is a virtual dataset
 * of one mapping per piece; -1 for a tensor without pieces.  Views are spread evenly: those of a
 * file map no more pieces than the mean over all files plus the pieces of one tensor. */
int64_t catalog_view_shard(const struct catalog *catalog, const struct catalog_tensor *tensor);

/* catalog_write_views() writes into `file`, shard file number `shard`, the views that
 * catalog_view_shard() gives to it.  catalog_show_views() writes into `file`, index.h5, for each
 * tensor a virtual dataset of one mapping, of its view.  Neither uses the offsets of pieces.
 * Return 0, or -1 with err set. */
int catalog_write_views(const struct catalog *catalog, struct h5 *file, int64_t shard,
                        struct error *err);
int catalog_show_views(const struct catalog *catalog, struct h5 *file, struct error *err);

/* The pieces sorted by shard file: those in file s are pieces[numbers[i]] of the catalog for i from
 * first[s] to first[s + 1] - 1, in the order of the catalog. */
struct catalog_shards {
    int64_t *first;   /* [file_count + 1] */
    int64_t *numbers; /* [piece_count] */
};

/* Returns the lists for a catalog that has been checked, for catalog_shards_free(). */
struct catalog_shards catalog_shards_make(const struct catalog *catalog);
void catalog_shards_free(struct catalog_shards *shards);

/* Returns the tensor with this name, or NULL. */
const struct catalog_tensor *catalog_find(const struct catalog *catalog, const char *name);

/* Write a box as "[0+4,3+3]" into text, "" where it is the whole tensor.  Returns text. */
const char *catalog_name_box(const struct box *box, char text[BOX_TEXT]);

/* Returns FORMAT_BOXES if a tensor has more than one box, else FORMAT_WHOLE. */
enum catalog_format catalog_format(const struct catalog *catalog);

/* catalog_shard_name() writes the name of shard file number `shard` into name.
 * catalog_shard_path() returns its path in folder, and catalog_dataset_name() the path, inside the
 * file, of the dataset that holds the piece which begins at element `start` of a box; both to be
 * free()d. */
enum { SHARD_NAME = 32 };
void catalog_shard_name(char name[SHARD_NAME], int64_t shard);
char *catalog_shard_path(const char *folder, int64_t shard);
char *catalog_dataset_name(const char *tensor, const struct box *box, int64_t start);

#endif
