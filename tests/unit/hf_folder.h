/* hf_folder.h - a model's folder as Hugging Face's programs keep it, for tests of what reads one.
 */
#ifndef TRIREME_TESTS_UNIT_HF_FOLDER_H
#define TRIREME_TESTS_UNIT_HF_FOLDER_H

#include "config/config.h"

/* Write config.json and weights for a configuration, in files of so many bytes at most and their
 * index.  Each number follows from its tensor and its place there.  0, or -1 with err set. */
int hf_folder_write(const struct config *config, enum dtype dtype, int64_t file_bytes,
                    const char *path, struct error *err);

#endif
