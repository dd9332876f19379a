/* weights_export.h - a checkpoint's model as a folder for Hugging Face's programs. */
#ifndef TRIREME_TRAIN_WEIGHTS_EXPORT_H
#define TRIREME_TRAIN_WEIGHTS_EXPORT_H

#include "io/checkpoint.h"
#include "config/config.h"

struct weights_export {
    const char *folder;
    enum dtype dtype;   /* of the files: fp32, bf16 or fp16 */
    int64_t file_bytes; /* a file has no more tensors than fit into that, but one at least */
    int tensors;        /* written; filled in */
};

/* Write config.json, and the parameters of a checkpoint of config's model as model.safetensors, or
 * several files and their index.  The folder must exist.  In blocks, but for transposed matrices,
 * of which one is in memory at a time.  Not collective.  0, or -1 with err set. */
int weights_export(struct weights_export *how, struct checkpoint *checkpoint,
                   const struct config *config, struct error *err);

#endif
