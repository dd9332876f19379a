/* shape_check.c - see shape_check.h.  The calls go to the device's driver, which on CPUs notes
 * nothing; what is kept is self_check_cache.c's. */
#include "device/shape_check.h"

#include "device/driver.h"

int device_shapes_noted(const struct device *d)
{
    return d->driver->shapes_noted ? d->driver->shapes_noted(d) : 0;
}

void device_shape(const struct device *d, int i, int64_t shape[SHAPE_WORDS])
{
    d->driver->shape(d, i, shape);
}

int device_shape_check(struct device *d, int i, struct shape_check *check, struct error *err)
{
    return d->driver->shape_check(d, i, check, err);
}

int device_shape_replace(struct device *d, const int64_t shape[SHAPE_WORDS], struct error *err)
{
    return d->driver->shape_replace ? d->driver->shape_replace(d, shape, err) : 0;
}
