/* test_attention_forms.c - forms of attention that are another one's: documents and sequences of
 * their own, one document and none, keys apart and packed. */
#include "tests/unit/attention_check.h"

/* Rows [from, from + rows) of one sequence as a problem of their own. */
static void cut_out(struct problem *part, const struct problem *whole, int64_t from, int64_t rows)
{
    struct attention shape = whole->a;
    size_t size = dtype_bytes(shape.dt);
    int64_t out_row = shape.heads * shape.head_dim;
    shape.seq = rows;
    shape.forms = 0;
    shape.documents = NULL;
    problem_make(part, &shape, shape.dt);
    memcpy(part->qkv, (char *)whole->qkv + from * whole->row * size, rows * part->row * size);
    memcpy(part->dout, (char *)whole->dout + from * out_row * size, rows * out_row * size);
}

/* Elements of a part against those of the whole: the same bits, or within a rounding. */
static void compare_part(const struct problem *p, const char *what, const void *whole, int64_t from,
                         const void *part, int64_t elems, double tolerance)
{
    double *want = malloc((size_t)elems * sizeof *want);
    size_t size = dtype_bytes(p->a.dt);
    const char *at = (const char *)whole + from * size;
    for (int64_t i = 0; i < elems; i++)
        want[i] = value(p->a.dt, part, i);
    if (tolerance > 0)
        assert_close(what, p, p->a.dt, at, want, elems, tolerance);
    else
        assert_memory_equal(at, part, elems * size);
    free(want);
}

/* Queries and keys of a block of the kernel. */
static int64_t block_of(const char *level)
{
    return strcmp(level, "amx") ? 64 : 128;
}

/* Two documents packed in a sequence give what they give apart, as outputs and as gradients: the
 * same bits where the second begins with a block of the kernel, else within roundings. */
static void documents_are_apart(void **state)
{
    static const int64_t cuts[] = {1, 40, 64, 100, 128, 130};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        for (int type = 0; type < TYPES; type++)
            for (int level = 0; device_cpu_level(level); level++) {
                struct attention shape = shapes[6];
                struct problem whole, part[2];
                int64_t from[2] = {0, cuts[i]}, rows[2] = {cuts[i], shape.seq - cuts[i]};
                shape.batch = 1;
                shape.forms = ATTENTION_DOCUMENTS;
                problem_make(&whole, &shape, types[type].dt);
                for (int64_t r = 0; r < shape.seq; r++)
                    whole.documents[r] = (int32_t)(r < cuts[i] ? 0 : cuts[i]);
                run(&whole, device_cpu_level(level), 1);
                for (int k = 0; k < 2; k++) {
                    int is_apart = from[k] % block_of(device_cpu_level(level)) == 0;
                    double tolerance = is_apart ? 0 : types[type].tolerance;
                    int64_t row = whole.row, out = shape.heads * shape.head_dim;
                    cut_out(&part[k], &whole, from[k], rows[k]);
                    run(&part[k], device_cpu_level(level), 1);
                    compare_part(&whole, "o", whole.o, from[k] * out, part[k].o, rows[k] * out,
                                 tolerance);
                    compare_part(&whole, "dqkv", whole.dqkv, from[k] * row, part[k].dqkv,
                                 rows[k] * row, tolerance);
                    problem_free(&part[k]);
                }
                problem_free(&whole);
            }
}

/* One document a sequence is none; and keys of a tensor of their own are those of a packed one. */
static void forms_that_change_nothing(void **state)
{
    for (int i = 0; i < PLAIN; i++)
        for (int type = 0; type < TYPES; type++)
            for (int level = 0; device_cpu_level(level); level++) {
                enum dtype dt = types[type].dt;
                size_t size = dtype_bytes(dt);
                struct problem plain, one, apart;
                struct attention shape = shapes[i];
                problem_make(&plain, &shape, dt);
                shape.forms = ATTENTION_DOCUMENTS;
                problem_make(&one, &shape, dt);
                memset(one.documents, 0, (size_t)(shape.batch * shape.seq) * sizeof(int32_t));
                shape.forms = ATTENTION_SEPARATE;
                shape.kv_seq = shape.seq;
                problem_make(&apart, &shape, dt);
                for (int64_t r = 0; r < shape.batch * shape.seq; r++) {
                    const char *from = (const char *)plain.qkv + r * plain.row * size;
                    memcpy((char *)apart.qkv + r * apart.row * size, from, apart.row * size);
                    memcpy((char *)apart.kv + r * apart.kv_row * size, from + apart.row * size,
                           apart.kv_row * size);
                }
                run(&plain, device_cpu_level(level), 1);
                run(&one, device_cpu_level(level), 1);
                run(&apart, device_cpu_level(level), 1);
                assert_memory_equal(plain.o, one.o, plain.out_elems * size);
                assert_memory_equal(plain.dqkv, one.dqkv, plain.qkv_elems * size);
                assert_memory_equal(plain.o, apart.o, plain.out_elems * size);
                for (int64_t r = 0; r < shape.batch * shape.seq; r++) {
                    const char *from = (const char *)plain.dqkv + r * plain.row * size;
                    assert_memory_equal((char *)apart.dqkv + r * apart.row * size, from,
                                        apart.row * size);
                    assert_memory_equal((char *)apart.dkv + r * apart.kv_row * size,
                                        from + apart.row * size, apart.kv_row * size);
                }
                problem_free(&plain);
                problem_free(&one);
                problem_free(&apart);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_apart),
        cmocka_unit_test(forms_that_change_nothing),
    };
    return cmocka_run_group_tests_name("attention forms", tests, NULL, NULL);
}
