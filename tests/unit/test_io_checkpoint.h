/* test_io_checkpoint.h - tensors, saved and compared, for the tests of checkpoints. */
#ifndef TRIREME_TESTS_UNIT_TEST_IO_CHECKPOINT_H
#define TRIREME_TESTS_UNIT_TEST_IO_CHECKPOINT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/philox.h"
#include "io/checkpoint.h"
#include "io/disk.h"
#include "io/h5.h"

static char folder[64];

static inline int make_folder(void **state)
{
    strcpy(folder, "/tmp/trireme-checkpoint-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    char full[128];
    snprintf(full, sizeof full, "%s/full", folder);
    umount(full); /* if a test failed in the middle */
    return disk_remove(folder, NULL);
}

static const struct checkpoint_piece tensors[] = {
    {"model/norm", DTYPE_F32, 1, {7}},
    {"model/layers.0.q", DTYPE_F32, 2, {101, 13}},
    {"model/layers.1.q", DTYPE_BF16, 2, {101, 13}},
    {"optimizer/exp_avg/layers.0.q", DTYPE_F32, 2, {101, 13}},
    {"cube", DTYPE_F32, 3, {3, 5, 7}},
    {"four", DTYPE_I32, 4, {2, 3, 1, 5}},
    {"scalar", DTYPE_F32, 1, {1}},
    {"empty", DTYPE_F32, 2, {0, 4}},
    {"large", DTYPE_F32, 2, {1031, 2003}}, /* more than one block of writing or reading */
};
enum { TENSORS = sizeof tensors / sizeof tensors[0], PIECES = 64 };

static inline int64_t elems_of(const struct checkpoint_piece *tensor)
{
    int64_t elems = 1;
    for (int i = 0; i < tensor->rank; i++)
        elems *= tensor->dims[i];
    return elems;
}

/* What element e of a tensor is, as bits without those that make a float infinite or NaN. */
static inline void put(void *to, int64_t e, enum dtype dtype, uint64_t key)
{
    uint32_t bits = (uint32_t)((key ^ (uint64_t)e) * 0x9e3779b97f4a7c15u >> 32) & 0xbfffffffu;
    if (dtype == DTYPE_BF16)
        ((bf16 *)to)[0] = (bf16)(bits >> 16);
    else
        ((uint32_t *)to)[0] = bits;
}

/* A piece of a tensor, its data filled. */
static inline struct checkpoint_piece make_piece(const struct checkpoint_piece *tensor,
                                                 int64_t start, int64_t count, uint64_t seed)
{
    struct checkpoint_piece piece = *tensor;
    size_t width = dtype_bytes(tensor->dtype);
    uint64_t key = philox_key(seed, tensor->name);
    piece.start = start;
    piece.count = count;
    piece.data = calloc((size_t)count + 1, width);
    for (int64_t e = 0; e < count; e++)
        put((char *)piece.data + (size_t)e * width, start + e, tensor->dtype, key);
    return piece;
}

static inline void free_pieces(struct checkpoint_piece *pieces, int count)
{
    for (int i = 0; i < count; i++)
        free(pieces[i].data);
}

/* Every tensor cut into `parts` uneven pieces, the last first, with an empty one among them. */
static inline int make_pieces(struct checkpoint_piece *pieces, int parts, uint64_t seed)
{
    int count = 0;
    for (int t = 0; t < TENSORS; t++) {
        int64_t elems = elems_of(&tensors[t]);
        for (int p = parts - 1; p >= 0; p--) {
            int64_t from = elems * p * p / (parts * parts);
            int64_t to = elems * (p + 1) * (p + 1) / (parts * parts);
            pieces[count++] = make_piece(&tensors[t], from, to - from, seed);
        }
    }
    return count;
}

static inline int save(const char *dir, int64_t step, int parts, uint64_t seed, struct error *err)
{
    struct checkpoint_piece pieces[PIECES];
    struct js *meta = js_object();
    int count = make_pieces(pieces, parts, seed);
    js_add_string(meta, "model", "tiny");
    js_add_real(meta, "loss", 2.0 / 3); /* which 15 digits are not */
    int rc = checkpoint_save(NULL, dir, step, pieces, count, meta, err);
    js_free(meta);
    free_pieces(pieces, count);
    return rc;
}

static inline void must_save(const char *dir, int64_t step, int parts, uint64_t seed)
{
    struct error err = {0};
    if (save(dir, step, parts, seed, &err))
        fail_msg("%s", err.text);
}

/* Load elements [start, start + count) and compare them bit by bit. */
static inline void check_interval(struct checkpoint *checkpoint,
                                  const struct checkpoint_piece *tensor, int64_t start,
                                  int64_t count, uint64_t seed)
{
    struct error err = {0};
    struct checkpoint_piece want = make_piece(tensor, start, count, seed), got = want;
    size_t bytes = (size_t)count * dtype_bytes(tensor->dtype);
    got.data = malloc(bytes + 1);
    memset(got.data, 0xee, bytes);
    if (checkpoint_load(checkpoint, &got, 1, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(got.data, want.data, bytes);
    free(got.data);
    free(want.data);
}

static inline void check_all(struct checkpoint *checkpoint, uint64_t seed)
{
    for (int t = 0; t < TENSORS; t++) {
        int64_t elems = elems_of(&tensors[t]);
        for (int parts = 1; parts <= 5; parts += 2)
            for (int p = 0; p < parts; p++)
                check_interval(checkpoint, &tensors[t], elems * p / parts,
                               elems * (p + 1) / parts - elems * p / parts, seed);
    }
}

static inline struct checkpoint *open_step(const char *dir, int64_t step)
{
    struct error err = {0};
    struct checkpoint *checkpoint;
    char path[256];
    snprintf(path, sizeof path, "%s/step-%08lld", dir, (long long)step);
    if (checkpoint_open(&checkpoint, path, &err))
        fail_msg("%s", err.text);
    return checkpoint;
}

#endif
