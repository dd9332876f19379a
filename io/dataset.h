/* dataset.h - one stream of samples from one or several token files.  Which file sample number i is
 * from, and its number there, is a pure function of (seed, i).
 *
 * Without weights an epoch visits all sequences of all files once.  With weights the files are
 * mixed: of every DATASET_SLOTS samples each file has exactly its share, in a random order; the
 * epochs of a file are then its own.
 */
#ifndef TRIREME_IO_DATASET_H
#define TRIREME_IO_DATASET_H

#include "config/config.h"
#include "io/loader.h"

enum { DATASET_SLOTS = 10000 };

struct dataset_file {
    struct tokens tokens;
    struct loader loader;
    int64_t first; /* number of sequences in the files before it; where mixed, of their slots */
    int64_t slots; /* its samples among every DATASET_SLOTS; 0: not mixed */
};

struct dataset {
    struct dataset_file *file;
    int files;
    int64_t windows; /* sequences in all files: the samples of an epoch unless mixed */
    int64_t tokens;  /* tokens in all files */
    int is_mixed;    /* files have weights */
    struct loader_options options;
};

/* Open the files that text names (a value of data.train: config_sources()).  options->samples is
 * not used: text says it for each file.  Not collective.  Returns 0, or -1 with err set: as
 * tokens_open() and loader_open(), tokenizers that differ, weights in a sequential order.  The
 * caller calls dataset_close() in both cases. */
int dataset_open(struct dataset *dataset, const char *text, const struct loader_options *options,
                 struct error *err);
void dataset_close(struct dataset *dataset); /* all zero is allowed */

/* Call tokens_check_unchanged() for the files, up to the first that was changed.  Returns as that
 * does. */
int dataset_check_unchanged(struct dataset *dataset, struct error *err);

/* Call loader_set_part() for every file. */
void dataset_set_part(struct dataset *dataset, int64_t chunk, const int64_t first[2]);

struct dataset_place {
    int file;       /* index in dataset->file; -1: a sequential sample after the end of all files */
    int64_t sample; /* its number in the file's loader */
};

/* Returns where sample number `sample`, counted from the start of training, is read from. */
struct dataset_place dataset_locate(const struct dataset *dataset, int64_t sample);

/* Returns how many epochs of file number `file` the first `samples` samples are. */
double dataset_epochs(const struct dataset *dataset, int file, double samples);

/* Returns the largest dataset_epochs() of all files. */
double dataset_most_epochs(const struct dataset *dataset, double samples);

/* Returns the number of rows that data.packing=padded drops in an epoch; 0 with other packings. */
int64_t dataset_cut_rows(const struct dataset *dataset);

/* Returns the number of documents that data.packing=documents or padded cuts, because they are
 * longer than a sequence; 0 with stream. */
int64_t dataset_cut_documents(const struct dataset *dataset);

/* Returns the number of targets that data.packing=stream has in no sequence: those at the end of
 * each file that fill none; 0 with other packings. */
int64_t dataset_left_rows(const struct dataset *dataset);

/* Call loader_read() or loader_positions() of the file that sample is in; a sample after the end
 * of all files is all masked. */
int dataset_read(const struct dataset *dataset, int64_t sample, int32_t *inputs, int32_t *targets,
                 struct error *err);
int dataset_positions(const struct dataset *dataset, int64_t sample, int32_t *positions,
                      int32_t *documents, struct error *err);

#endif
