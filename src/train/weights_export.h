/* weights_export.h - a checkpoint's model as a folder for Hugging Face's programs. */
#ifndef TRIREME_TRAIN_WEIGHTS_EXPORT_H
#define TRIREME_TRAIN_WEIGHTS_EXPORT_H

#include "io/checkpoint.h"
#include "config/config.h"

/* What is written: the model, to which adapters are added if it has some; or the adapters alone. */
enum weights_what { EXPORT_MODEL, EXPORT_ADAPTER };

/* The size of a file in GB, unless another is asked for. */
enum { EXPORT_FILE_GB = 5 };

struct weights_export {
    enum weights_what what;
    const char *folder;
    enum dtype dtype;     /* of the files: fp32, bf16 or fp16 */
    const struct js *ids; /* ids of special tokens, for hf_write_config(); NULL: none */
    int64_t file_bytes;   /* a file has no more tensors than fit into this, but one at least */
    int tensors;          /* set by weights_export(): how many it wrote */
};

/* Write config.json, and the parameters of a checkpoint of config's model as model.safetensors, or
 * several files and their index; or adapter_config.json and adapter_model.safetensors, as peft
 * reads them.  Frozen tensors that the checkpoint only refers to are read from config.model_path.
 * The folder must exist.  Numbers pass through memory in blocks; of transposed matrices one is in
 * memory at a time.  Not collective.  0, or -1 with err set. */
int weights_export(struct weights_export *how, struct checkpoint *checkpoint,
                   const struct config *config, struct error *err);

#endif
