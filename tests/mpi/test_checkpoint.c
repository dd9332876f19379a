/* test_checkpoint.c - checkpoints of several ranks: saved by all of them in uneven pieces, or in
 * boxes of uneven columns, read back in the layouts of 1 to 5; failing together; found together. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/philox.h"
#include "io/checkpoint.h"
#include "io/disk.h"
#include "tests/mpi/check.h"
#include "tests/unit/h5_data.h"

static const struct checkpoint_piece tensors[] = {
    {"model/norm", DTYPE_F32, 1, {7}},       {"model/q", DTYPE_F32, 2, {101, 13}},
    {"model/half", DTYPE_BF16, 2, {61, 17}}, {"optimizer/exp_avg/q", DTYPE_F32, 2, {101, 13}},
    {"cube", DTYPE_F32, 3, {3, 5, 7}},       {"one", DTYPE_F32, 1, {1}},
    {"none", DTYPE_F32, 2, {4, 0}},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0], COLUMNS = 2, PARTS = 5 };

static int64_t elems_of(const struct checkpoint_piece *tensor)
{
    int64_t elems = 1;
    for (int i = 0; i < tensor->rank; i++)
        elems *= tensor->dims[i];
    return elems;
}

/* Borders of uneven shares, some of them empty. */
static int64_t border(int64_t elems, int part, int parts)
{
    return elems * part * part / ((int64_t)parts * parts);
}

/* All of the columns of tensor t that are a part's; some parts have none. */
static const struct box *columns_of(int t, int part, int parts)
{
    static struct box boxes[PARTS + 1][PARTS];
    struct box *box = &boxes[parts][part];
    *box = box_whole(tensors[t].rank, tensors[t].dims);
    box->start[1] = border(box->whole[1], part, parts);
    box->count[1] = border(box->whole[1], part + 1, parts) - box->start[1];
    return box;
}

/* Rank `part` of `parts` holds this of tensor t; the order of holders changes with t. */
static struct checkpoint_piece share(int t, int part, int parts, int64_t step)
{
    struct checkpoint_piece piece = tensors[t];
    int64_t elems = elems_of(&piece);
    part = (part + t) % parts;
    piece.start = border(elems, part, parts);
    piece.count = border(elems, part + 1, parts) - piece.start;
    if (t == COLUMNS) {
        piece.box = columns_of(t, part, parts);
        piece.start = 0;
        piece.count = box_elems(piece.box);
    }
    piece.data = calloc((size_t)piece.count + 1, 4);
    uint64_t key = philox_key((uint64_t)step, piece.name);
    for (int64_t i = 0; i < piece.count; i++) {
        int64_t at = piece.start + i;
        if (piece.box)
            at = i / piece.box->count[1] * piece.dims[1] + piece.box->start[1] +
                 i % piece.box->count[1];
        uint32_t bits = (uint32_t)philox_u64(key, (uint64_t)at) & 0xbfffffffu;
        if (piece.dtype == DTYPE_BF16)
            ((bf16 *)piece.data)[i] = (bf16)(bits >> 16);
        else
            ((uint32_t *)piece.data)[i] = bits;
    }
    return piece;
}

/* The same in the background: the pieces change as soon as they may, and every rank asks until all
 * have written. */
static int save_beside(struct checks *c, const char *dir, int64_t step,
                       const struct checkpoint_piece *pieces, int count, struct js *meta,
                       struct error *err)
{
    struct checkpoint_writing *writing;
    struct stat info;
    char path[256];
    size_t bytes = checkpoint_copy_bytes(pieces, count);
    void *copy = malloc(bytes + 1);
    int rc = checkpoint_begin(&writing, c->world, dir, step, pieces, count, meta, copy, bytes, err);
    for (int i = 0; i < count && !rc; i++)
        memset(pieces[i].data, 0xff, (size_t)pieces[i].count * dtype_bytes(pieces[i].dtype));
    if (!rc) {
        snprintf(path, sizeof path, "%s/step-%08lld.partial", dir, (long long)step);
        CHECK(c, !stat(path, &info));
        while (!checkpoint_is_written(writing))
            usleep(1000);
        CHECK(c, !stat(path, &info)); /* written, and not committed before its end */
        rc = checkpoint_end(writing, err);
    }
    free(copy);
    return rc;
}

/* Steps of odd numbers are saved in the background. */
static int save(struct checks *c, const char *dir, int64_t step, struct error *err)
{
    struct checkpoint_piece pieces[TENSORS];
    int rank = world_rank(c->world);
    struct js *meta = rank ? NULL : js_object();
    for (int t = 0; t < TENSORS; t++)
        pieces[t] = share(t, rank, world_size(c->world), step);
    if (meta)
        js_add_string(meta, "note", "here");
    int rc = step % 2 ? save_beside(c, dir, step, pieces, TENSORS, meta, err)
                      : checkpoint_save(c->world, dir, step, pieces, TENSORS, meta, err);
    if (step % 2 == 0)
        js_free(meta);
    for (int t = 0; t < TENSORS; t++)
        free(pieces[t].data);
    return rc;
}

/* What rank `part` of `parts` wants is what it would hold, bit for bit. */
static void check_layout(struct checks *c, struct checkpoint *checkpoint, int part, int parts)
{
    struct checkpoint_piece want[TENSORS], got[TENSORS];
    struct error err = {0};
    for (int t = 0; t < TENSORS; t++) {
        want[t] = got[t] = share(t, part, parts, checkpoint->step);
        got[t].data = calloc((size_t)want[t].count + 1, 4);
    }
    CHECK(c, !checkpoint_load(checkpoint, got, TENSORS, &err));
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    for (int t = 0; t < TENSORS; t++) {
        CHECK(c, !memcmp(got[t].data, want[t].data,
                         (size_t)want[t].count * dtype_bytes(want[t].dtype)));
        free(got[t].data);
        free(want[t].data);
    }
}

static void check_all_layouts(struct checks *c, struct checkpoint *checkpoint)
{
    for (int parts = 1; parts <= PARTS; parts++)
        for (int part = 0; part < parts; part++)
            check_layout(c, checkpoint, part, parts);
}

/* Every tensor is whole to a program that opens index.h5 and knows nothing of ranks. */
static void check_views(struct checks *c, const struct checkpoint *checkpoint)
{
    struct error err = {0};
    struct h5 *file;
    char path[256];
    snprintf(path, sizeof path, "%s/index.h5", checkpoint->path);
    if (h5_open(&file, path, &err)) {
        CHECK(c, !"index.h5 cannot be opened");
        return;
    }
    for (int t = 0; t < TENSORS; t++) {
        struct checkpoint_piece want = share(t, 0, 1, checkpoint->step);
        struct h5_dataset found;
        void *read;
        CHECK(c, h5_mappings(file, want.name) == (want.count > 0));
        CHECK(c, !h5_read(file, want.name, want.dtype, &read, &found, &err));
        CHECK(c, found.rank == want.rank && found.elems == want.count);
        CHECK(c, read && !memcmp(read, want.data, (size_t)want.count * dtype_bytes(want.dtype)));
        free(read);
        free(want.data);
    }
    h5_close(file, NULL);
}

/* The step found by all ranks, its content checked; -1 for none, -2 for failure. */
static int64_t find(struct checks *c, const char *dir)
{
    struct error err = {0};
    struct log quiet = {.level = LOG_ERROR, .rank = world_rank(c->world)};
    struct checkpoint *checkpoint;
    double step = -1, least, most;
    if (checkpoint_find(&checkpoint, c->world, dir, &quiet, &err))
        step = -2;
    if (checkpoint) {
        step = (double)checkpoint->step;
        CHECK(c, checkpoint->ranks == world_size(c->world));
        CHECK(c, !strcmp(js_get_string(checkpoint->meta, "note", ""), "here"));
        check_all_layouts(c, checkpoint);
        if (!world_rank(c->world))
            check_views(c, checkpoint);
    }
    checkpoint_close(checkpoint);
    least = most = step;
    world_all_reduce(c->world, &least, 1, WORLD_MIN);
    world_all_reduce(c->world, &most, 1, WORLD_MAX);
    CHECK(c, least == most);
    return (int64_t)step;
}

static void test_resharding(struct checks *c, const char *dir)
{
    struct error err = {0};
    CHECK(c, find(c, dir) == -1);
    CHECK(c, !save(c, dir, 3, &err));
    if (err.text[0])
        fprintf(stderr, "%s\n", err.text);
    CHECK(c, find(c, dir) == 3);
    CHECK(c, !save(c, dir, 10, &err));
    CHECK(c, !save(c, dir, 10, &err)); /* replaces */
    CHECK(c, find(c, dir) == 10);
}

/* Rank 0 alone reads index.h5, meta.json and COMMIT: the other ranks are in a folder where the
 * checkpoint of the same name has only shard files and an empty COMMIT, and find it too.  Without
 * COMMIT they do not see it. */
static void test_reading_once(struct checks *c, const char *dir)
{
    enum { STEP = 10 };
    char other[128], path[2][256];
    int size = world_size(c->world), rank = world_rank(c->world);
    snprintf(other, sizeof other, "%s/other", dir);
    if (!rank) {
        snprintf(path[0], sizeof path[0], "%s/step-%08d", other, STEP);
        CHECK(c, !mkdir(other, 0777) && !mkdir(path[0], 0777));
        for (int i = 0; i < size; i++) {
            snprintf(path[0], sizeof path[0], "%s/step-%08d/shard-%05d.h5", dir, STEP, i);
            snprintf(path[1], sizeof path[1], "%s/step-%08d/shard-%05d.h5", other, STEP, i);
            CHECK(c, !symlink(path[0], path[1]));
        }
    }
    snprintf(path[0], sizeof path[0], "%s/step-%08d/COMMIT", other, STEP);
    world_barrier(c->world);
    CHECK(c, !chdir(rank ? other : dir));
    CHECK(c, find(c, ".") == (size > 1 ? -2 : STEP));
    CHECK(c, rank || !close(open(path[0], O_WRONLY | O_CREAT, 0666)));
    world_barrier(c->world);
    CHECK(c, find(c, ".") == STEP);
    CHECK(c, !chdir("/"));
}

/* Damage in the last rank's file alone: all ranks go back together. */
static void test_falling_back(struct checks *c, const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/step-00000010/shard-%05d.h5", dir, world_size(c->world) - 1);
    if (!world_rank(c->world)) {
        FILE *file = fopen(path, "r+");
        CHECK(c, file && !fseek(file, -1, SEEK_END));
        int byte = fgetc(file);
        CHECK(c, !fseek(file, -1, SEEK_END) && fputc(byte ^ 1, file) >= 0 && !fclose(file));
    }
    world_barrier(c->world);
    CHECK(c, find(c, dir) == 3);
}

typedef int save_one(struct checks *c, const char *dir, struct checkpoint_piece *piece,
                     struct error *err);

static int save_at_once(struct checks *c, const char *dir, struct checkpoint_piece *piece,
                        struct error *err)
{
    return checkpoint_save(c->world, dir, 20, piece, 1, NULL, err);
}

static int save_in_background(struct checks *c, const char *dir, struct checkpoint_piece *piece,
                              struct error *err)
{
    return save_beside(c, dir, 20, piece, 1, NULL, err);
}

/* Files of the last rank may have no more than `most` bytes: a full disk of its own. */
static void limit_file(struct checks *c, rlim_t most)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(c, !getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = most;
    if (world_rank(c->world) == world_size(c->world) - 1)
        CHECK(c, !setrlimit(RLIMIT_FSIZE, &limit));
}

/* A fault of one rank is every rank's failure, with one text, and leaves nothing. */
static void test_failing_together(struct checks *c, const char *dir, save_one *save_it)
{
    enum { LARGE = 4 << 20 };
    struct error err = {0};
    float x[4] = {0};
    int rank = world_rank(c->world), size = world_size(c->world), last = rank == size - 1;
    struct checkpoint_piece piece = {"x", DTYPE_F32, 1, {4 * size - 1}, 4 * rank, 4 - last, x};
    char path[256];
    struct stat info;
    piece.count -= last; /* the last rank forgets one */
    CHECK(c, save_it(c, dir, &piece, &err) == -1);
    CHECK(c, strstr(err.text, "tensor x") && strstr(err.text, "held by no rank"));
    piece.count += last;
    piece.dims[0] += last; /* or is wrong about the size */
    if (size > 1) {
        CHECK(c, save_it(c, dir, &piece, &err) == -1);
        CHECK(c, strstr(err.text, "other dimensions"));
    }
    piece.dims[0] -= last;
    piece.start += last; /* or holds what does not exist */
    CHECK(c, save_it(c, dir, &piece, &err) == -1);
    CHECK(c, strstr(err.text, "not in tensor x"));
    piece.start -= last;
    snprintf(path, sizeof path, "%s/step-00000020.partial", dir);
    CHECK(c, stat(path, &info) == -1);
    struct checkpoint_piece large = {
        "large", DTYPE_F32, 1, {(int64_t)size * LARGE}, (int64_t)rank * LARGE, LARGE};
    large.data = calloc(LARGE, sizeof(float));
    limit_file(c, LARGE); /* or its disk is full in the middle */
    CHECK(c, save_it(c, dir, &large, &err) == -1);
    CHECK(c, strstr(err.text, "shard-") && strstr(err.text, "too large"));
    limit_file(c, RLIM_INFINITY);
    world_barrier(c->world); /* rank 0 removes the folder */
    CHECK(c, stat(path, &info) == -1);
    free(large.data);
    CHECK(c, !save_it(c, dir, &piece, &err));
}

/* Memory for the copy that is too small on one rank is refused on all, and nothing is written
 * there.
 */
static void test_small_copy(struct checks *c, const char *dir)
{
    struct error err = {0};
    struct checkpoint_writing *writing;
    float x[4] = {1, 2, 3, 4}, copy[4] = {0};
    int rank = world_rank(c->world), size = world_size(c->world), last = rank == size - 1;
    struct checkpoint_piece piece = {"x", DTYPE_F32, 1, {4 * size}, 4 * rank, 4, x};
    int rc = checkpoint_begin(&writing, c->world, dir, 22, &piece, 1, NULL, copy,
                              sizeof copy - (size_t)last, &err);
    CHECK(c, rc == -1 && !writing && strstr(err.text, "takes 16 bytes, and 15 were planned"));
    CHECK(c, !last || copy[0] == 0);
}

static int has_step(const char *dir, int step)
{
    struct stat info;
    char path[256];
    snprintf(path, sizeof path, "%s/step-%08d", dir, step);
    return !stat(path, &info);
}

/* Rank 0 lists; all verify their parts of what is not known. */
static void prune(struct checks *c, const char *dir, struct checkpoint_checked *checked)
{
    struct error err = {0};
    struct log quiet = {.level = LOG_ERROR, .rank = world_rank(c->world)};
    struct checkpoint_entry *entries = NULL;
    int count = world_rank(c->world) ? 0 : checkpoint_list(&entries, dir, &err);
    CHECK(c, !checkpoint_prune(c->world, entries, count, 2, NULL, checked, &quiet, &err));
    checkpoint_list_free(entries, count);
    world_barrier(c->world);
}

/* 10 has a flipped bit in the last rank's file, which its size does not tell. */
static void test_pruning(struct checks *c, const char *dir)
{
    struct error err = {0};
    struct checkpoint_checked checked = {0};
    CHECK(c, !save(c, dir, 2, &err));
    prune(c, dir, &checked);
    CHECK(c, has_step(dir, 20) && has_step(dir, 10) && has_step(dir, 3) && !has_step(dir, 2));
    CHECK(c, !save(c, dir, 21, &err));
    prune(c, dir, &checked);
    CHECK(c, has_step(dir, 21) && has_step(dir, 20) && has_step(dir, 10) && !has_step(dir, 3));
    checkpoint_checked_free(&checked);
}

int main(void)
{
    struct checks c = {0};
    char dir[64] = "/tmp/trireme-checkpoint-XXXXXX";
    if (checks_start(&c))
        return 1;
    if (!world_rank(c.world))
        CHECK(&c, mkdtemp(dir) != NULL);
    world_broadcast(c.world, dir, sizeof dir, 0);
    test_resharding(&c, dir);
    test_reading_once(&c, dir);
    test_falling_back(&c, dir);
    test_failing_together(&c, dir, save_at_once);
    test_failing_together(&c, dir, save_in_background);
    test_small_copy(&c, dir);
    test_pruning(&c, dir);
    world_barrier(c.world);
    if (!world_rank(c.world))
        CHECK(&c, !disk_remove(dir, NULL));
    return checks_finish(&c);
}
