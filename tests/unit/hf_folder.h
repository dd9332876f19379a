/* hf_folder.h - writing a model's folder as Hugging Face's programs keep it, for tests of its
 * readers. */
#ifndef TRIREME_TESTS_UNIT_HF_FOLDER_H
#define TRIREME_TESTS_UNIT_HF_FOLDER_H

#include "config/config.h"

/* Write config.json, weights in files of at most file_bytes, and their index for a configuration.
 * Each number follows from its tensor and its place in it.  Returns 0, or -1 with err set. */
int hf_folder_write(const struct config *config, enum dtype dtype, int64_t file_bytes,
                    const char *path, struct error *err);

#endif
