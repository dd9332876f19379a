/* cuda_attention_check.h - comparing attention on the GPU with the CPU's: problems in host memory,
 * the results of both devices, and how close they must be. */
#ifndef TRIREME_TESTS_UNIT_CUDA_ATTENTION_CHECK_H
#define TRIREME_TESTS_UNIT_CUDA_ATTENTION_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "device/cuda/state.h"
#include "graph/graph.h"

/* Both devices, open for the whole program, and a source of random numbers. */
struct rig {
    struct device *cpu, *gpu;
    struct mem mem;
    uint64_t seed, drawn; /* drawn: random numbers so far */
};

/* A problem in host memory, with the CPU's results. */
struct problem {
    struct attention a;
    size_t qkv_bytes, out_bytes, lse_bytes;
    size_t kv_bytes; /* 0: keys and values are packed in qkv */
    void *qkv, *dout, *o, *dqkv, *kv, *dkv;
    float *lse;
    int32_t *documents; /* NULL: sequences are not packed of documents */
    size_t documents_bytes;
    uint32_t *samples; /* number of each sequence, where attention weights are dropped */
    size_t samples_bytes;
};

/* The GPU's results, in host memory. */
struct result {
    void *o, *dqkv, *dkv;
    float *lse;
};

enum path { OWN_KERNELS, OP };

/* How far results may be from the CPU's: all of a tensor by its norm, and each element by the
 * root mean squares of the tensor and of its row, as gradients of early keys are larger.  fp32:
 * sums of some hundred rounded products in another order.  bf16: results are rounded to 2^-9 of
 * themselves on either side, weights and their gradients before they are summed; of a hundred
 * thousand such sums the worst are five deviations off.  fp16 rounds to 2^-12, an eighth. */
struct tolerance {
    double norm, element;
};
extern const struct tolerance tolerances[];

/* The types, and shapes of plain attention. */
enum { TYPES = 3, SHAPES = 18 };
extern const enum dtype types[TYPES];
extern const struct attention shapes[SHAPES];

/* Read, and write, an element. */
double value(enum dtype dt, const void *p, int64_t i);
void put(enum dtype dt, void *p, int64_t i, float x);
/* Make a problem of random numbers, with packed documents where the form has them. */
struct problem problem_make(struct rig *rig, const struct attention *shape, enum dtype dt);
/* Compute both passes on the CPU. */
void problem_solve(struct rig *rig, struct problem *p);
void problem_free(struct problem *p);
/* Compute on the GPU: forward; backward from the CPU's results of forward; or both passes. */
void forward(struct rig *rig, const struct problem *p, enum path path, struct result *r);
void backward(struct rig *rig, const struct problem *p, enum path path, struct result *r);
struct result solve(struct rig *rig, const struct problem *p, enum path path);
void result_free(struct result *r);
/* Check that columns [begin, end) of rows of `row` elements are within `most`. */
void assert_close(const char *what, const struct problem *p, enum dtype dt, const void *got,
                  const void *want, int64_t row, int64_t begin, int64_t end, struct tolerance most);
/* Compare all results of a random problem of this shape. */
void check(struct rig *rig, const struct attention *shape, enum dtype dt, enum path path);

/* Set up, and tear down, a group of tests, whose state is the rig; end the program with 77 where
 * there is no GPU.  TRIREME_TEST_SEED sets the seed of the random numbers. */
int cuda_attention_open(void **state);
int cuda_attention_close(void **state);

#endif
