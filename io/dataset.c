/* dataset.c - which file each sample is from; see dataset.h.
 *
 * With weights, samples are divided into blocks of DATASET_SLOTS.  Sample i is in block
 * b = i / DATASET_SLOTS, where it gets the random place p = shuffle(i % DATASET_SLOTS).  Each file
 * owns an interval of the places of a block, as long as its share:
 *
 *   weights 0.7 and 0.3:   p   0 ........... 6999 | 7000 ... 9999
 *                          file       0           |      1
 *
 * So a file with s slots has s samples in every block, and place p of block b is sample number
 * b * s + p - first of the file: each of its samples occurs once, whatever the order of the block.
 */
#include "io/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "base/round.h"
#include "io/shuffle.h"

/* Check that file f was made with the tokenizer of file 0.  Returns 0, or -1 with err set. */
static int check_tokenizer(const struct dataset *d, int f, struct error *err)
{
    const struct tokens *one = &d->file[0].tokens, *other = &d->file[f].tokens;
    if (!strcmp(one->tokenizer, other->tokenizer))
        return 0;
    return error_set(err,
                     "%s was made with tokenizer \"%s\" and %s with \"%s\": token files that are "
                     "read together need one tokenizer",
                     one->path, one->tokenizer, other->path, other->tokenizer);
}

/* Open file f.  Returns 0, or -1 with err set. */
static int open_file(struct dataset *d, int f, const struct config_source *source,
                     struct error *err)
{
    struct dataset_file *file = &d->file[f];
    struct loader_options options = d->options;
    options.samples = source->samples;
    if (tokens_open(&file->tokens, source->path, err) || check_tokenizer(d, f, err) ||
        loader_open(&file->loader, &file->tokens, &options, err))
        return -1;
    file->first = d->windows;
    d->windows += file->loader.windows;
    d->tokens += file->tokens.count;
    return 0;
}

/* Divide the DATASET_SLOTS slots among the files by their weights, with at least one for each.
 * Returns 0, or -1 with err set: the order is sequential. */
static int share_slots(struct dataset *d, const struct config_source *source, struct error *err)
{
    double all = 0, before = 0;
    int64_t given = 0;
    if (d->options.order == LOADER_SEQUENTIAL)
        return error_set(err, "weights are for training; what is evaluated is read once, whole");
    for (int f = 0; f < d->files; f++)
        all += source[f].weight;
    for (int f = 0; f < d->files; f++) {
        before += source[f].weight;
        int64_t left = d->files - 1 - f;
        int64_t end = (int64_t)(before / all * DATASET_SLOTS + 0.5);
        end = min_i64(max_i64(end, given + 1), DATASET_SLOTS - left);
        d->file[f].first = given;
        d->file[f].slots = end - given;
        given = end;
    }
    d->is_mixed = 1;
    return 0;
}

int dataset_open(struct dataset *d, const char *text, const struct loader_options *options,
                 struct error *err)
{
    struct config_source *source = array_make(CONFIG_SOURCES, sizeof *source);
    *d = (struct dataset){.options = *options};
    int count = config_sources(text, source, err), rc = count < 0 ? -1 : 0;
    d->file = array_make((size_t)max_i64(count, 1), sizeof *d->file);
    for (int f = 0; f < count; f++)
        d->file[f].tokens.seal.fd = -1;
    d->files = count > 0 ? count : 0;
    for (int f = 0; f < count && !rc; f++)
        rc = open_file(d, f, &source[f], err);
    if (!rc && count > 0 && source[0].weight > 0)
        rc = share_slots(d, source, err);
    free(source);
    return rc;
}

void dataset_close(struct dataset *d)
{
    for (int f = 0; f < d->files; f++) {
        loader_close(&d->file[f].loader);
        tokens_close(&d->file[f].tokens);
    }
    free(d->file);
    *d = (struct dataset){0};
}

int dataset_check_unchanged(struct dataset *d, struct error *err)
{
    for (int f = 0; f < d->files; f++)
        if (tokens_check_unchanged(&d->file[f].tokens, err))
            return -1;
    return 0;
}

void dataset_set_part(struct dataset *d, int64_t chunk, const int64_t first[2])
{
    for (int f = 0; f < d->files; f++)
        loader_set_part(&d->file[f].loader, chunk, first);
}

/* Returns the file whose interval of sequences (where mixed: of slots) place is in. */
static int file_at(const struct dataset *d, int64_t place)
{
    int f = d->files - 1;
    while (f > 0 && d->file[f].first > place)
        f--;
    return f;
}

/* dataset_locate() for files with weights. */
static struct dataset_place mixed_place(const struct dataset *d, int64_t sample)
{
    char stream[48];
    int64_t block = sample / DATASET_SLOTS;
    snprintf(stream, sizeof stream, "mixture %lld", (long long)block);
    int64_t place =
        shuffle_index(sample % DATASET_SLOTS, DATASET_SLOTS, philox_key(d->options.seed, stream));
    int f = file_at(d, place);
    return (struct dataset_place){f, block * d->file[f].slots + place - d->file[f].first};
}

struct dataset_place dataset_locate(const struct dataset *d, int64_t sample)
{
    char stream[48];
    if (d->files == 1)
        return (struct dataset_place){0, sample};
    if (d->is_mixed)
        return mixed_place(d, sample);
    if (d->options.order == LOADER_SEQUENTIAL && sample >= d->windows)
        return (struct dataset_place){-1, 0};
    int64_t epoch = sample / d->windows, place = sample % d->windows;
    snprintf(stream, sizeof stream, "files %lld", (long long)epoch);
    if (d->options.order == LOADER_SHUFFLED)
        place = shuffle_index(place, d->windows, philox_key(d->options.seed, stream));
    int f = file_at(d, place);
    return (struct dataset_place){f, epoch * d->file[f].loader.windows + place - d->file[f].first};
}

double dataset_epochs(const struct dataset *d, int file, double samples)
{
    const struct dataset_file *f = &d->file[file];
    if (!d->is_mixed)
        return samples / (double)d->windows;
    return samples * (double)f->slots / DATASET_SLOTS / (double)f->loader.windows;
}

double dataset_most_epochs(const struct dataset *d, double samples)
{
    double most = 0;
    for (int f = 0; f < d->files; f++)
        most = fmax(most, dataset_epochs(d, f, samples));
    return most;
}

int64_t dataset_cut_rows(const struct dataset *d)
{
    int64_t cut = 0;
    for (int f = 0; f < d->files; f++)
        if (d->file[f].loader.packing)
            cut += packing_cut_rows(d->file[f].loader.packing);
    return cut;
}

int64_t dataset_cut_documents(const struct dataset *d)
{
    int64_t cut = 0;
    for (int f = 0; f < d->files; f++)
        if (d->file[f].loader.packing)
            cut += packing_cut_documents(d->file[f].loader.packing);
    return cut;
}

int64_t dataset_left_rows(const struct dataset *d)
{
    int64_t left = 0;
    for (int f = 0; f < d->files; f++)
        if (!d->file[f].loader.packing)
            left += (d->file[f].tokens.count - 1) % d->options.seq_len;
    return left;
}

int dataset_read(const struct dataset *d, int64_t sample, int32_t *inputs, int32_t *targets,
                 struct error *err)
{
    const struct dataset_place at = dataset_locate(d, sample);
    if (at.file >= 0)
        return loader_read(&d->file[at.file].loader, at.sample, inputs, targets, err);
    loader_fill(inputs, targets, loader_rows(&d->file[0].loader));
    return 0;
}

int dataset_positions(const struct dataset *d, int64_t sample, int32_t *positions,
                      int32_t *documents, struct error *err)
{
    const struct dataset_place at = dataset_locate(d, sample);
    if (at.file >= 0)
        return loader_positions(&d->file[at.file].loader, at.sample, positions, documents, err);
    loader_fill_positions(&d->file[0].loader, positions, documents);
    return 0;
}
