/* test_metrics.c - what a run reports: whole lines on a disk that fills up, lines of a run that
 * goes on, the progress line and its means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/line_file.h"
#include "plan/checkpoint_size.h"
#include "train/metrics_resume.h"
#include "train/progress.h"

static void times_are_iso8601(void **state)
{
    static const struct {
        int64_t seconds;
        long ns;
        const char *text;
    } rows[] = {
        {0, 0, "1970-01-01T00:00:00.000Z"},
        {951782400, 999999999, "2000-02-29T00:00:00.999Z"},
        {1795329428, 123456789, "2026-11-22T06:37:08.123Z"},
        {4102444799, 1000000, "2099-12-31T23:59:59.001Z"},
    };
    char text[CLOCK_TIME_OF_DAY], again[CLOCK_TIME_OF_DAY];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(clock_iso8601(rows[i].seconds, rows[i].ns, text), rows[i].text);
    clock_time_of_day(text);
    assert_true(strcmp(text, clock_time_of_day(again)) <= 0);
}

/* A file in the build directory, absent at first. */
static const char *fresh(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "test_metrics.%ld.%s", (long)getpid(), name);
    unlink(path);
    return path;
}

static char *contents(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A file that may not grow takes a part of a line and then nothing, as a full disk does. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* For every number of bytes that there is room for: only whole lines in the file while it is full,
 * all lines in order when there is room again. */
static void lines_are_whole_on_a_full_disk(void **state)
{
    const char *path = fresh("lines");
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t room = 0; room <= 24; room++) {
        struct line_file file = {0};
        struct error err = {0};
        char wanted[32] = "", *got;
        unlink(path);
        assert_int_equal(line_file_open(&file, path, &err), 0);
        limit_files(room);
        enum line_file_outcome out[4] = {
            line_file_append(&file, "first\n"), line_file_append(&file, "second 2\n"),
            line_file_append(&file, "3\n"), line_file_append(&file, "fourth\n")};
        int full = 0;
        for (int i = 0; i < 4; i++) {
            full |= out[i] == LINE_FILE_FAILED;
            assert_int_equal(out[i] == LINE_FILE_KEPT || out[i] == LINE_FILE_FAILED, full);
        }
        assert_int_equal(full, room < 24);
        assert_int_equal(file.why, full ? EFBIG : 0);
        strcpy(wanted, room < 6 ? "" : room < 15 ? "first\n" : "first\nsecond 2\n");
        strcat(wanted, room >= 17 ? "3\n" : "");
        strcat(wanted, room >= 24 ? "fourth\n" : "");
        assert_string_equal(contents(path), wanted);
        limit_files(RLIM_INFINITY);
        assert_int_equal(line_file_append(&file, "5\n"),
                         full ? LINE_FILE_RESUMED : LINE_FILE_WRITTEN);
        got = contents(path);
        assert_string_equal(got, "first\nsecond 2\n3\nfourth\n5\n");
        assert_int_equal(line_file_close(&file), 0);
    }
    unlink(path);
}

static void lines_that_never_fitted_are_counted(void **state)
{
    struct line_file file = {0};
    struct error err = {0};
    const char *path = fresh("lost");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(line_file_open(&file, path, &err), 0);
    limit_files(3);
    for (int i = 0; i < 5; i++)
        line_file_append(&file, "line\n");
    assert_int_equal(line_file_close(&file), 5);
    limit_files(RLIM_INFINITY);
    assert_string_equal(contents(path), "");
    unlink(path);
    assert_int_equal(line_file_append(&file, "after the end\n"), LINE_FILE_WRITTEN);
}

static void resumed(const char *before, int64_t step, const char *after)
{
    struct log quiet = {.level = LOG_ERROR};
    struct error err = {0};
    const char *path = fresh("resume");
    put(path, before);
    assert_int_equal(metrics_resume(path, step, &quiet, &err), 0);
    assert_string_equal(contents(path), after);
    unlink(path);
}

#define LINE(n) "{\"step\": " #n ", \"loss\": 0.5}\n"

static void a_torn_line_costs_itself_alone(void **state)
{
    resumed("", 3, "");
    resumed(LINE(1) LINE(2) LINE(3) LINE(4), 3, LINE(1) LINE(2) LINE(3));
    resumed(LINE(1) LINE(2) LINE(3) LINE(4), 0, "");
    /* cut anywhere, with its newline or without, in the middle or at the end */
    const char *line = LINE(2);
    for (size_t cut = 1; cut + 1 < strlen(line); cut++) {
        char text[256];
        snprintf(text, sizeof text, LINE(1) "%.*s\n" LINE(3) LINE(9), (int)cut, line);
        resumed(text, 8, LINE(1) LINE(3));
        snprintf(text, sizeof text, LINE(1) "%.*s" LINE(3) LINE(4), (int)cut, line);
        resumed(text, 8, LINE(1) LINE(3) LINE(4));
        snprintf(text, sizeof text, LINE(1) "%.*s", (int)cut, line);
        resumed(text, 8, LINE(1));
    }
    resumed(LINE(1) "null\n[]\n{}\n17\n\n" LINE(2), 8, LINE(1) LINE(2));
}

/* A file of a million lines is not copied for the few that follow the checkpoint. */
static void last_lines_are_cut_off(void **state)
{
    static const char *const ends[] = {LINE(3), LINE(4) LINE(3) "{\"ste", "\n",
                                       LINE(3) "x\n" LINE(4)};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct log quiet = {.level = LOG_ERROR};
        struct error err = {0};
        struct stat before, after;
        char text[256];
        const char *path = fresh("cut");
        snprintf(text, sizeof text, LINE(1) LINE(2) "%s", ends[i]);
        put(path, text);
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(metrics_resume(path, 2, &quiet, &err), 0);
        assert_int_equal(stat(path, &after), 0);
        assert_true(before.st_ino == after.st_ino);
        assert_string_equal(contents(path), LINE(1) LINE(2));
        unlink(path);
    }
    resumed(LINE(1) LINE(4) LINE(2) LINE(5), 3, LINE(1) LINE(2));
    resumed(LINE(3) LINE(1) "x\n" LINE(2), 2, LINE(1) LINE(2));
}

/* Lines that begin and end well are not taken for good ones where they are none. */
static void an_odd_line_is_parsed(void **state)
{
    static const char *const torn[] = {"{\"step\": 2\n", "{\"step\": 2x}\n", "{\"step\": }\n",
                                       "{\"step\": 2, \"loss\"\n"};
    char text[256];
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++) {
        snprintf(text, sizeof text, LINE(1) "%s" LINE(3) LINE(4), torn[i]);
        resumed(text, 3, LINE(1) LINE(3));
    }
    resumed("{\"step\":1}\n{\"loss\": 2, \"step\": 2}\n{\"step\" : 3}\n", 2,
            "{\"step\":1}\n{\"loss\": 2, \"step\": 2}\n");
    resumed("{\"step\": 1, \"x\": {\"step\": 9}}\n" LINE(2), 1,
            "{\"step\": 1, \"x\": {\"step\": 9}}\n");
    resumed("{\"step\": 99999999999999999999}\n" LINE(2), 2, LINE(2));
}

static int64_t last_step(const char *text)
{
    struct error err = {0};
    const char *path = fresh("last");
    int64_t step = -1;
    put(path, text);
    assert_int_equal(metrics_last_step(path, &step, &err), 0);
    unlink(path);
    return step;
}

static void the_last_step_is_found_from_the_end(void **state)
{
    enum { LONG = 1 << 20 };
    struct error err = {0};
    int64_t step = -1;
    assert_int_equal(metrics_last_step(fresh("none"), &step, &err), 0);
    assert_int_equal(step, 0);
    assert_int_equal(last_step(""), 0);
    assert_int_equal(last_step("\n\n"), 0);
    assert_int_equal(last_step("x\n{}\n"), 0);
    assert_int_equal(last_step(LINE(7)), 7);
    assert_int_equal(last_step("{\"step\": 8}"), 8);
    assert_int_equal(last_step(LINE(9) LINE(4)), 4);
    assert_int_equal(last_step(LINE(1) LINE(2) "{\"step\": 3, \"lo"), 2);
    /* a line of any length, and what cannot be read after it */
    char *text = malloc(LONG + 200);
    for (size_t length = 1; length < LONG; length = length * 2 + (length > 30000 ? 1 : 3)) {
        int bytes = sprintf(text, LINE(5) "{\"step\": 6, \"text\": \"");
        memset(text + bytes, 'x', length);
        strcpy(text + bytes + length, "\"}\n");
        assert_int_equal(last_step(text), 6);
        bytes = sprintf(text, LINE(5));
        memset(text + bytes, 'x', length);
        text[(size_t)bytes + length] = 0;
        assert_int_equal(last_step(text), 5);
    }
    for (int64_t bytes = (1 << 16) - 3; bytes < (1 << 16) + 40; bytes++) {
        memset(text, 'x', (size_t)bytes);
        text[bytes - (int64_t)sizeof LINE(3)] = '\n';
        strcpy(text + bytes - (sizeof LINE(3) - 1), LINE(3));
        assert_int_equal(last_step(text), 3);
    }
    free(text);
}

/* Who watches the file, as tail -f does, is not left behind without need. */
static void a_good_file_is_left_alone(void **state)
{
    const char *path = fresh("same");
    struct log quiet = {.level = LOG_ERROR};
    struct error err = {0};
    put(path, LINE(1) LINE(2));
    FILE *file = fopen(path, "r");
    assert_int_equal(metrics_resume(path, 2, &quiet, &err), 0);
    put(path, "x");
    assert_int_equal(fgetc(file), 'x');
    fclose(file);
    unlink(path);
    assert_int_equal(metrics_resume(path, 2, &quiet, &err), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* A disk that gives this many bytes of files that are opened for reading, then EIO; < 0: all. */
static ssize_t readable = -1;

static ssize_t read_from_bad_disk(void *cookie, char *to, size_t bytes)
{
    int fd = *(int *)cookie;
    if (!readable) {
        errno = EIO;
        return -1;
    }
    ssize_t got = read(fd, to, bytes < (size_t)readable ? bytes : (size_t)readable);
    readable -= got > 0 ? got : 0;
    return got;
}

static int seek_on_bad_disk(void *cookie, off64_t *to, int whence)
{
    *to = lseek(*(int *)cookie, *to, whence);
    return *to < 0 ? -1 : 0;
}

static int close_on_bad_disk(void *cookie)
{
    int fd = *(int *)cookie;
    free(cookie);
    return close(fd);
}

/* In place of the C library's. */
FILE *fopen(const char *path, const char *mode)
{
    const int writes = mode[0] != 'r';
    int fd = open(path, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY, 0666);
    if (fd < 0 || writes || readable < 0)
        return fd < 0 ? NULL : fdopen(fd, mode);
    const cookie_io_functions_t bad_disk = {
        .read = read_from_bad_disk, .seek = seek_on_bad_disk, .close = close_on_bad_disk};
    int *cookie = malloc(sizeof fd);
    *cookie = fd;
    return fopencookie(cookie, mode, bad_disk);
}

/* The line of a later step amid others makes a second pass necessary; each byte of both may be the
 * first that cannot be read. */
static void what_cannot_be_read_is_not_dropped(void **state)
{
    const char lines[] = LINE(1) LINE(3) LINE(2), *path = fresh("bad");
    const int bytes = sizeof lines - 1;
    char beside[80];
    snprintf(beside, sizeof beside, "%s.partial", path);
    put(path, lines);
    for (int good = 0; good < 2 * bytes; good++) {
        struct log quiet = {.level = LOG_ERROR};
        struct error err = {0};
        readable = good;
        int rc = metrics_resume(path, 2, &quiet, &err);
        readable = -1;
        if (!rc || !strstr(err.text, "cannot read") || !strstr(err.text, path))
            fail_msg("after %d bytes: %d, %s", good, rc, err.text);
        assert_string_equal(contents(path), lines);
        assert_int_not_equal(access(beside, F_OK), 0);
    }
    unlink(path);
}

static int close_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void speed_is_the_mean_of_the_window(void **state)
{
    struct speed speed = {.window = 3};
    int64_t now_ns = 5;
    speed_add(&speed, 1000, 10, now_ns += 1000000000); /* warms up */
    assert_true(close_to(speed_ms(&speed), 1000) && close_to(speed_left_s(&speed, 2), 2));
    const double ms[] = {100, 300, 200, 400};
    for (int i = 0; i < 4; i++)
        speed_add(&speed, ms[i], 10 * (i + 1), now_ns += (int64_t)(ms[i] * 1e6));
    assert_true(close_to(speed_ms(&speed), 300)); /* of the last three */
    assert_true(close_to(speed_tokens_per_s(&speed), 90 / 0.9));
    assert_true(close_to(speed_left_s(&speed, 10), 3));
    /* an evaluation of 1 s on the way: the rest of the run has as many per step */
    speed_add(&speed, 300, 40, now_ns += 1300000000);
    assert_true(close_to(speed_ms(&speed), 300));
    assert_true(close_to(speed_left_s(&speed, 10), 10 * (0.3 + 1.0 / 5)));
}

static void a_long_window_is_the_longest_there_is(void **state)
{
    static struct speed speed = {.window = INT64_MAX};
    int64_t now_ns = 1;
    speed_add(&speed, 1e6, 1, now_ns);
    for (int i = 0; i < 3 * SPEED_WINDOW; i++)
        speed_add(&speed, i < 2 * SPEED_WINDOW ? 1e5 : 2, 1, now_ns += 1);
    assert_true(close_to(speed_ms(&speed), 2) && close_to(speed_tokens_per_s(&speed), 500));
}

static void progress_lines_fit_the_terminal(void **state)
{
    const struct metrics_step step = {
        .step = 99999,
        .output = {.loss = 1.69384, .grad_norm = 1.742, .targets = 1024},
        .eval_loss = 1.6845,
        .lr = 3.16e-4,
        .epoch = 1.25,
        .eval_tokens = 512,
        .evaluated = 1};
    const struct progress p = {.last = &step,
                               .steps = 1000000,
                               .tokens_per_s = 123456,
                               .step_ms = 1111.04,
                               .mfu = 0.413,
                               .left_s = 3 * 3600 + 25 * 60};
    char text[PROGRESS_TEXT];
    assert_string_equal(progress_text(&p, 0, text),
                        "step 99999/1000000  loss 1.6938  valid 1.6845 (ppl 5.39)  "
                        "grad 1.742  lr 3.16e-04  "
                        "123456 tokens/s  1111.0 ms  mfu 41.3%  epoch 1.25  ETA 3h25m");
    int length = (int)strlen(text), last = length;
    for (int columns = length + 5; columns > 0; columns--) {
        progress_text(&p, columns, text);
        assert_true((int)strlen(text) <= columns && (int)strlen(text) <= last);
        last = (int)strlen(text);
        if (columns >= 44)
            assert_true(strstr(text, "loss 1.6938") && strstr(text, "ETA 3h25m"));
        if (columns >= 92)
            assert_non_null(strstr(text, "123456 tokens/s"));
    }
}

static void a_loss_of_nothing_is_said(void **state)
{
    const struct metrics_step step = {.step = 1, .output = {.loss = NAN}};
    const struct progress p = {.last = &step, .steps = 2, .left_s = 59.6};
    char text[PROGRESS_TEXT];
    assert_string_equal(progress_text(&p, 0, text),
                        "step 1/2  loss none (no targets)  grad 0.000  lr 0.00e+00  0 tokens/s  "
                        "0.0 ms  ETA 1m00s");
}

/* Whatever sign a library's not-a-number has; a loss that overflowed is no loss of nothing. */
static void what_is_not_finite_is_said(void **state)
{
    const double values[] = {NAN, -NAN, INFINITY};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const struct metrics_step step = {
            .step = 1,
            .output = {.loss = values[i], .grad_norm = values[i], .targets = 1024},
            .evaluated = 1,
            .eval_loss = values[i],
            .eval_tokens = 1};
        const struct progress p = {.last = &step, .steps = 2};
        char text[PROGRESS_TEXT];
        assert_string_equal(progress_text(&p, 0, text),
                            "step 1/2  loss not finite  valid not finite  grad not finite  "
                            "lr 0.00e+00  0 tokens/s  0.0 ms  ETA 0s");
    }
}

/* Against saving and deleting, step by step. */
static void checkpoints_to_come_are_counted(void **state)
{
    for (int64_t steps = 0; steps <= 7; steps++)
        for (int64_t done = 0; done <= 8; done++)
            for (int64_t every = 0; every <= 4; every++)
                for (int64_t keep = 2; keep <= 4; keep++)
                    for (int64_t there = 0; there <= 6; there++) {
                        int64_t now = there, most = there;
                        for (int64_t step = done + 1; step <= steps; step++) {
                            if (step != steps && !(every && step % every == 0))
                                continue;
                            now++; /* it is written, then what it replaces is deleted */
                            most = now > most ? now : most;
                            now = now > keep ? keep : now;
                        }
                        assert_int_equal(checkpoint_size_more(done, steps, every, keep, there),
                                         most - there);
                    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_iso8601),
        cmocka_unit_test(lines_are_whole_on_a_full_disk),
        cmocka_unit_test(lines_that_never_fitted_are_counted),
        cmocka_unit_test(a_torn_line_costs_itself_alone),
        cmocka_unit_test(last_lines_are_cut_off),
        cmocka_unit_test(an_odd_line_is_parsed),
        cmocka_unit_test(the_last_step_is_found_from_the_end),
        cmocka_unit_test(a_good_file_is_left_alone),
        cmocka_unit_test(what_cannot_be_read_is_not_dropped),
        cmocka_unit_test(speed_is_the_mean_of_the_window),
        cmocka_unit_test(a_long_window_is_the_longest_there_is),
        cmocka_unit_test(progress_lines_fit_the_terminal),
        cmocka_unit_test(a_loss_of_nothing_is_said),
        cmocka_unit_test(what_is_not_finite_is_said),
        cmocka_unit_test(checkpoints_to_come_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
