/* test_io_faults.c - checkpoints that are damaged, torn, or had no room. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "tests/unit/test_io_checkpoint.h"

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
        step = checkpoint->step;
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
    must_save(dir, 1, 2, 1);
    path_in(path, dir, 1, "COMMIT");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(found_step(dir), -1); /* as good as none */
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

/* Let the process open no more files. */
static struct rlimit open_no_more(void)
{
    struct rlimit before, now;
    int next = open("/dev/null", O_RDONLY);
    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = (struct rlimit){(rlim_t)next, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return before;
}

static void *allow_soon(void *limit)
{
    usleep(500000);
    return setrlimit(RLIMIT_NOFILE, limit) ? limit : NULL;
}

/* What the system cannot read now says nothing about a checkpoint: no older one is taken for it. */
static void failed_reads_are_no_damage(void **state)
{
    struct error err = {0};
    struct log quiet = {.level = LOG_ERROR, .rank = 0};
    struct checkpoint *checkpoint;
    pthread_t thread;
    void *failed;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/unread", folder);
    must_save(dir, 1, 2, 1);
    must_save(dir, 2, 2, 2);
    struct rlimit limit = open_no_more();
    assert_int_equal(pthread_create(&thread, NULL, allow_soon, &limit), 0);
    int64_t step = found_step(dir);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(step, 2);
    limit = open_no_more();
    int rc = checkpoint_find(&checkpoint, NULL, dir, &quiet, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(rc, -1);
    assert_int_equal(err.by_system, 1);
    assert_int_equal(err.code, EXIT_NODE);
    assert_non_null(strstr(err.text, "Too many open files"));
}

static struct log nothing_said = {.level = LOG_ERROR, .rank = 0};

static void prune(const char *dir, int keep, const char *written, struct checkpoint_checked *known)
{
    struct error err = {0};
    struct checkpoint_entry *entries;
    struct checkpoint_checked none = {0};
    const char *spared[] = {written, NULL};
    int count = checkpoint_list(&entries, dir, &err);
    if (checkpoint_clean(dir, &err) || checkpoint_prune(NULL, entries, count, keep, spared,
                                                        known ? known : &none, &nothing_said, &err))
        fail_msg("%s", err.text);
    checkpoint_list_free(entries, count);
    checkpoint_checked_free(&none);
}

/* The steps there are, newest first, as text. */
static const char *steps_in(const char *dir)
{
    static char text[256];
    struct checkpoint_entry *entries;
    int count = checkpoint_list(&entries, dir, NULL);
    text[0] = 0;
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "",
                 (long long)entries[i].step);
    checkpoint_list_free(entries, count);
    return text;
}

static void pruning_keeps_the_good(void **state)
{
    char path[256], dir[128];
    struct stat info;
    snprintf(dir, sizeof dir, "%s/prune", folder);
    prune(dir, 2, NULL, NULL); /* nothing there */
    for (int step = 1; step <= 6; step++)
        must_save(dir, step, 2, (uint64_t)step);
    snprintf(path, sizeof path, "%s/step-00000007.partial", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    path_in(path, dir, 5, "shard-00000.h5");
    assert_int_equal(truncate(path, 1000), 0);
    prune(dir, 3, NULL, NULL); /* 5 does not count */
    assert_string_equal(steps_in(dir), "6 5 4 3");
    snprintf(path, sizeof path, "%s/step-00000007.partial", dir);
    assert_int_equal(stat(path, &info), -1);
    prune(dir, 0, NULL, NULL); /* never fewer than two; the damaged one is not deleted either */
    assert_string_equal(steps_in(dir), "6 5 4");
    assert_int_equal(found_step(dir), 6);
}

/* Sizes tell nothing of a flipped bit: what counts has been read, here or before. */
static void pruning_counts_what_was_read(void **state)
{
    struct checkpoint_checked known = {0};
    char path[256], dir[128];
    snprintf(dir, sizeof dir, "%s/prune-flip", folder);
    for (int step = 1; step <= 4; step++)
        must_save(dir, step, 2, (uint64_t)step);
    path_in(path, dir, 3, "shard-00000.h5");
    flip(path, size_of(path) / 2);
    prune(dir, 2, NULL, &known); /* 4 and 2 */
    assert_string_equal(steps_in(dir), "4 3 2");
    path_in(path, dir, 3, "");
    path[strlen(path) - 1] = 0;
    assert_int_equal(checkpoint_checked_get(&known, path), CHECKPOINT_DAMAGED);
    checkpoint_checked_set(&known, path, CHECKPOINT_WHOLE); /* as if written again meanwhile */
    prune(dir, 2, NULL, &known);
    assert_string_equal(steps_in(dir), "4 3");
    checkpoint_checked_free(&known);
}

/* How many of the steps 1 to 6 pruning has read. */
static int steps_read(const char *dir, const struct checkpoint_checked *known)
{
    char path[256];
    int count = 0;
    for (int step = 1; step <= 6; step++) {
        snprintf(path, sizeof path, "%s/step-%08d", dir, step);
        count += checkpoint_checked_get(known, path) != CHECKPOINT_UNKNOWN;
    }
    return count;
}

/* Nothing is read where nothing is deleted, and two where many are kept. */
static void pruning_reads_what_a_deletion_needs(void **state)
{
    struct checkpoint_checked known = {0};
    char path[256], dir[128];
    snprintf(dir, sizeof dir, "%s/prune-read", folder);
    for (int step = 1; step <= 6; step++)
        must_save(dir, step, 1, (uint64_t)step);
    prune(dir, 6, NULL, &known);
    assert_int_equal(steps_read(dir, &known), 0);
    snprintf(path, sizeof path, "%s/step-00000001", dir);
    prune(dir, 5, path, &known); /* the one older is spared */
    assert_int_equal(steps_read(dir, &known), 0);
    assert_string_equal(steps_in(dir), "6 5 4 3 2 1");
    prune(dir, 5, NULL, &known);
    assert_int_equal(steps_read(dir, &known), 2);
    assert_string_equal(steps_in(dir), "6 5 4 3 2");
    checkpoint_checked_free(&known);
    path_in(path, dir, 6, "shard-00000.h5");
    flip(path, size_of(path) / 2);
    prune(dir, 3, NULL, &known); /* 6 is damaged, 5 and 4 are whole, 3 counts unread */
    assert_int_equal(steps_read(dir, &known), 3);
    assert_string_equal(steps_in(dir), "6 5 4 3");
    checkpoint_checked_free(&known);
}

/* Whatever the steps of others say, what was just written stays. */
static void pruning_keeps_what_was_written(void **state)
{
    struct checkpoint_checked known = {0};
    char path[256], dir[128];
    snprintf(dir, sizeof dir, "%s/prune-written", folder);
    for (int step = 1; step <= 4; step++)
        must_save(dir, step, 1, (uint64_t)step);
    snprintf(path, sizeof path, "%s/step-00000001", dir);
    checkpoint_checked_set(&known, path, CHECKPOINT_WHOLE);
    prune(dir, 2, path, &known);
    assert_string_equal(steps_in(dir), "4 3 1");
    checkpoint_checked_free(&known);
}

/* Two folders that swapped names are both refused; another name says nothing. */
static void swapped_folders_are_noticed(void **state)
{
    struct error err = {0};
    struct checkpoint *checkpoint;
    char one[160], two[160], other[160], dir[128];
    snprintf(dir, sizeof dir, "%s/swap", folder);
    snprintf(one, sizeof one, "%s/step-00000001", dir);
    snprintf(two, sizeof two, "%s/step-00000002", dir);
    snprintf(other, sizeof other, "%s/best", dir);
    for (int step = 1; step <= 2; step++)
        must_save(dir, step, 1, (uint64_t)step);
    assert_int_equal(rename(one, other), 0);
    assert_int_equal(rename(two, one), 0);
    assert_int_equal(checkpoint_open(&checkpoint, one, &err), -1);
    assert_non_null(strstr(err.text, "step-00000001 holds step 2"));
    assert_int_equal(checkpoint_open(&checkpoint, other, &err), 0);
    checkpoint_close(checkpoint);
    assert_int_equal(found_step(dir), -2);
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
    for (uint64_t round = 0; round < 20 || (last < 2 && round < 200); round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        for (int step = 1; !child; step = step % 3 + 1)
            if (save(dir, step, 2, (uint64_t)step, NULL))
                _exit(1);
        /* Up to six saves, or more where other processes have taken the time for all of those. */
        int64_t most_us = (6 + (int64_t)round / 20) * one_save_us;
        usleep((useconds_t)(philox_u64(77, round) % (uint64_t)most_us));
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
    assert_non_null(strstr(err.text, "checkpoint needs 8."));
    assert_non_null(strstr(err.text, " MB and 4."));
    assert_int_equal(found_step(dir), 1);
    umount(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_byte_is_seen),
        cmocka_unit_test(damage_names_the_tensor),
        cmocka_unit_test(finding_falls_back),
        cmocka_unit_test(failed_reads_are_no_damage),
        cmocka_unit_test(pruning_keeps_the_good),
        cmocka_unit_test(pruning_counts_what_was_read),
        cmocka_unit_test(pruning_reads_what_a_deletion_needs),
        cmocka_unit_test(pruning_keeps_what_was_written),
        cmocka_unit_test(swapped_folders_are_noticed),
        cmocka_unit_test(death_is_survived),
        cmocka_unit_test(files_cannot_grow),
        cmocka_unit_test(disks_run_full),
    };
    h5_setup();
    return cmocka_run_group_tests_name("faults", tests, make_folder, remove_folder);
}
