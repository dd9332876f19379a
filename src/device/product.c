/* product.c - see product.h: names, and what CPUs answer. */
#include "device/product.h"

#include "device/driver.h"

const char *const product_shape_names[PRODUCT_SHAPE] = {
    "type", "type_c",  "trans_a", "trans_b", "addend",       "m",   "n", "k", "lda", "ldb",
    "ldc",  "align_a", "align_b", "align_c", "align_addend", "fp8",
};

const char *const product_setting_names[PRODUCT_SETTINGS] = {
    "id",     "tile",        "split_k",       "reduction_scheme", "swizzle", "custom_option",
    "stages", "inner_shape", "cluster_shape",
};

const char *device_products_library(const struct device *d, char text[192])
{
    text[0] = 0;
    return d->driver->products_library ? d->driver->products_library(d, text) : text;
}

void device_products_note(struct device *d, int on)
{
    if (d->driver->products_note)
        d->driver->products_note(d, on);
}

int device_products_noted(const struct device *d)
{
    return d->driver->products_noted ? d->driver->products_noted(d) : 0;
}

void device_product_shape(const struct device *d, int i, int64_t shape[PRODUCT_SHAPE])
{
    d->driver->product_shape(d, i, shape);
}

int device_product_tune(struct device *d, int i, struct product_choice *choice, struct error *err)
{
    return d->driver->product_tune(d, i, choice, err);
}

int device_product_take(struct device *d, const struct product_choice *choice, struct error *err)
{
    if (!d->driver->product_take)
        return error_set(err, "a CPU has no choice of algorithms for products");
    return d->driver->product_take(d, choice, err);
}
