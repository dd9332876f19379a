/* test_io_checkpoint.c - properties of checkpoints in a world of one; tests/mpi/test_checkpoint.c
 * has those of several ranks, test_io_faults.c what may happen to them. */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "io/safetensors.h"
#include "tests/unit/test_io_checkpoint.h"

/* ---- what an fsync() is left to do ---- */

static int64_t flushed_to, most_left; /* of the file that is written; of any at its fsync() */

/* In place of libc's. */
int sync_file_range(int fd, off64_t from, off64_t bytes, unsigned flags)
{
    if (from <= flushed_to && from + bytes > flushed_to)
        flushed_to = from + bytes;
    return (int)syscall(SYS_sync_file_range, fd, from, bytes, flags);
}

int fsync(int fd)
{
    struct stat info;
    if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size - flushed_to > most_left)
        most_left = info.st_size - flushed_to;
    flushed_to = 0;
    return (int)syscall(SYS_fsync, fd);
}

/* ---- what cannot be removed, and two names that cannot be exchanged ---- */

static const char *stuck; /* the name of a file that cannot be removed; NULL: all can */
static int can_exchange = 1;

/* In place of libc's. */
int remove(const char *path)
{
    if (stuck && strstr(path, stuck)) {
        errno = EBUSY;
        return -1;
    }
    return unlink(path) && (errno != EISDIR || rmdir(path)) ? -1 : 0;
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (can_exchange)
        return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    errno = EINVAL;
    return -1;
}

/* ---- files of many pieces ---- */

enum { LONG_PARTS = 10, LONG_ELEMS = 5 << 20 }; /* of 20 MiB */

static int fetch_zeros(const struct checkpoint_piece *piece, void *to, int64_t from, size_t bytes,
                       struct error *err)
{
    memset(to, 0, bytes);
    return 0;
}

static int read_zeros(void *user, int source, int64_t start, int64_t count, float *to,
                      struct error *err)
{
    memset(to, 0, (size_t)count * sizeof *to);
    return 0;
}

/* One that takes longer than run.hang_seconds would be taken for a hang: files of many small pieces
 * are flushed while they are written, too. */
static void long_files_are_flushed_in_pieces(void **state)
{
    struct error err = {0};
    struct checkpoint_piece pieces[LONG_PARTS];
    struct safetensors_source sources[LONG_PARTS];
    char names[LONG_PARTS][8];
    for (int i = 0; i < LONG_PARTS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        pieces[i] = (struct checkpoint_piece){names[i],   DTYPE_F32,           1, {LONG_ELEMS}, 0,
                                              LONG_ELEMS, .fetch = fetch_zeros};
        sources[i] = (struct safetensors_source){
            .dims = 1, .dim = {LONG_ELEMS}, .elems = LONG_ELEMS, .read = read_zeros};
        strcpy(sources[i].name, names[i]);
    }
    flushed_to = most_left = 0;
    if (checkpoint_save(NULL, folder, 300, pieces, LONG_PARTS, NULL, &err))
        fail_msg("%s", err.text);
    assert_in_range(most_left, 1, 84 << 20);
    most_left = 0;
    if (safetensors_write(folder, "model", sources, LONG_PARTS, DTYPE_F32, INT64_MAX, &err))
        fail_msg("%s", err.text);
    assert_in_range(most_left, 1, 84 << 20);
}

/* ---- properties ---- */

static void any_split_comes_back(void **state)
{
    struct error err = {0};
    char dir[128];
    snprintf(dir, sizeof dir, "%s/run/checkpoints", folder);
    assert_int_equal(save(dir, 1, 1, 11, &err), -1);     /* the run is not there */
    snprintf(dir, sizeof dir, "%s/checkpoints", folder); /* made as needed */
    for (int parts = 1; parts <= 6; parts++) {
        must_save(dir, parts, parts, 11);
        struct checkpoint *checkpoint = open_step(dir, parts);
        assert_int_equal(checkpoint->step, parts);
        assert_int_equal(checkpoint->tensors, TENSORS);
        assert_int_equal(checkpoint->ranks, 1);
        const struct js *meta = checkpoint->meta;
        assert_string_equal(js_get_string(meta, "model", ""), "tiny");
        assert_true(js_get_real(meta, "loss", 0) == 2.0 / 3);
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

/* The new checkpoint counts, whatever becomes of the one that it replaces (of which another node
 * may have a file open, which NFS keeps). */
static void what_is_replaced_may_stay(void **state)
{
    struct error err = {0};
    char dir[128];
    for (can_exchange = 0; can_exchange < 2; can_exchange++) {
        snprintf(dir, sizeof dir, "%s/stay%d", folder, can_exchange);
        stuck = NULL;
        must_save(dir, 1, 2, 1);
        stuck = can_exchange ? ".partial/shard-00000.h5" : ".old/shard-00000.h5";
        must_save(dir, 1, 3, 2);
        struct checkpoint *checkpoint = open_step(dir, 1);
        assert_int_equal(checkpoint_verify(checkpoint, 0, 1, &err), 0);
        check_all(checkpoint, 2);
        checkpoint_close(checkpoint);
        assert_int_equal(checkpoint_clean(dir, &err), -1); /* it was left */
        stuck = NULL;
        assert_int_equal(checkpoint_clean(dir, &err), 0);
        must_save(dir, 1, 2, 3);
    }
    can_exchange = 1;
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
        cmocka_unit_test(what_is_replaced_may_stay),
        cmocka_unit_test(h5dump_reads_shards),
        cmocka_unit_test(h5py_reads_the_index),
        cmocka_unit_test(long_files_are_flushed_in_pieces),
    };
    h5_setup();
    return cmocka_run_group_tests_name("checkpoint", tests, make_folder, remove_folder);
}
