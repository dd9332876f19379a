/* test_base.c - properties of src/base. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <grp.h>
#include <math.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/round.h"
#include "base/shared_memory.h"
#include "base/stream_copy.h"
#include "base/text.h"

/* The least multiple that is not below. */
static void rounding_up(void **state)
{
    static const int64_t units[] = {1, 3, 7, 64, 257};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        for (int64_t n = 0; n < 300; n++) {
            int64_t to = units[u], up = round_up(n, to);
            assert_true(up % to == 0 && up >= n && up - n < to);
            assert_int_equal(ceil_div(n, to), up / to);
            assert_int_equal(round_up_bytes((size_t)n, (size_t)to), (size_t)up);
        }
}

/* Whatever the size of the array, it holds as much of the whole text as fits, and nothing after it
 * is touched. */
static void texts_are_cut_off(void **state)
{
    static const char whole[] = "one, 2, three!";
    for (size_t size = 1; size < sizeof whole + 3; size++) {
        char text[sizeof whole + 4];
        memset(text, '#', sizeof text);
        text[0] = 0;
        text_join(text, size, ", ", "%s", "one");
        text_join(text, size, ", ", "%d", 2);
        text_join(text, size, ", ", "%s", "three");
        assert_ptr_equal(text_append(text, size, "!"), text);
        size_t length = size < sizeof whole ? size - 1 : sizeof whole - 1;
        assert_int_equal(strlen(text), length);
        assert_memory_equal(text, whole, length);
        assert_int_equal(text[size], '#');
    }
}

/* Known answers published with Random123 (kat_vectors, philox4x32 10). */
static void philox_known_answers(void **state)
{
    static const struct {
        struct philox4 counter;
        uint32_t key[2];
        uint32_t expect[4];
    } rows[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct philox4 got = philox(rows[i].counter, rows[i].key[0], rows[i].key[1]);
        assert_memory_equal(got.v, rows[i].expect, sizeof got.v);
    }
}

static void philox_fill_is_by_index(void **state)
{
    float whole[103], part[41];
    uint64_t key = philox_key(7, "layers.0.attn.q");
    philox_fill_normal(whole, key, 0, 103, 0.3f);
    philox_fill_normal(part, key, 31, 41, 0.3f);
    assert_memory_equal(part, whole + 31, sizeof part);
    for (uint64_t i = 0; i < 103; i++)
        assert_true(philox_normal(key, i) * 0.3f == whole[i]);
    assert_true(philox_key(7, "a") != philox_key(7, "b"));
    assert_true(philox_key(7, "a") != philox_key(8, "a"));
}

/* Box and Muller's formula by the mathematics library; words from another of philox.h's functions.
 */
static void philox_normals_are_box_and_mullers(void **state)
{
    enum { N = 1000003, FIRST = 5 };
    float *z = malloc(N * sizeof *z);
    philox_fill_normal(z, 42, FIRST, N, 1);
    for (int i = 0; i < N; i++) {
        uint64_t index = FIRST + (uint64_t)i;
        struct philox4 block = philox((struct philox4){{(uint32_t)(index / 4)}}, 42, 0);
        double a = block.v[index % 4 / 2 * 2], b = block.v[index % 4 / 2 * 2 + 1];
        double radius = sqrt(-2 * log((a + 1) / 4294967297.0)), angle = 2 * M_PI * b / 4294967296.0;
        double want = radius * (index % 2 ? sin(angle) : cos(angle));
        assert_true(fabs(z[i] - want) <= fabs(want) * 0x1p-24 + 1e-10);
        if (i % 1000 == 0) /* a batch of instructions and one number at a time */
            assert_true(philox_normal(42, index) == z[i]);
    }
    free(z);
}

static void philox_normals_are_normal(void **state)
{
    enum { N = 100000 };
    float *z = malloc(N * sizeof *z);
    double sum = 0, square = 0;
    philox_fill_normal(z, 42, 0, N, 1);
    for (int i = 0; i < N; i++) {
        sum += z[i];
        square += (double)z[i] * z[i];
    }
    free(z);
    assert_true(fabs(sum / N) < 0.015);
    assert_true(fabs(square / N - 1) < 0.02);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    assert_int_equal(f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(f32_to_bf16(1.00390625f), 0x3f80); /* half way: to even, down */
    assert_int_equal(f32_to_bf16(1.01171875f), 0x3f82); /* half way: to even, up */
    assert_int_equal(f32_to_bf16(-1.0040f), 0xbf81);    /* past half: away */
    assert_int_equal(f32_to_bf16(3.4e38f), 0x7f80);     /* overflows to infinity */
    assert_true(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    for (uint32_t bits = 0; bits < 0x10000; bits++) { /* every value survives */
        float f = bf16_to_f32((bf16)bits);
        if (!isnan(f))
            assert_int_equal(f32_to_bf16(f), bits);
    }
}

static void errors_are_one_line(void **state)
{
    struct error err = {0};
    assert_int_equal(error_set(&err, "a\nb %d", 3), -1);
    assert_string_equal(err.text, "a b 3");
    assert_int_equal(error_prefix(&err, "file %s", "x"), -1);
    assert_string_equal(err.text, "file x: a b 3");
    assert_int_equal(error_suffix(&err, "in step %d\nof 9", 2), -1);
    assert_string_equal(err.text, "file x: a b 3 [in step 2 of 9]");
    assert_int_equal(error_suffix(NULL, "dropped"), -1);
    assert_int_equal(err.code, EXIT_USAGE);
    assert_int_equal(error_set(NULL, "dropped"), -1);
}

static void memory_is_counted_to_the_byte(void **state)
{
    struct mem mem = {0};
    struct error err = {0};
    void *a = mem_alloc(&mem, POOL_PARAMS, 1001, &err);
    void *b = mem_alloc(&mem, POOL_PARAMS, 5 << 20, &err);
    assert_non_null(a);
    assert_int_equal((uintptr_t)b % (2 << 20), 0);
    assert_int_equal(mem.now_bytes[POOL_PARAMS], 1001 + (5 << 20));
    mem_free(&mem, POOL_PARAMS, 5 << 20, b);
    mem_free(&mem, POOL_PARAMS, 1001, a);
    assert_int_equal(mem.now_bytes[POOL_PARAMS], 0);
    assert_int_equal(mem.peak_bytes[POOL_PARAMS], 1001 + (5 << 20));
    assert_int_equal(mem.blocks, 0);
    assert_null(mem_alloc(&mem, POOL_HOST, SIZE_MAX / 2, &err));
    assert_non_null(strstr(err.text, "host"));
    assert_true(mem_resident_bytes() > 100000);
}

/* The kernel lists a process's groups before its memory. */
static void memory_is_known_to_members_of_many_groups(void **state)
{
    enum { GROUPS = 3000, DENIED = 2 };
    gid_t groups[GROUPS];
    int status;
    for (int i = 0; i < GROUPS; i++)
        groups[i] = (gid_t)(1000000 + i);
    pid_t child = fork();
    if (!child)
        _exit(setgroups(GROUPS, groups) ? DENIED : mem_resident_bytes() < 100000);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == DENIED) {
        print_message("skipped: this user may not choose its groups\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* From any address to any other, of any length, nothing before or behind is written. */
static void streamed_copies_are_copies(void **state)
{
    enum { MOST = 5000, SPACE = MOST + 64 };
    static const size_t lengths[] = {0, 1, 15, 16, 17, 511, 512, 513, 527, 528, 1023, 1024, 4999};
    static void (*const copies[])(void *, const void *, size_t) = {stream_copy, stream_copy_ahead};
    char *from = malloc(SPACE), *to = malloc(SPACE), *expect = malloc(SPACE);
    for (int i = 0; i < SPACE; i++)
        from[i] = (char)(i * 31 % 127 + 1);
    for (size_t k = 0; k < 2 * sizeof lengths / sizeof lengths[0]; k++)
        for (size_t shift = 0; shift < 17; shift++) {
            size_t n = lengths[k / 2], at = 16 - shift;
            memset(to, 0, SPACE);
            memset(expect, 0, SPACE);
            memcpy(expect + at, from + shift, n);
            copies[k % 2](to + at, from + shift, n);
            assert_memory_equal(to, expect, SPACE);
        }
    free(from);
    free(to);
    free(expect);
}

/* What a child sees of memory that its parent shares under this name: -1: it cannot open it. */
static int seen_by_child(const struct shared_memory_name *name, size_t bytes)
{
    int status;
    pid_t child = fork();
    if (!child) {
        const unsigned char *memory = shared_memory_open(name, bytes);
        _exit(memory ? memory[bytes - 1] : 255);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

static void other_processes_map_shared_memory(void **state)
{
    static const size_t sizes[] = {1, 5000, (2 << 20) - 1, 2 << 20, (5 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct shared_memory_name name, wrong;
        unsigned char *memory = shared_memory_make(sizes[i], &name);
        if (!memory && sizes[i] >= 2 << 20)
            continue; /* no huge pages of it here */
        assert_non_null(memory);
        assert_int_equal(memory[0] + memory[sizes[i] - 1], 0);
        assert_true(sizes[i] < 2 << 20 || (uintptr_t)memory % (2 << 20) == 0);
        memory[sizes[i] - 1] = (unsigned char)(7 + i);
        assert_int_equal(seen_by_child(&name, sizes[i]), 7 + i);
        assert_int_equal(seen_by_child(&name, sizes[i] + (4 << 20)), -1); /* more than there is */
        wrong = name;
        wrong.inode++;
        assert_int_equal(seen_by_child(&wrong, sizes[i]), -1); /* another file of that number */
        shared_memory_close(&name);
        assert_int_equal(seen_by_child(&name, sizes[i]), -1);
        assert_int_equal(memory[sizes[i] - 1], 7 + i);
        shared_memory_unmap(memory, sizes[i]);
    }
    shared_memory_unmap(NULL, 1);
}

static void json_comes_back(void **state)
{
    struct error err = {0};
    char path[] = "/tmp/trireme-json-XXXXXX";
    close(mkstemp(path));
    struct js *js = js_object(), *list = js_array();
    js_add_int(js, "n", (int64_t)1 << 40);
    js_add_real(js, "x", 0.1);
    js_add_real(js, "bad", NAN);
    js_add_string(list, NULL, "s");
    js_add(js, "list", list);
    assert_int_equal(js_write(js, JS_INDENTED, WHOLE_FILE_DURABLE, path, &err), 0);
    js_free(js);
    js = js_read(path, &err);
    assert_non_null(js);
    assert_int_equal(js_get_int(js, "n", 0), (int64_t)1 << 40);
    assert_true(js_get_real(js, "x", 0) == 0.1);
    assert_true(js_get_real(js, "bad", -7) == -7);
    char *text = js_text(js, JS_ONE_LINE, &err);
    assert_non_null(strstr(text, "\"list\": [\"s\"]"));
    free(text);
    js_free(js);
    assert_null(js_parse("{\"a\": ]", &err));
    assert_non_null(strstr(err.text, "line 1"));
    unlink(path);
}

/* Python writes int(1e30) with all its digits; the integers beside it stay integers. */
static void json_takes_integers_of_any_size(void **state)
{
    const char *text = "{\"most\": 1000000000000000019884624838656, \"ids\": [2, -7, {\"n\": 3}], "
                       "\"x\": 0.5, \"long\": 9223372036854775807}";
    char path[] = "/tmp/trireme-json-XXXXXX";
    struct error err = {0};
    int fd = mkstemp(path);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    for (int from_file = 0; from_file < 2; from_file++) {
        struct js *js = from_file ? js_read(path, &err) : js_parse(text, &err);
        assert_non_null(js);
        assert_true(js_get_real(js, "most", 0) == 1e30);
        assert_int_equal(js_get_int(js, "most", -1), -1);
        assert_int_equal(js_at_int(js_get(js, "ids"), 0, 0), 2);
        assert_int_equal(js_at_int(js_get(js, "ids"), 1, 0), -7);
        assert_int_equal(js_get_int(js_at(js_get(js, "ids"), 2), "n", 0), 3);
        assert_true(js_get_real(js, "x", 0) == 0.5);
        assert_int_equal(js_get_int(js, "long", -1), -1);
        js_free(js);
    }
    assert_null(js_parse("{\"x\": 1e999}", &err));
    unlink(path);
}

/* Windows programs put one before JSON. */
static void json_names_a_byte_order_mark(void **state)
{
    const char *text = "\xef\xbb\xbf{\"a\": 1}";
    char path[] = "/tmp/trireme-json-XXXXXX";
    struct error err = {0};
    int fd = mkstemp(path);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    assert_null(js_read(path, &err));
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "byte order mark"));
    unlink(path);
}

/* A folder is opened as a file is, and reading it fails; memory that is not there, likewise. */
static void json_cannot_be_read(void **state)
{
    struct error err = {0};
    assert_null(js_read("/proc/self", &err));
    assert_string_equal(err.text, "cannot read /proc/self: Is a directory");
    assert_null(js_read("/proc/self/mem", &err));
    assert_string_equal(err.text, "cannot read /proc/self/mem: Input/output error");
    assert_null(js_read("/proc/self/none", &err));
    assert_string_equal(err.text, "cannot open /proc/self/none: No such file or directory");
}

/* What is written to a device goes there, and the device stays; what fails leaves the file as it
 * was. */
static void files_are_whole(void **state)
{
    char path[] = "/tmp/trireme-whole-XXXXXX", text[16] = "";
    struct whole_file file;
    struct error err = {0};
    struct stat at;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "old", 3), 3);
    close(fd);
    assert_int_equal(whole_file_begin(&file, path, &err), 0);
    fputs("new", file.out);
    fflush(file.out);
    FILE *in = fopen(path, "r");
    assert_string_equal(fgets(text, sizeof text, in), "old");
    fclose(in);
    assert_int_equal(whole_file_end(&file, WHOLE_FILE_DURABLE, &err), 0);
    in = fopen(path, "r");
    assert_string_equal(fgets(text, sizeof text, in), "new");
    fclose(in);
    unlink(path);
    assert_int_equal(whole_file_begin(&file, "/dev/full", &err), 0);
    fputs("new", file.out);
    fflush(file.out);
    assert_int_equal(whole_file_end(&file, WHOLE_FILE_DURABLE, &err), -1);
    assert_non_null(strstr(err.text, "cannot write /dev/full: No space left"));
    assert_true(!stat("/dev/full", &at) && S_ISCHR(at.st_mode));
    assert_int_equal(whole_file_begin(&file, "/tmp/none/such", &err), -1);
}

/* A link stays one: what it leads to is written, also where that is not there yet. */
static void links_stay(void **state)
{
    char folder[] = "/tmp/trireme-links-XXXXXX", path[64], real[64], text[16] = "";
    struct whole_file file;
    struct error err = {0};
    struct stat at;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/link", folder);
    snprintf(real, sizeof real, "%s/real", folder);
    assert_int_equal(symlink("real", path), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(whole_file_begin(&file, path, &err), 0);
        fprintf(file.out, "new %d", i);
        assert_int_equal(whole_file_end(&file, WHOLE_FILE_REPORT, &err), 0);
        assert_true(!lstat(path, &at) && S_ISLNK(at.st_mode));
        FILE *in = fopen(real, "r");
        assert_string_equal(fgets(text, sizeof text, in), i ? "new 1" : "new 0");
        fclose(in);
    }
    unlink(real);
    assert_int_equal(symlink("link", real), 0);
    assert_int_equal(whole_file_begin(&file, path, &err), -1);
    assert_non_null(strstr(err.text, "lead round in a circle"));
    unlink(real);
    unlink(path);
    rmdir(folder);
}

/* Whatever the process is called. */
static void start_of_process_is_known(void **state)
{
    char name[16];
    assert_int_equal(prctl(PR_GET_NAME, name), 0);
    assert_int_equal(prctl(PR_SET_NAME, "a\nb) 1 (2"), 0);
    int64_t ns = clock_since_exec_ns();
    assert_int_equal(prctl(PR_SET_NAME, name), 0);
    assert_true(ns > 0 && ns < INT64_C(600000000000));
}

static void medians(void **state)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, five[] = {5, 3, 1, 2, 4}, one[] = {7};
    assert_true(median_lower(odd, 3) == 2 && median_higher(odd, 3) == 2);
    assert_true(median_lower(even, 4) == 2 && median_higher(even, 4) == 3);
    assert_true(median_mean(even, 4) == 2.5 && median_mean(odd, 3) == 2);
    assert_true(median_quartile(five, 5) == 2 && median_quartile(one, 1) == 7);
    assert_true(median_lower(one, 0) == 0 && median_mean(one, 0) == 0);
}

static void ends_of_texts(void **state)
{
    assert_true(text_ends_with("a.json", ".json") && text_ends_with(".json", ".json"));
    assert_true(text_ends_with("a", "") && text_ends_with("", ""));
    assert_false(text_ends_with("json", ".json") || text_ends_with("a.json ", ".json"));
    assert_false(text_ends_with("", "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_up),
        cmocka_unit_test(ends_of_texts),
        cmocka_unit_test(medians),
        cmocka_unit_test(files_are_whole),
        cmocka_unit_test(links_stay),
        cmocka_unit_test(texts_are_cut_off),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(philox_fill_is_by_index),
        cmocka_unit_test(philox_normals_are_box_and_mullers),
        cmocka_unit_test(philox_normals_are_normal),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(errors_are_one_line),
        cmocka_unit_test(memory_is_counted_to_the_byte),
        cmocka_unit_test(memory_is_known_to_members_of_many_groups),
        cmocka_unit_test(streamed_copies_are_copies),
        cmocka_unit_test(other_processes_map_shared_memory),
        cmocka_unit_test(json_comes_back),
        cmocka_unit_test(json_takes_integers_of_any_size),
        cmocka_unit_test(json_names_a_byte_order_mark),
        cmocka_unit_test(json_cannot_be_read),
        cmocka_unit_test(start_of_process_is_known),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
