/* dataset.h - the samples of one token file or several, as one sequence of samples: which file's
 * sample is next is a pure function of (seed, sample number).
 *
 * Files without weights are one behind the other, and an epoch visits all their sequences once.
 * Files with weights are mixed: of every DATASET_SLOTS samples each has its share, exactly, in a
 * random order; each then has epochs of its own.
 */
#ifndef TRIREME_IO_DATASET_H
#define TRIREME_IO_DATASET_H

#include "config/config.h"
#include "io/loader.h"

enum { DATASET_SLOTS = 10000 };

struct dataset_file {
    struct tokens tokens;
    struct loader loader;
    int64_t first; /* sequences of the files before it; where mixed, the slots */
    int64_t slots; /* of DATASET_SLOTS; 0: not mixed */
};

struct dataset {
    struct dataset_file *file;
    int files;
    int64_t windows; /* sequences of all files: samples of an epoch */
    int64_t tokens;  /* of all files */
    int is_mixed;
    struct loader_options options;
};

/* Open the files that text names (config_sources()).  options.samples does not count: the text says
 * it.  Returns 0, or -1 with err set: as tokens_open() and loader_open(), tokenizers that differ,
 * weights in a sequential order; dataset_close() in any case. */
int dataset_open(struct dataset *dataset, const char *text, const struct loader_options *options,
                 struct error *err);
void dataset_close(struct dataset *dataset); /* one of zeros allowed */

/* loader_set_part() of all. */
void dataset_set_part(struct dataset *dataset, int64_t chunk, const int64_t first[2]);

/* The file that sample number i is read from, and its number there; file -1: behind the end of all.
 */
struct dataset_place {
    int file;
    int64_t sample;
};
struct dataset_place dataset_locate(const struct dataset *dataset, int64_t sample);

/* How often a file has been read in so many samples; where mixed, by its share of them. */
double dataset_epochs(const struct dataset *dataset, int file, double samples);

/* The same of the file that is read most often. */
double dataset_most_epochs(const struct dataset *dataset, double samples);

/* Tokens that data.packing padded leaves away; 0 with others. */
int64_t dataset_cut_tokens(const struct dataset *dataset);

/* loader_read() and loader_positions(). */
int dataset_read(const struct dataset *dataset, int64_t sample, int32_t *inputs, int32_t *targets,
                 struct error *err);
int dataset_positions(const struct dataset *dataset, int64_t sample, int32_t *positions,
                      int32_t *documents, struct error *err);

#endif
