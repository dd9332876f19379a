/* export_folder.h - the folder that convert and checkpoint.export_hf write. */
#ifndef TRIREME_TRAIN_EXPORT_FOLDER_H
#define TRIREME_TRAIN_EXPORT_FOLDER_H

#include "base/log.h"
#include "comm/world.h"
#include "train/weights_export.h"

/* Return the format in which a run's model, or adapter, is written unless another is asked for. */
enum dtype export_folder_dtype(const struct config *config, enum weights_what what);

/* Create how->folder and write the model into it as weights_export() does, and for EXPORT_MODEL
 * what goes with it beside (export_tokenizer.h): `tokenizer` is one that a user names, or NULL. Not
 * collective.  Returns 0, or -1 with err set: the folder holds a model already or the tokenizer of
 * another, `tokenizer` is another than that of the data or has no files, adapters would fit no
 * module of their model, or what weights_export() returns -1 for. */
int export_folder(struct weights_export *how, const char *tokenizer, struct checkpoint *checkpoint,
                  const struct config *config, struct error *err);

/* Warn of what an exported folder lacks: a model the tokenizer that the checkpoint's data was made
 * with, where its files were not found; an adapter a model that Hugging Face's programs can read.
 * Not collective. */
void export_folder_report(struct log *log, const char *folder, enum weights_what what,
                          const struct checkpoint *checkpoint, const struct config *config);

/* Write a run's checkpoint as run.dir/hf, under another name until it is whole, in place of what is
 * there: that is removed where the run wrote it (is_own, looked at on rank 0), else it is renamed
 * to hf.1, hf.2 ...  What cannot be removed stays beside it, with a warning.  Rank 0 does it.
 * Collective.  0, or -1 on all ranks with err set: what was there is still there, or err says under
 * which name. */
int export_folder_of_run(struct world *world, struct log *log, const char *checkpoint,
                         const struct config *config, int is_own, struct error *err);

#endif
