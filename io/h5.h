/* h5.h - HDF5's one home is h5.c: what token files and checkpoints need of it.
 *
 * Only the thread that started the program calls these.  HDF5_USE_FILE_LOCKING=FALSE
 * is set before the first call.  HDF5's own error stack is never printed; its innermost
 * reason is put into err.
 */
#ifndef TRIREME_IO_H5_H
#define TRIREME_IO_H5_H
#endif
