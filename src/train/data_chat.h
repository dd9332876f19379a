/* data_chat.h - the chat template that a run's conversations are written by.  Token files name it,
 * and checkpoints keep it (run_data_chat()): a model that is asked by another template answers to
 * prompts that it has never seen. */
#ifndef TRIREME_TRAIN_DATA_CHAT_H
#define TRIREME_TRAIN_DATA_CHAT_H

#include "base/log.h"
#include "io/dataset.h"

/* The chat template of a dataset, that of its first file that names one; "": none does. */
const char *data_chat_name(const struct dataset *data);

/* Warn where files of data.train, or of it and data.valid, have different chat templates.  To be
 * called by rank 0. */
void data_chat_report(struct log *log, const struct dataset *train, const struct dataset *valid);

/* Log that a conversation may begin in one sequence and end in another, and see those before it,
 * where data.packing is stream.  To be called on any rank. */
void data_chat_report_packing(struct log *log, const struct dataset *train);

/* Warn where the tokenizer's files in a folder have another chat template than `chat`, that of a
 * run's data (NULL or "": not known), or none.  exported: the folder that was written, for whose
 * user the line is.  Where the folder has no tokenizer.json nothing is said. */
void data_chat_report_folder(struct log *log, const char *chat, const char *folder,
                             const char *exported);

#endif
