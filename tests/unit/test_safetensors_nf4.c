/* test_safetensors_nf4.c - weights that bitsandbytes keeps in 4 bits: read as it makes numbers of
 * them, from any element on, and nothing of a file is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"
#include "io/safetensors.h"

/* A weight of 5 x 70 elements, whose last block is short. */
enum { ROWS = 5, COLUMNS = 70, ELEMS = ROWS * COLUMNS, BLOCK = 64, BLOCKS = 6, NESTED_BLOCK = 4 };

static char dir[256];

/* A file under construction. */
struct made {
    char header[4096];
    unsigned char data[8192];
    int64_t bytes;
};

static void add(struct made *m, const char *name, const char *dtype, const char *shape,
                const void *bytes, size_t count)
{
    text_append(m->header, sizeof m->header,
                "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]}",
                m->bytes ? "," : "{", name, dtype, shape, (long long)m->bytes,
                (long long)(m->bytes + (int64_t)count));
    memcpy(m->data + m->bytes, bytes, count);
    m->bytes += (int64_t)count;
}

static void write_made(struct made *m)
{
    char *path = array_format("%s/model.safetensors", dir);
    FILE *file = fopen(path, "wb");
    text_append(m->header, sizeof m->header, "}");
    uint64_t length = strlen(m->header);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 0xff), file);
    fputs(m->header, file);
    fwrite(m->data, 1, (size_t)m->bytes, file);
    fclose(file);
    free(path);
}

/* What a weight is made of. */
struct weight {
    int nested, as_bf16; /* scales are quantized; codes are said to be bf16 */
    const char *state;   /* its JSON, or NULL */
    const char *kind;    /* "nf4" */
    const char *without; /* a tensor that is left out, or NULL */
    unsigned char codes[ELEMS / 2], scale_codes[BLOCKS];
    float map[16], scales[BLOCKS], nested_map[256], nested_scales[2];
};

static const float nested_offset = 0.25f;

static struct weight weight_of(int nested, int as_bf16)
{
    struct weight w = {.nested = nested, .as_bf16 = as_bf16, .kind = "nf4"};
    for (int i = 0; i < ELEMS / 2; i++)
        w.codes[i] = (unsigned char)(i * 37 + 11);
    for (int i = 0; i < 16; i++)
        w.map[i] = (float)(i * i - 70) / 64;
    for (int i = 0; i < BLOCKS; i++) {
        w.scales[i] = (float)(i + 1) / 16;
        w.scale_codes[i] = (unsigned char)(i * 50 + 3);
    }
    for (int i = 0; i < 256; i++)
        w.nested_map[i] = (float)(i - 100) / 128;
    w.nested_scales[0] = 0.5f;
    w.nested_scales[1] = 3;
    return w;
}

static void put(struct made *m, const struct weight *w, const char *end, const char *dtype,
                const char *shape, const void *bytes, size_t count)
{
    char name[96];
    snprintf(name, sizeof name, "b.weight%s", end);
    if (!w->without || strcmp(w->without, end) != 0)
        add(m, name, dtype, shape, bytes, count);
}

static void write_weight(const struct weight *w)
{
    static struct made m;
    static const float other[2] = {1, 2};
    char state[256], name[64];
    m = (struct made){0};
    snprintf(state, sizeof state, "{\"blocksize\": %d, \"shape\": [%d, %d]%s}", BLOCK, ROWS,
             COLUMNS, w->nested ? ", \"nested_blocksize\": 4, \"nested_offset\": 0.25" : "");
    if (w->state)
        snprintf(state, sizeof state, "%s", w->state);
    add(&m, "a", "F32", "2", other, sizeof other);
    if (w->as_bf16)
        put(&m, w, "", "BF16", "87", w->codes, 174);
    else
        put(&m, w, "", "U8", "175,1", w->codes, sizeof w->codes);
    if (w->nested) {
        put(&m, w, ".absmax", "U8", "6", w->scale_codes, sizeof w->scale_codes);
        put(&m, w, ".nested_absmax", "F32", "2", w->nested_scales, sizeof w->nested_scales);
        put(&m, w, ".nested_quant_map", "F32", "256", w->nested_map, sizeof w->nested_map);
    } else {
        put(&m, w, ".absmax", "F32", "6", w->scales, sizeof w->scales);
    }
    put(&m, w, ".quant_map", "F32", "16", w->map, sizeof w->map);
    snprintf(name, sizeof name, ".quant_state.bitsandbytes__%s", w->kind);
    char length[16];
    snprintf(length, sizeof length, "%zu", strlen(state));
    put(&m, w, name, "U8", length, state, strlen(state));
    add(&m, "c", "F32", "2", other, sizeof other);
    write_made(&m);
}

static float wanted(const struct weight *w, int64_t i)
{
    unsigned char both = w->codes[i / 2];
    int64_t block = i / BLOCK;
    float scale =
        w->nested ? w->nested_map[w->scale_codes[block]] * w->nested_scales[block / NESTED_BLOCK] +
                        nested_offset
                  : w->scales[block];
    return w->map[i % 2 ? both & 15 : both >> 4] * scale;
}

static struct safetensors *open_made(void)
{
    struct safetensors *st;
    struct error err = {0};
    if (safetensors_open(&st, dir, &err))
        fail_msg("%s", err.text);
    return st;
}

static void check_weight(const struct weight *w)
{
    struct error err = {0};
    write_weight(w);
    struct safetensors *st = open_made();
    assert_int_equal(st->tensors, 3);
    const struct safetensors_tensor *t = safetensors_find(st, "b.weight");
    assert_non_null(t);
    assert_string_equal(t->format, "NF4");
    assert_int_equal(t->dtype, DTYPE_F32);
    assert_int_equal(t->dims, 2);
    assert_int_equal(t->dim[0], ROWS);
    assert_int_equal(t->dim[1], COLUMNS);
    for (int64_t start = 0; start < ELEMS; start += 13)
        for (int64_t count = 0; start + count <= ELEMS; count = 2 * count + 1) {
            float values[ELEMS], raw[ELEMS];
            assert_int_equal(safetensors_read(st, t, start, count, values, &err), 0);
            assert_int_equal(safetensors_read_raw(st, t, start, count, raw, &err), 0);
            for (int64_t i = 0; i < count; i++) {
                assert_true(values[i] == wanted(w, start + i));
                assert_true(raw[i] == values[i]);
            }
        }
    float value;
    assert_int_equal(safetensors_read(st, t, ELEMS, 1, &value, &err), -1);
    assert_int_equal(safetensors_read(st, safetensors_find(st, "c"), 1, 1, &value, &err), 0);
    assert_true(value == 2);
    safetensors_close(st);
}

static void test_numbers(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct weight w = weight_of(i, 0);
        check_weight(&w);
    }
}

/* FSDP of other programs takes bytes only as bf16 (bnb_4bit_quant_storage). */
static void test_codes_by_another_name(void **state)
{
    struct weight w = weight_of(1, 1);
    struct error err = {0};
    float value;
    w.state = "{\"blocksize\": 64, \"shape\": [4, 87], \"nested_blocksize\": 4, \"nested_offset\": "
              "0.25}";
    write_weight(&w);
    struct safetensors *st = open_made();
    const struct safetensors_tensor *t = safetensors_find(st, "b.weight");
    assert_int_equal(t->dim[1], 87);
    for (int64_t i = 0; i < 4 * 87; i++) {
        assert_int_equal(safetensors_read(st, t, i, 1, &value, &err), 0);
        assert_true(value == wanted(&w, i));
    }
    safetensors_close(st);
}

/* Of the files' hash scales are a part. */
static void test_hash(void **state)
{
    uint64_t hash[3];
    struct error err = {0};
    for (int i = 0; i < 3; i++) {
        struct weight w = weight_of(0, 0);
        w.scales[3] = i == 1 ? 7 : w.scales[3];
        w.codes[100] ^= i == 2;
        write_weight(&w);
        struct safetensors *st = open_made();
        assert_int_equal(safetensors_hash(st, &hash[i], &err), 0);
        safetensors_close(st);
    }
    assert_true(hash[0] != hash[1] && hash[0] != hash[2]);
}

static void assert_refused(const struct weight *w, const char *why)
{
    struct safetensors *st;
    struct error err = {0};
    write_weight(w);
    assert_int_equal(safetensors_open(&st, dir, &err), -1);
    assert_null(st);
    if (!strstr(err.text, why) || !strstr(err.text, "model.safetensors"))
        fail_msg("wanted \"%s\", got \"%s\"", why, err.text);
}

static void test_refused(void **state)
{
    static const char *const without[][2] = {
        {".absmax", "\"b.weight.absmax\" is missing: the 24 bytes of F32 that its 4 bits need"},
        {".quant_map", "\"b.weight.quant_map\" is missing"},
    };
    static const char *const states[][2] = {
        {"{\"blocksize\": 64, \"shape\": [5, 70]", "b.weight.quant_state"},
        {"{\"shape\": [5, 70]}", "blocksize of its 4 bits is none"},
        {"{\"blocksize\": -64, \"shape\": [5, 70]}", "blocksize of its 4 bits is none"},
        {"{\"blocksize\": 64}", "bytes are not those of its 4 bits"},
        {"{\"blocksize\": 64, \"shape\": [5, 72]}", "bytes are not those of its 4 bits"},
        {"{\"blocksize\": 64, \"shape\": [5, 7, 2, 5, 1]}", "bytes are not those of its 4 bits"},
        {"{\"blocksize\": 64, \"shape\": [-5, -70]}", "impossible shape"},
        {"{\"blocksize\": 64, \"shape\": [4611686018427387904, 4611686018427387904]}",
         "impossible shape"},
        {"{\"blocksize\": 32, \"shape\": [5, 70]}", "\"b.weight.absmax\" is not the 44 bytes"},
        {"{\"blocksize\": 64, \"shape\": [5, 70], \"nested_blocksize\": 4}",
         "\"b.weight.absmax\" is not the 6 bytes of U8"},
        {"[]", "blocksize of its 4 bits is none"},
    };
    for (int i = 0; i < 2; i++) {
        struct weight w = weight_of(0, 0);
        w.without = without[i][0];
        assert_refused(&w, without[i][1]);
    }
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        struct weight w = weight_of(0, 0);
        w.state = states[i][0];
        assert_refused(&w, states[i][1]);
    }
    struct weight nested = weight_of(1, 0), fp4 = weight_of(0, 0);
    nested.without = ".nested_absmax";
    assert_refused(&nested, "\"b.weight.nested_absmax\" is missing: the 8 bytes of F32");
    nested.without = ".nested_quant_map";
    assert_refused(&nested, "\"b.weight.nested_quant_map\" is missing");
    nested.without = NULL;
    nested.state = "{\"blocksize\": 64, \"shape\": [5, 70], \"nested_blocksize\": 0}";
    assert_refused(&nested, "nested_blocksize of its 4 bits is none");
    fp4.kind = "fp4";
    assert_refused(&fp4, "its 4 bits are not nf4");
}

/* A state alone is a tensor as any other. */
static void test_state_without_weight(void **state)
{
    struct weight w = weight_of(0, 0);
    w.without = "";
    write_weight(&w);
    struct safetensors *st = open_made();
    assert_int_equal(st->tensors, 5);
    safetensors_close(st);
}

/* What transformers has saved, against numbers that bitsandbytes has made of it. */
static void test_golden(void **state)
{
    struct safetensors *st, *numbers;
    struct error err = {0};
    if (safetensors_open(&st, GOLDEN_DIR "/llama_nf4.hf", &err) ||
        safetensors_open(&numbers, GOLDEN_DIR "/llama_nf4.hf/numbers.safetensors", &err))
        fail_msg("%s", err.text);
    assert_int_equal(st->tensors, 2 * 9 + 3);
    assert_int_equal(numbers->tensors, 2);
    for (int i = 0; i < numbers->tensors; i++) {
        const struct safetensors_tensor *want = &numbers->tensor[i];
        const struct safetensors_tensor *t = safetensors_find(st, want->name);
        assert_non_null(t);
        assert_int_equal(t->elems, want->elems);
        float *a = malloc((size_t)t->elems * sizeof *a), *b = malloc((size_t)t->elems * sizeof *b);
        assert_int_equal(safetensors_read(st, t, 0, t->elems, a, &err), 0);
        assert_int_equal(safetensors_read(numbers, want, 0, t->elems, b, &err), 0);
        assert_memory_equal(a, b, (size_t)t->elems * sizeof *a);
        free(a);
        free(b);
    }
    safetensors_close(st);
    safetensors_close(numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_codes_by_another_name),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_state_without_weight),
        cmocka_unit_test(test_golden),
    };
    struct error err = {0};
    snprintf(dir, sizeof dir, "%s/trireme-safetensors-nf4.%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    if (disk_make_folders(dir, &err))
        return 1;
    int rc = cmocka_run_group_tests_name("safetensors nf4", tests, NULL, NULL);
    disk_remove(dir, &err);
    return rc;
}
