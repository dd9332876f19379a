/* test_swap.c - the file that stands in for memory holds what was written, whatever is under way
 * beside it, leaves nothing behind, and says why it cannot be made, read or written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/philox.h"
#include "io/disk.h"
#include "io/swap.h"

/* In place of the C library's: the date that it says may be ahead, as it seems to whoever took it
 * before it was set back. */
static time_t date_ahead_s;

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, time);
    time->tv_sec += clock == CLOCK_REALTIME ? date_ahead_s : 0;
    return rc;
}

/* Pieces of any size, several of the threads' own pieces among them. */
static const size_t sizes[] = {1, 7, 4096, 65537, (4 << 20) - 1, 4 << 20, (9 << 20) + 13};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

static char folder[64];

static char byte_at(int part, int round, size_t at)
{
    return (char)(philox_u64((uint64_t)(part * 16 + round), at / 8) >> at % 8 * 8);
}

static char *make_bytes(int part, int round)
{
    char *bytes = malloc(sizes[part]);
    for (size_t i = 0; i < sizes[part]; i++)
        bytes[i] = byte_at(part, round, i);
    return bytes;
}

static struct swap *open_swap(size_t bytes)
{
    struct swap *swap = NULL;
    struct error err = {0};
    if (swap_open(&swap, folder, 3, bytes, &err))
        fail_msg("%s", err.text);
    return swap;
}

static int64_t offset_of(int part)
{
    int64_t at = 64;
    for (int i = 0; i < part; i++)
        at += (int64_t)sizes[i];
    return at;
}

static void a_new_file_is_zero_and_has_no_name(void **state)
{
    struct swap *swap = open_swap(100000);
    char bytes[100000];
    memset(bytes, 1, sizeof bytes);
    assert_int_equal(swap_transfer(swap, SWAP_READ, bytes, sizeof bytes, 0, NULL), 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        assert_int_equal(entry->d_name[0], '.');
    closedir(dir);
    swap_close(swap);
}

/* All parts are written anew while those before them are read. */
static void what_is_written_is_read(void **state)
{
    struct swap *swap = open_swap((size_t)offset_of(SIZES));
    for (int round = 0; round < 3; round++) {
        struct swap_op write[SIZES] = {0}, read[SIZES] = {0};
        char *from[SIZES], *to[SIZES];
        for (int p = 0; p < SIZES; p++) {
            from[p] = make_bytes(p, round);
            to[p] = calloc(1, sizes[p]);
            write[p] = (struct swap_op){SWAP_WRITE, from[p], sizes[p], offset_of(p)};
            read[p] = (struct swap_op){SWAP_READ, to[p], sizes[p], offset_of(p)};
            swap_submit(swap, &write[p]);
            if (!p)
                continue;
            assert_int_equal(swap_wait(swap, &write[p - 1], NULL), 0);
            swap_submit(swap, &read[p - 1]);
        }
        assert_int_equal(swap_wait(swap, &write[SIZES - 1], NULL), 0);
        swap_submit(swap, &read[SIZES - 1]);
        for (int p = 0; p < SIZES; p++) {
            assert_int_equal(swap_wait(swap, &read[p], NULL), 0);
            assert_true(read[p].end_ns >= read[p].start_ns);
            assert_memory_equal(to[p], from[p], sizes[p]);
            free(from[p]);
            free(to[p]);
        }
    }
    swap_close(swap);
}

/* Closing waits for what nobody waited for; nothing is also an operation. */
static void an_end_without_waiting(void **state)
{
    struct swap *swap = open_swap(64 << 20);
    char *bytes = calloc(1, 32 << 20);
    struct swap_op op = {SWAP_WRITE, bytes, 32 << 20, 0}, none = {SWAP_READ, NULL, 0, 0};
    swap_submit(swap, &op);
    swap_submit(swap, &none);
    assert_int_equal(swap_wait(swap, &none, NULL), 0);
    swap_close(swap);
    free(bytes);
}

static void said(const struct error *err, const char *first, const char *second)
{
    if (!strstr(err->text, "offload.path") || !strstr(err->text, first) ||
        !strstr(err->text, second) || strchr(err->text, '\n'))
        fail_msg("said \"%s\"", err->text);
}

static void expect_refused(const char *where, size_t bytes, const char *first, const char *second)
{
    struct swap *swap = NULL;
    struct error err = {0};
    assert_int_equal(swap_open(&swap, where, 0, bytes, &err), -1);
    said(&err, first, second);
    assert_int_equal(swap_check(where, 0, bytes, 1, &err), -1);
    said(&err, first, second);
}

/* Room for one is none for many. */
static void room_is_shared(void **state)
{
    struct error err = {0};
    struct statvfs room;
    assert_int_equal(statvfs(folder, &room), 0);
    size_t left = (size_t)room.f_bavail * room.f_frsize;
    assert_int_equal(swap_check(folder, 0, left / 4, 3, &err), 0);
    assert_int_equal(swap_check(folder, 0, left / 4, 8, &err), -1);
    said(&err, "not enough disk space", "for 8 of them");
}

/* Root may do anything but this. */
static void folders_that_will_not_do(void **state)
{
    char path[128];
    struct rlimit before, small;
    snprintf(path, sizeof path, "%s/file", folder);
    fclose(fopen(path, "w"));
    expect_refused(path, 10, "file", "");
    expect_refused("/proc/trireme", 10, "/proc/trireme", "");
    expect_refused(folder, (size_t)1 << 60, "not enough disk space", "PB");
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    expect_refused(folder, 4097, "ulimit", "4.10 kB");
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(remove(path), 0);
}

/* The descriptor of the only open file in the folder. */
static int descriptor(void)
{
    char link[64], to[256] = "";
    for (int fd = 3; fd < 64; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, to, sizeof to - 1);
        if (length > 0 && !strncmp(to, folder, strlen(folder)))
            return fd;
    }
    return -1;
}

static void a_file_that_was_cut(void **state)
{
    struct swap *swap = open_swap(1 << 20);
    struct error err = {0};
    char bytes[4096];
    assert_int_equal(ftruncate(descriptor(), 5000), 0);
    assert_int_equal(swap_transfer(swap, SWAP_READ, bytes, sizeof bytes, 0, &err), 0);
    assert_int_equal(swap_transfer(swap, SWAP_READ, bytes, sizeof bytes, 4096, &err), -1);
    assert_non_null(strstr(err.text, "ends at byte 5000"));
    assert_int_equal(err.code, EXIT_NODE);
    assert_int_equal(swap_transfer(swap, SWAP_READ, bytes, sizeof bytes, 0, &err), 0);
    /* A write behind its end would leave zeros between. */
    err = (struct error){0};
    assert_int_equal(swap_transfer(swap, SWAP_WRITE, bytes, sizeof bytes, 16384, &err), -1);
    assert_non_null(strstr(err.text, "ends at byte 5000"));
    swap_close(swap);
}

static void calls_last(int ms)
{
    char path[128];
    snprintf(path, sizeof path, "%s/slow", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "%d", ms);
    fclose(file);
    setenv("SLOW_FILE", path, 1);
}

/* Nothing moves: waiting ends, though the date is set back meanwhile, and what is waited for next
 * need not be waited for. */
static void a_disk_that_does_not_answer(void **state)
{
    static const struct timespec nap = {.tv_nsec = 10000000};
    struct swap *swap = open_swap(1 << 20);
    struct error err = {0};
    char bytes[4096] = "";
    struct swap_op write = {SWAP_WRITE, bytes, sizeof bytes, 0}, read = {SWAP_READ, bytes, 100, 0};
    swap_watch(swap, 1);
    calls_last(20000);
    swap_submit(swap, &write);
    int64_t begin_ns = clock_ns();
    date_ahead_s = 15;
    assert_int_equal(swap_wait(swap, &write, &err), -1);
    date_ahead_s = 0;
    assert_in_range(clock_ns() - begin_ns, 700000000, 5000000000);
    assert_int_equal(err.code, EXIT_HANG);
    said(&err, "nothing was written", folder);
    swap_submit(swap, &read);
    assert_int_equal(swap_wait(swap, &read, &err), -1);
    said(&err, "nothing was read", folder);
    assert_true(swap_busy(swap));
    calls_last(0);
    while (swap_busy(swap))
        nanosleep(&nap, NULL);
    swap_close(swap);
}

/* A slow one that does move is waited for, and the time is told. */
static void a_slow_disk(void **state)
{
    enum { PIECES = 6, EACH_MS = 500 };
    struct swap *swap = open_swap((size_t)PIECES << 22);
    struct swap_use use;
    char *bytes = calloc(PIECES, 1 << 22);
    swap_watch(swap, 2); /* an operation lasts longer than its limit, a call does not */
    calls_last(EACH_MS);
    for (int i = 0; i < 2; i++) {
        size_t some = (size_t)(i ? 1 : PIECES) << 22;
        assert_int_equal(swap_transfer(swap, i ? SWAP_READ : SWAP_WRITE, bytes, some, 0, NULL), 0);
    }
    calls_last(0);
    swap_measure(swap, &use);
    assert_int_equal(use.bytes[SWAP_WRITE], PIECES << 22);
    assert_int_equal(use.bytes[SWAP_READ], 1 << 22);
    /* Six pieces on four threads are two rounds, and the read is one. */
    assert_in_range(use.busy_ns, 3 * EACH_MS * 1000000LL, 30 * EACH_MS * 1000000LL);
    assert_in_range(use.waited_ns, 3 * EACH_MS * 1000000LL, use.busy_ns + 100000000);
    swap_close(swap);
    free(bytes);
}

static int setup(void **state)
{
    strcpy(folder, "/tmp/trireme-swap-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    return disk_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_is_zero_and_has_no_name),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(an_end_without_waiting),
        cmocka_unit_test(folders_that_will_not_do),
        cmocka_unit_test(room_is_shared),
        cmocka_unit_test(a_file_that_was_cut),
        cmocka_unit_test(a_disk_that_does_not_answer),
        cmocka_unit_test(a_slow_disk),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
