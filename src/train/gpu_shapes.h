/* gpu_shapes.h - the check of a run's shapes (device/shape_check.h) before its first step. */
#ifndef TRIREME_TRAIN_GPU_SHAPES_H
#define TRIREME_TRAIN_GPU_SHAPES_H

struct session;
struct error;

/* Check what the libraries of all ranks' GPUs compute for the shapes of the session's programs, as
 * run.self_check says: with auto unless these shapes were found right before, which is kept, and
 * train.tune_products is off, by which the library may compute them otherwise at each start.
 * Shapes that are wrong on any rank are replaced on all (device_shape_replace()); rank 0 warns of
 * each, and s->wrong_shapes lists them.  Nothing is done for CPUs.  To be called after
 * executor_allocate(), and before executor_prepare(). Collective.  Returns 0, or -1 on every rank
 * with err set. */
int gpu_shapes_check(struct session *s, struct error *err);

#endif
