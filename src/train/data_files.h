/* data_files.h - token files that a run reads more than once, by whatever names: their sequences
 * count twice in an epoch, or the run is evaluated on what it has learned. */
#ifndef TRIREME_TRAIN_DATA_FILES_H
#define TRIREME_TRAIN_DATA_FILES_H

#include "base/log.h"
#include "config/config.h"

/* Warn where data.train without weights, or data.valid, names a file several times, and where
 * data.valid names one of data.train.  Files are the same by device and inode, so that links count,
 * and copies do not; one that is not here is passed over.  Weights and "samples=" say how much is
 * read of a file, so that there a second time is meant.  To be called by rank 0. */
void data_files_warn(struct log *log, const struct config_data *data);

/* The same for an evaluation alone: warn where data.valid names a file several times. */
void data_files_warn_valid(struct log *log, const char *valid);

#endif
