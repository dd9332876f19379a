/* attention_check.h - what the tests of attention share: problems in all types and forms, what the
 * op makes of them, and what double precision makes of them. */
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

/* A problem, what the op made of it, and what double precision makes of it. */
struct problem {
    struct attention a;
    int64_t row, qkv_elems, out_elems, lse_elems;
    int64_t kv_row, kv_elems;    /* of the tensor that has keys and values */
    void *qkv, *dout, *o, *dqkv; /* of a.dt; outputs are guarded */
    void *kv, *dkv;              /* where separate */
    float *lse;
    int32_t *documents;
    uint32_t *samples;  /* of each sequence, where weights are dropped */
    double *x, *z, *dy; /* the inputs as they were rounded; z: of keys and values, x where packed */
    double *ref_o, *ref_lse, *ref_dx, *ref_dz;
};

/* The types, with what they may be off by, as a part of the largest element. */
enum { TYPES = 3 };
struct attention_type {
    enum dtype dt;
    double tolerance;
};
extern const struct attention_type types[TYPES];

/* Problems; the first PLAIN of them are of the plain form. */
enum { PLAIN = 10, SHAPES = 52 };
extern const struct attention shapes[SHAPES];

/* An element, and to set it. */
double value(enum dtype dt, const void *p, int64_t i);
void put(enum dtype dt, void *p, int64_t i, float x);

int is_separate(const struct attention *a);

/* A problem of random numbers, and of documents where the form has them. */
void problem_make(struct problem *p, const struct attention *shape, enum dtype dt);
void problem_free(struct problem *p);

double dot(const double *a, const double *b, int64_t n);

/* Offsets of a query, key or value head of one position in x, of keys (values behind them) in z,
 * and of its output. */
int64_t at_head(const struct problem *p, int64_t b, int64_t t, int64_t slot);
int64_t at_key(const struct problem *p, int64_t b, int64_t u, int64_t kv);
int64_t at_out(const struct problem *p, int64_t b, int64_t t, int64_t h);

/* What double precision makes of x, z and dy. */
void reference(struct problem *p);

/* Run both passes with poisoned outputs and scratch. */
void run(struct problem *p, const char *level, int threads);

/* |got - want| <= tolerance * the largest |want|, for all elements. */
void assert_close(const char *what, const struct problem *p, enum dtype dt, const void *got,
                  const double *want, int64_t elems, double tolerance);

/* lse times scale is the log-sum-exp of scores, which counts in units of 1. */
void assert_lse(const struct problem *p);

#endif
