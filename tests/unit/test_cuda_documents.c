/* test_cuda_documents.c - attention over packed documents on the GPU: the CPU's numbers, and no bit
 * of one document in another. */
#include "tests/unit/cuda_attention_check.h"

/* Packed documents, in whole sequences and in parts of them, with every tile of the kernels. */
static void documents_agree_with_the_cpu(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++) {
            struct attention a = shapes[i];
            a.forms |= ATTENTION_DOCUMENTS;
            check(*state, &a, types[j], OWN_KERNELS);
            if (i % 5 == 0)
                check(*state, &a, types[j], OP);
        }
    for (int i = 5; i < 10; i++)
        for (int rank = 0; rank < 2; rank++) {
            struct attention a = shapes[i];
            a.seq = 66;
            a.kv_seq = 132;
            a.forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_DOCUMENTS;
            a.part = graph_sequence_part(a.seq, (struct graph_group){.size = 2, .rank = rank});
            check(*state, &a, types[i % TYPES], OWN_KERNELS);
        }
}

/* Sliding windows, in whole sequences and in parts of them, alone and over documents. */
static void windows_agree_with_the_cpu(void **state)
{
    static const int64_t windows[] = {3, 16, 37, 64, 100, 300};
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++) {
            struct attention a = shapes[i];
            a.forms |= ATTENTION_WINDOW | ((i + j) % 3 ? 0 : ATTENTION_DOCUMENTS);
            a.window = windows[(i + j) % 6];
            check(*state, &a, types[j], OWN_KERNELS);
            if (i % 5 == 0)
                check(*state, &a, types[j], OP);
        }
    for (int i = 5; i < 10; i++)
        for (int rank = 0; rank < 2; rank++) {
            struct attention a = shapes[i];
            a.seq = 66;
            a.kv_seq = 132;
            a.forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_WINDOW |
                      (i % 2 ? ATTENTION_DOCUMENTS : 0);
            a.window = windows[i % 4 + 1];
            a.part = graph_sequence_part(a.seq, (struct graph_group){.size = 2, .rank = rank});
            check(*state, &a, types[i % TYPES], OWN_KERNELS);
        }
}

/* Weights dropped, in whole sequences and in parts of them, alone, over documents and in windows.
 */
static void dropout_agrees_with_the_cpu(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int j = 0; j < TYPES; j++) {
            struct attention a = shapes[i];
            a.forms |= ATTENTION_DROPOUT | ((i + j) % 4 == 1 ? ATTENTION_DOCUMENTS : 0) |
                       ((i + j) % 4 == 2 ? ATTENTION_WINDOW : 0);
            a.window = 37;
            a.first_head = i % 3;
            check(*state, &a, types[j], OWN_KERNELS);
            if (i % 5 == 0)
                check(*state, &a, types[j], OP);
        }
    for (int i = 5; i < 10; i++)
        for (int rank = 0; rank < 2; rank++) {
            struct attention a = shapes[i];
            a.seq = 66;
            a.kv_seq = 132;
            a.forms = ATTENTION_SEPARATE | ATTENTION_PART | ATTENTION_DROPOUT |
                      (i % 2 ? ATTENTION_DOCUMENTS : 0);
            a.part = graph_sequence_part(a.seq, (struct graph_group){.size = 2, .rank = rank});
            check(*state, &a, types[i % TYPES], OWN_KERNELS);
        }
}

/* What a query gives and gets does not depend, by a single bit, on documents that it is not of. */
static void documents_do_not_see_each_other(void **state)
{
    enum { CUT = 71 };
    for (int j = 0; j < TYPES; j++) {
        struct attention a = shapes[9]; /* 200 rows */
        a.forms |= ATTENTION_DOCUMENTS;
        struct problem p = problem_make(*state, &a, types[j]);
        size_t row = p.qkv_bytes / (size_t)(a.batch * a.seq);
        size_t out = p.out_bytes / (size_t)(a.batch * a.seq);
        for (int64_t r = 0; r < a.batch * a.seq; r++)
            p.documents[r] = r % a.seq < CUT ? 0 : CUT;
        struct result one = solve(*state, &p, OWN_KERNELS);
        for (int64_t b = 0; b < a.batch; b++)
            for (size_t i = 0; i < CUT * row / dtype_bytes(types[j]); i++)
                put(types[j], (char *)p.qkv + (size_t)(b * a.seq) * row, (int64_t)i, 900);
        struct result two = solve(*state, &p, OWN_KERNELS);
        for (int64_t b = 0; b < a.batch; b++) {
            size_t first = (size_t)(b * a.seq + CUT), rows = (size_t)(a.seq - CUT);
            assert_memory_equal((char *)one.o + first * out, (char *)two.o + first * out,
                                rows * out);
            assert_memory_equal((char *)one.dqkv + first * row, (char *)two.dqkv + first * row,
                                rows * row);
            assert_memory_not_equal((char *)one.o + (first - CUT) * out,
                                    (char *)two.o + (first - CUT) * out, CUT * out);
        }
        result_free(&one);
        result_free(&two);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_agree_with_the_cpu),
        cmocka_unit_test(windows_agree_with_the_cpu),
        cmocka_unit_test(dropout_agrees_with_the_cpu),
        cmocka_unit_test(documents_do_not_see_each_other),
    };
    return cmocka_run_group_tests_name("CUDA attention over documents", tests, cuda_attention_open,
                                       cuda_attention_close);
}
