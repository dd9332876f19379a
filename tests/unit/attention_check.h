/* attention_check.h - for tests of attention: problems in all types and forms, computed by the op
 * and in double precision. */
#ifndef TRIREME_TESTS_UNIT_ATTENTION_CHECK_H
#define TRIREME_TESTS_UNIT_ATTENTION_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "device/ops.h"

/* A problem, with the results of the op and of double precision. */
struct problem {
    struct attention a;
    int64_t row, qkv_elems; /* elements of a row of qkv, and of all of it */
    int64_t out_elems, lse_elems;
    int64_t kv_row, kv_elems;    /* of the tensor that has keys and values */
    void *qkv, *dout, *o, *dqkv; /* of a.dt; outputs have guards */
    void *kv, *dkv;              /* where keys and values are separate (is_separate()) */
    float *lse;
    int32_t *documents;
    uint32_t *samples;  /* number of each sequence, where attention weights are dropped */
    double *x, *z, *dy; /* the inputs as they were rounded: qkv; keys and values, x where they are
                           packed; dout */
    double *ref_o, *ref_lse, *ref_dx, *ref_dz; /* results in double precision */
};

/* The types, with the largest error of a result, as a share of the largest element. */
enum { TYPES = 3 };
struct attention_type {
    enum dtype dt;
    double tolerance;
};
extern const struct attention_type types[TYPES];

/* The problems; the first PLAIN of them have the plain form: keys and values packed, no documents,
 * no window, nothing dropped. */
enum { PLAIN = 10, SHAPES = 52 };
extern const struct attention shapes[SHAPES];

/* Read, and write, an element. */
double value(enum dtype dt, const void *p, int64_t i);
void put(enum dtype dt, void *p, int64_t i, float x);

/* Are keys and values in a tensor of their own? */
int is_separate(const struct attention *a);

/* Make a problem of random numbers, and of documents where the form has them. */
void problem_make(struct problem *p, const struct attention *shape, enum dtype dt);
void problem_free(struct problem *p);

double dot(const double *a, const double *b, int64_t n);

/* Return the offset of a head of position t: of queries, keys or values (slot) in x; of keys, with
 * the values behind them, in z; of the output. */
int64_t at_head(const struct problem *p, int64_t b, int64_t t, int64_t slot);
int64_t at_key(const struct problem *p, int64_t b, int64_t u, int64_t kv);
int64_t at_out(const struct problem *p, int64_t b, int64_t t, int64_t h);

/* Compute the results of x, z and dy in double precision. */
void reference(struct problem *p);

/* Run the op forward and backward on a CPU level, with poisoned outputs and scratch. */
void run(struct problem *p, const char *level, int threads);

/* Check that |got - want| <= tolerance * the largest |want| for all elements. */
void assert_close(const char *what, const struct problem *p, enum dtype dt, const void *got,
                  const double *want, int64_t elems, double tolerance);

/* Check p->lse: lse times scale is the log-sum-exp of scores, whose error is absolute. */
void assert_lse(const struct problem *p);

#endif
