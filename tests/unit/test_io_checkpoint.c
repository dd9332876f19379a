/* test_io_checkpoint.c - properties of checkpoints in a world of one; tests/mpi/test_checkpoint.c
 * has those of several ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/philox.h"
#include "io/checkpoint.h"
#include "io/disk.h"

static char folder[64];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/trireme-checkpoint-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
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

static int64_t elems_of(const struct checkpoint_piece *tensor)
{
    int64_t elems = 1;
    for (int i = 0; i < tensor->rank; i++)
        elems *= tensor->dims[i];
    return elems;
}

/* What element e of a tensor is, as bits without those that make a float infinite or NaN. */
static void put(void *to, int64_t e, enum dtype dtype, uint64_t key)
{
    uint32_t bits = (uint32_t)((key ^ (uint64_t)e) * 0x9e3779b97f4a7c15u >> 32) & 0xbfffffffu;
    if (dtype == DTYPE_BF16)
        ((bf16 *)to)[0] = (bf16)(bits >> 16);
    else
        ((uint32_t *)to)[0] = bits;
}

/* A piece of a tensor, its data filled. */
static struct checkpoint_piece make_piece(const struct checkpoint_piece *tensor, int64_t start,
                                          int64_t count, uint64_t seed)
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

static void free_pieces(struct checkpoint_piece *pieces, int count)
{
    for (int i = 0; i < count; i++)
        free(pieces[i].data);
}

/* Every tensor cut into `parts` uneven pieces, the last first, with an empty one among them. */
static int make_pieces(struct checkpoint_piece *pieces, int parts, uint64_t seed)
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

static int save(const char *dir, int64_t step, int parts, uint64_t seed, struct error *err)
{
    struct checkpoint_piece pieces[PIECES];
    struct js *meta = js_object();
    int count = make_pieces(pieces, parts, seed);
    js_add_string(meta, "model", "tiny");
    int rc = checkpoint_save(NULL, dir, step, pieces, count, meta, err);
    js_free(meta);
    free_pieces(pieces, count);
    return rc;
}

static void must_save(const char *dir, int64_t step, int parts, uint64_t seed)
{
    struct error err = {0};
    if (save(dir, step, parts, seed, &err))
        fail_msg("%s", err.text);
}

/* Load elements [start, start + count) and compare them bit by bit. */
static void check_interval(struct checkpoint *checkpoint, const struct checkpoint_piece *tensor,
                           int64_t start, int64_t count, uint64_t seed)
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

static void check_all(struct checkpoint *checkpoint, uint64_t seed)
{
    for (int t = 0; t < TENSORS; t++) {
        int64_t elems = elems_of(&tensors[t]);
        for (int parts = 1; parts <= 5; parts += 2)
            for (int p = 0; p < parts; p++)
                check_interval(checkpoint, &tensors[t], elems * p / parts,
                               elems * (p + 1) / parts - elems * p / parts, seed);
    }
}

static struct checkpoint *open_step(const char *dir, int64_t step)
{
    struct error err = {0};
    struct checkpoint *checkpoint;
    char path[256];
    snprintf(path, sizeof path, "%s/step-%08lld", dir, (long long)step);
    if (checkpoint_open(&checkpoint, path, &err))
        fail_msg("%s", err.text);
    return checkpoint;
}

static void any_split_comes_back(void **state)
{
    struct error err = {0};
    char dir[128];
    snprintf(dir, sizeof dir, "%s/run/checkpoints", folder); /* made as needed */
    for (int parts = 1; parts <= 6; parts++) {
        must_save(dir, parts, parts, 11);
        struct checkpoint *checkpoint = open_step(dir, parts);
        assert_int_equal(checkpoint_step(checkpoint), parts);
        assert_int_equal(checkpoint_tensors(checkpoint), TENSORS);
        assert_int_equal(checkpoint_ranks(checkpoint), 1);
        const struct js *meta = checkpoint_meta(checkpoint);
        assert_string_equal(js_get_string(meta, "model", ""), "tiny");
        assert_int_equal(js_get_int(meta, "step", -1), parts);
        assert_int_equal(js_get_int(meta, "ranks", -1), 1);
        if (checkpoint_verify(checkpoint, 0, 1, &err))
            fail_msg("%s", err.text);
        check_all(checkpoint, 11);
        checkpoint_close(checkpoint);
    }
}

static void many_pieces_load_at_once(void **state)
{
    struct error err = {0};
    struct checkpoint_piece want[PIECES], got[PIECES];
    must_save(folder, 100, 3, 5);
    struct checkpoint *checkpoint = open_step(folder, 100);
    int count = make_pieces(want, 4, 5);
    for (int i = 0; i < count; i++) {
        got[i] = want[i];
        got[i].data = calloc((size_t)want[i].count + 1, dtype_bytes(want[i].dtype));
    }
    if (checkpoint_load(checkpoint, got, count, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < count; i++)
        assert_memory_equal(got[i].data, want[i].data,
                            (size_t)want[i].count * dtype_bytes(want[i].dtype));
    free_pieces(want, count);
    free_pieces(got, count);
    checkpoint_close(checkpoint);
}

/* Reading as the other of fp32 and bf16 is the conversion of dtype.h. */
static void loading_converts(void **state)
{
    struct error err = {0};
    enum { LARGE = 8, NARROW = 2 };
    must_save(folder, 101, 3, 6);
    struct checkpoint *checkpoint = open_step(folder, 101);
    struct checkpoint_piece wide = make_piece(&tensors[LARGE], 5, 1500000, 6), to_bf16 = wide;
    struct checkpoint_piece narrow = make_piece(&tensors[NARROW], 1, 1000, 6), to_f32 = narrow;
    to_bf16.dtype = DTYPE_BF16;
    to_bf16.data = malloc((size_t)wide.count * 2);
    to_f32.dtype = DTYPE_F32;
    to_f32.data = malloc((size_t)narrow.count * 4);
    assert_int_equal(checkpoint_load(checkpoint, &to_bf16, 1, &err), 0);
    assert_int_equal(checkpoint_load(checkpoint, &to_f32, 1, &err), 0);
    for (int64_t i = 0; i < wide.count; i++)
        assert_int_equal(((bf16 *)to_bf16.data)[i], f32_to_bf16(((float *)wide.data)[i]));
    for (int64_t i = 0; i < narrow.count; i++)
        assert_true(((float *)to_f32.data)[i] == bf16_to_f32(((bf16 *)narrow.data)[i]));
    free(to_bf16.data);
    to_bf16.dtype = DTYPE_I32;
    assert_int_equal(checkpoint_load(checkpoint, &to_bf16, 1, &err), -1);
    assert_non_null(strstr(err.text, "i32"));
    free(to_f32.data);
    free(wide.data);
    free(narrow.data);
    checkpoint_close(checkpoint);
}

static void wrong_wishes_are_refused(void **state)
{
    struct error err = {0};
    float data[200];
    struct checkpoint_piece good = {"cube", DTYPE_F32, 3, {3, 5, 7}, 0, 105, data}, bad;
    must_save(folder, 102, 2, 6);
    struct checkpoint *checkpoint = open_step(folder, 102);
    assert_int_equal(checkpoint_load(checkpoint, &good, 1, &err), 0);
    bad = good;
    bad.name = "cuba";
    assert_int_equal(checkpoint_load(checkpoint, &bad, 1, &err), -1);
    assert_non_null(strstr(err.text, "no tensor cuba"));
    bad = good;
    bad.dims[0] = 7, bad.dims[2] = 3;
    assert_int_equal(checkpoint_load(checkpoint, &bad, 1, &err), -1);
    assert_non_null(strstr(err.text, "other dimensions"));
    bad = good;
    bad.start = 1;
    assert_int_equal(checkpoint_load(checkpoint, &bad, 1, &err), -1);
    assert_non_null(strstr(err.text, "not in tensor cube"));
    checkpoint_close(checkpoint);
}

static void expect_bad_save(const struct checkpoint_piece *pieces, int count, const char *text)
{
    struct error err = {0};
    struct stat info;
    char path[256];
    assert_int_equal(checkpoint_save(NULL, folder, 200, pieces, count, NULL, &err), -1);
    if (!strstr(err.text, text))
        fail_msg("expected \"%s\" in: %s", text, err.text);
    snprintf(path, sizeof path, "%s/step-00000200", folder);
    assert_int_equal(stat(path, &info), -1);
    strcat(path, ".partial");
    assert_int_equal(stat(path, &info), -1);
}

static void coverage_is_proven(void **state)
{
    float x[8] = {0};
    struct checkpoint_piece pieces[] = {
        {"a", DTYPE_F32, 1, {5}, 0, 5, x},
        {"x", DTYPE_F32, 2, {2, 4}, 0, 3, x},
        {"x", DTYPE_F32, 2, {2, 4}, 3, 5, x},
    };
    pieces[2].start = 4, pieces[2].count = 4;
    expect_bad_save(pieces, 3, "tensor x: element 3 is held by no rank");
    pieces[2].start = 2, pieces[2].count = 6;
    expect_bad_save(pieces, 3, "tensor x: element 2 is held twice");
    pieces[2].start = 3, pieces[2].count = 4;
    expect_bad_save(pieces, 3, "tensor x: element 7 is held by no rank");
    pieces[2].start = 3, pieces[2].count = 6;
    expect_bad_save(pieces, 3, "not in tensor x");
    pieces[2].count = 5, pieces[2].dims[0] = 4, pieces[2].dims[1] = 2;
    expect_bad_save(pieces, 3, "other dimensions");
    pieces[2].dims[0] = 2, pieces[2].dims[1] = 4, pieces[2].dtype = DTYPE_BF16;
    expect_bad_save(pieces, 3, "x is fp32");
    pieces[2].dtype = DTYPE_F32, pieces[0].name = "/a";
    expect_bad_save(pieces, 3, "cannot name");
    pieces[0].name = "x/y"; /* a tensor and a group of one name */
    expect_bad_save(pieces, 3, "x");
}

static void saving_again_replaces(void **state)
{
    struct error err = {0};
    must_save(folder, 103, 2, 1);
    must_save(folder, 103, 3, 2);
    struct checkpoint *checkpoint = open_step(folder, 103);
    assert_int_equal(checkpoint_verify(checkpoint, 0, 1, &err), 0);
    check_all(checkpoint, 2);
    checkpoint_close(checkpoint);
}

/* Damage */

static void path_in(char *path, const char *dir, int64_t step, const char *name)
{
    snprintf(path, 256, "%s/step-%08lld/%s", dir, (long long)step, name);
}

static void flip(const char *path, int64_t at)
{
    char byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static int64_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

/* Opening or verifying fails, and names the file. */
static void expect_damage(const char *dir, int64_t step, const char *name)
{
    struct error err = {0};
    struct checkpoint *checkpoint;
    char path[256];
    path_in(path, dir, step, "");
    path[strlen(path) - 1] = 0;
    int rc = checkpoint_open(&checkpoint, path, &err);
    if (!rc)
        rc = checkpoint_verify(checkpoint, 0, 1, &err);
    checkpoint_close(checkpoint);
    assert_int_equal(rc, -1);
    if (!strstr(err.text, name))
        fail_msg("expected %s in: %s", name, err.text);
}

static void every_flipped_byte_is_seen(void **state)
{
    static const char *const files[] = {"shard-00000.h5", "index.h5", "meta.json", "COMMIT"};
    struct error err = {0};
    char path[256], dir[128];
    snprintf(dir, sizeof dir, "%s/flip", folder);
    must_save(dir, 1, 3, 9);
    for (int f = 0; f < 4; f++) {
        path_in(path, dir, 1, files[f]);
        int64_t size = size_of(path), stride = size / 41 + 1;
        for (int64_t at = 0; at < size; at += stride) {
            flip(path, at);
            expect_damage(dir, 1, f == 3 ? "" : files[f]);
            flip(path, at);
        }
        flip(path, size - 1);
        expect_damage(dir, 1, f == 3 ? "" : files[f]);
        flip(path, size - 1);
    }
    struct checkpoint *checkpoint = open_step(dir, 1);
    assert_int_equal(checkpoint_verify(checkpoint, 0, 1, &err), 0);
    checkpoint_close(checkpoint);
}

static void damage_names_the_tensor(void **state)
{
    struct error err = {0};
    struct checkpoint *checkpoint;
    char path[256], dir[128], found[2000000 / 1000];
    float mark = 1234.5f;
    struct checkpoint_piece piece = {"layers.3/weird name", DTYPE_F32, 1, {1}, 0, 1, &mark};
    snprintf(dir, sizeof dir, "%s/names", folder);
    assert_int_equal(checkpoint_save(NULL, dir, 1, &piece, 1, NULL, &err), 0);
    path_in(path, dir, 1, "shard-00000.h5");
    int64_t size = size_of(path);
    int fd = open(path, O_RDWR);
    for (int64_t at = 0; at < size; at++)
        if (pread(fd, found, 4, at) == 4 && !memcmp(found, &mark, 4)) {
            flip(path, at + 2);
            break;
        }
    close(fd);
    checkpoint = open_step(dir, 1);
    assert_int_equal(checkpoint_verify(checkpoint, 0, 1, &err), -1);
    checkpoint_close(checkpoint);
    assert_non_null(strstr(err.text, "shard-00000.h5"));
    assert_non_null(strstr(err.text, "tensor layers.3/weird name"));
}

static int64_t found_step(const char *dir)
{
    struct error err = {0};
    struct log quiet = {.level = LOG_ERROR, .rank = 0};
    struct checkpoint *checkpoint;
    int64_t step = -1;
    if (checkpoint_find(&checkpoint, NULL, dir, &quiet, &err))
        return -2;
    if (checkpoint) {
        step = checkpoint_step(checkpoint);
        check_all(checkpoint, (uint64_t)step);
    }
    checkpoint_close(checkpoint);
    return step;
}

static void finding_falls_back(void **state)
{
    char path[256], dir[128], other[320];
    snprintf(dir, sizeof dir, "%s/find", folder);
    assert_int_equal(found_step(dir), -1);
    for (int step = 1; step <= 6; step++)
        must_save(dir, step, 2, (uint64_t)step);
    assert_int_equal(found_step(dir), 6);
    path_in(path, dir, 6, "shard-00000.h5"); /* truncated */
    assert_int_equal(truncate(path, size_of(path) - 1), 0);
    assert_int_equal(found_step(dir), 5);
    path_in(path, dir, 5, "COMMIT"); /* missing */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(found_step(dir), 4);
    path_in(path, dir, 4, "COMMIT"); /* of another save */
    path_in(other, dir, 3, "COMMIT");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(other, path), 0);
    assert_int_equal(found_step(dir), 3);
    path_in(path, dir, 3, "shard-00000.h5"); /* missing */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(found_step(dir), 2);
    snprintf(path, sizeof path, "%s/step-00000002", dir); /* while being replaced */
    snprintf(other, sizeof other, "%s.old", path);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(found_step(dir), 2);
    snprintf(path, sizeof path, "%s/step-00000009.partial", dir); /* never finished */
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(found_step(dir), 1);
    path_in(path, dir, 1, "index.h5");
    flip(path, 100);
    assert_int_equal(found_step(dir), -2);
}

static void pruning_keeps_the_good(void **state)
{
    struct error err = {0};
    struct checkpoint_entry *entries;
    char path[256], dir[128];
    struct stat info;
    snprintf(dir, sizeof dir, "%s/prune", folder);
    assert_int_equal(checkpoint_prune(NULL, dir, 2, &err), 0); /* nothing there */
    for (int step = 1; step <= 6; step++)
        must_save(dir, step, 2, (uint64_t)step);
    snprintf(path, sizeof path, "%s/step-00000007.partial", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    path_in(path, dir, 5, "shard-00000.h5");
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(checkpoint_prune(NULL, dir, 3, &err), 0); /* 6, 4, 3; 5 does not count */
    int count = checkpoint_list(&entries, dir, &err);
    assert_int_equal(count, 4);
    for (int i = 0; i < count; i++)
        assert_int_equal(entries[i].step, 6 - i);
    checkpoint_list_free(entries, count);
    snprintf(path, sizeof path, "%s/step-00000007.partial", dir);
    assert_int_equal(stat(path, &info), -1);
    assert_int_equal(checkpoint_prune(NULL, dir, 0, &err), 0); /* never fewer than two */
    count = checkpoint_list(&entries, dir, &err);
    assert_int_equal(count, 3);
    checkpoint_list_free(entries, count);
    assert_int_equal(found_step(dir), 6);
}

/* A writer killed at any moment leaves the last committed checkpoint to be found. */
static void death_is_survived(void **state)
{
    char dir[128];
    int64_t last = 0;
    snprintf(dir, sizeof dir, "%s/death", folder);
    int64_t began = clock_ns();
    must_save(dir, 1, 2, 1);
    int64_t one_save_us = (clock_ns() - began) / 1000;
    for (uint64_t round = 0; round < 20; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        for (int step = 1; !child; step = step % 3 + 1)
            if (save(dir, step, 2, (uint64_t)step, NULL))
                _exit(1);
        usleep((useconds_t)(philox_u64(77, round) % (uint64_t)(6 * one_save_us)));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* no save failed */
        int64_t step = found_step(dir);
        assert_in_range(step, last ? last : 1, 3);
        last = step;
    }
    assert_in_range(last, 2, 3); /* some did get through */
}

/* Full and unwritable disks */

static void files_cannot_grow(void **state)
{
    struct error err = {0};
    struct rlimit before, now;
    char dir[128], path[256];
    struct stat info;
    snprintf(dir, sizeof dir, "%s/grow", folder);
    must_save(dir, 1, 2, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    now = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    int rc = save(dir, 2, 2, 2, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(err.text, "shard-00000.h5"));
    assert_non_null(strstr(err.text, "File too large"));
    snprintf(path, sizeof path, "%s/step-00000002.partial", dir);
    assert_int_equal(stat(path, &info), -1);
    assert_int_equal(found_step(dir), 1);
}

static int mount_small(const char *path, const char *options)
{
    if (mkdir(path, 0777) || mount("none", path, "tmpfs", 0, options)) {
        print_message("skipped: cannot mount a tmpfs (%s)\n", strerror(errno));
        return -1;
    }
    return 0;
}

static void disks_run_full(void **state)
{
    struct error err = {0};
    char dir[128];
    snprintf(dir, sizeof dir, "%s/full", folder);
    if (mount_small(dir, "size=20m,nr_inodes=9"))
        skip();
    must_save(dir, 1, 2, 1);                            /* 8.3 MB, 5 files */
    assert_int_equal(save(dir, 2, 2, 2, &err), -1);     /* fits, but no inode is left */
    assert_non_null(strstr(err.text, "No space left")); /* so this is ENOSPC in mid-save */
    assert_int_equal(found_step(dir), 1);
    assert_int_equal(mount("none", dir, "tmpfs", MS_REMOUNT | MS_RDONLY, ""), 0);
    assert_int_equal(save(dir, 2, 2, 2, &err), -1);
    assert_non_null(strstr(err.text, "Read-only"));
    assert_int_equal(found_step(dir), 1);
    umount(dir);
    assert_int_equal(mount("none", dir, "tmpfs", 0, "size=12m"), 0);
    must_save(dir, 1, 2, 1);
    assert_int_equal(save(dir, 2, 2, 2, &err), -1);
    assert_non_null(strstr(err.text, "are free")); /* known before anything is written */
    assert_int_equal(found_step(dir), 1);
    umount(dir);
}

/* Other programs */

static void h5dump_reads_shards(void **state)
{
    char command[512], dir[128], line[512] = "";
    if (system("h5dump --version > /dev/null 2>&1")) {
        print_message("skipped: there is no h5dump\n");
        skip();
    }
    snprintf(dir, sizeof dir, "%s/dump", folder);
    must_save(dir, 1, 1, 1);
    snprintf(command, sizeof command,
             "h5dump -d '/pieces/four@0' -y -w 400 %s/step-00000001/shard-00000.h5 | "
             "grep -A1 'DATA {' | tail -1 | tr -d ' '",
             dir);
    FILE *out = popen(command, "r");
    assert_non_null(fgets(line, sizeof line, out));
    pclose(out);
    const char *at = line;
    for (int e = 0; e < 30; e++) {
        int32_t want;
        put(&want, e, DTYPE_I32, philox_key(1, "four"));
        assert_int_equal(strtol(at, (char **)&at, 10), want);
        at++;
    }
}

static void h5py_reads_the_index(void **state)
{
    const char *python = getenv("TRIREME_PYTHON");
    char command[1024], dir[128], path[256];
    snprintf(command, sizeof command, "%s -c 'import h5py' 2> /dev/null",
             python ? python : "python3");
    if (system(command)) {
        print_message("skipped: no h5py (TRIREME_PYTHON names a python that has it)\n");
        skip();
    }
    snprintf(dir, sizeof dir, "%s/python", folder);
    must_save(dir, 1, 5, 1);
    snprintf(path, sizeof path, "%s/moved", dir); /* names inside are relative */
    snprintf(command, sizeof command, "%s/step-00000001", dir);
    assert_int_equal(rename(command, path), 0);
    for (int t = 0; t < TENSORS; t++) { /* what python should see, flat, as float64 */
        struct checkpoint_piece whole = make_piece(&tensors[t], 0, elems_of(&tensors[t]), 1);
        char name[200];
        snprintf(name, sizeof name, "%s/%d", dir, t);
        FILE *file = fopen(name, "w");
        for (int64_t e = 0; e < whole.count; e++) {
            double value = whole.dtype == DTYPE_F32   ? (double)((float *)whole.data)[e]
                           : whole.dtype == DTYPE_I32 ? (double)((int32_t *)whole.data)[e]
                                                      : bf16_to_f32(((bf16 *)whole.data)[e]);
            fwrite(&value, sizeof value, 1, file);
        }
        fclose(file);
        free(whole.data);
        snprintf(command, sizeof command,
                 "cd / && %s -c \"import h5py, numpy\n"
                 "x = h5py.File('%s/index.h5')['%s']\n"
                 "assert x.shape[0] == %d and x.ndim == %d\n"
                 "assert numpy.array_equal(x[...].astype('f8').ravel(), numpy.fromfile('%s'))\"",
                 python ? python : "python3", path, tensors[t].name, (int)tensors[t].dims[0],
                 tensors[t].rank, name);
        assert_int_equal(system(command), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_split_comes_back),
        cmocka_unit_test(many_pieces_load_at_once),
        cmocka_unit_test(loading_converts),
        cmocka_unit_test(wrong_wishes_are_refused),
        cmocka_unit_test(coverage_is_proven),
        cmocka_unit_test(saving_again_replaces),
        cmocka_unit_test(every_flipped_byte_is_seen),
        cmocka_unit_test(damage_names_the_tensor),
        cmocka_unit_test(finding_falls_back),
        cmocka_unit_test(pruning_keeps_the_good),
        cmocka_unit_test(death_is_survived),
        cmocka_unit_test(files_cannot_grow),
        cmocka_unit_test(disks_run_full),
        cmocka_unit_test(h5dump_reads_shards),
        cmocka_unit_test(h5py_reads_the_index),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, make_folder, remove_folder);
}
