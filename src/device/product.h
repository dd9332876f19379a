/* product.h - choosing the algorithms by which a GPU's library multiplies matrices, by timing them.
 *
 * By itself a device takes the first algorithm that its library suggests for a product.  What is
 * faster for the shapes of a run is found by time, once, before anything is recorded or trained:
 *
 *   device_products_note(d, 1)   ops are run; their products are noted, and not computed
 *   device_products_note(d, 0)
 *   device_product_tune()        each of those noted is timed by several algorithms
 *   device_product_take()        and from then on done by the fastest, here and on other ranks
 *
 * Only algorithms are asked for that give the same bits in every run, but another algorithm gives
 * other last bits.  So what was taken is kept with the run, and read again when it goes on.
 * CPUs have no choice: they note nothing.
 */
#ifndef TRIREME_DEVICE_PRODUCT_H
#define TRIREME_DEVICE_PRODUCT_H

#include "device/device.h"

enum { PRODUCT_SHAPE = 16, PRODUCT_SETTINGS = 9, PRODUCT_WORDS = 8, PRODUCT_TRIED = 8 };
/* Members of shape that every file of choices has; members that a file lacks are 0. */
enum { PRODUCT_SHAPE_LEAST = 15 };

/* The algorithm of a product; without padding, so that bytes compare.  The members of shape and
 * setting have the names below. */
struct product_choice {
    int64_t shape[PRODUCT_SHAPE];      /* products of equal shape have the same algorithm */
    int64_t setting[PRODUCT_SETTINGS]; /* of the algorithm, as the library gives them */
    uint64_t word[PRODUCT_WORDS];      /* the algorithm as the library stores it */
    int64_t workspace_bytes;
    int64_t tried;        /* algorithms that were timed */
    int64_t ns, first_ns; /* of a product by it, and by the library's first suggestion */
};

extern const char *const product_shape_names[PRODUCT_SHAPE];
extern const char *const product_setting_names[PRODUCT_SETTINGS];

/* What a choice of algorithms is valid for, as text: the GPU, the library and, where products leave
 * some multiprocessors free, how many they use.  "NVIDIA H200, cuBLASLt 13.1.0, 124
 * multiprocessors"; "" on CPUs. */
const char *device_products_library(const struct device *d, char text[192]);

/* on 1: forget what is noted; from now on note products instead of computing them, each shape once,
 * with the memory that it was called with, and besides (shape_check.h) the attentions that a
 * library computes.  on 0: compute products again. */
void device_products_note(struct device *d, int on);
/* How many products are noted. */
int device_products_noted(const struct device *d);

/* The shape of product i of those noted. */
void device_product_shape(const struct device *d, int i, int64_t shape[PRODUCT_SHAPE]);

/* Time the algorithms that the library suggests for product i of those noted, PRODUCT_TRIED at
 * most, on random numbers, and fill choice with the fastest.  Writes over the operands and the
 * workspace that it was met with.  Returns 0; 1 where the library has none; or -1 with err set, as
 * it is while ops are recorded. */
int device_product_tune(struct device *d, int i, struct product_choice *choice, struct error *err);

/* Do products of this shape by this algorithm from now on.  Returns 0, or -1 with err set where
 * the library does not take it, the workspace is larger than is planned, or its sums may come in
 * any order. */
int device_product_take(struct device *d, const struct product_choice *choice, struct error *err);

#endif
