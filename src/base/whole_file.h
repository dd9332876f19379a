/* whole_file.h - a file that is there whole or not at all: it is written as PATH.partial, then
 * renamed to PATH.  Of a symbolic link PATH is what it leads to, and the link stays. */
#ifndef TRIREME_BASE_WHOLE_FILE_H
#define TRIREME_BASE_WHOLE_FILE_H

#include <stdio.h>

#include "base/error.h"

/* WHOLE_FILE_DURABLE: fsync() the file before it is renamed, so that after a crash of the node PATH
 * is the old file or all of the new one.  For the new one to be certain the caller also syncs the
 * folder (disk_sync_parent()).  WHOLE_FILE_REPORT: do not, as the file can be made again. */
enum whole_file_care { WHOLE_FILE_DURABLE, WHOLE_FILE_REPORT };

struct whole_file {
    FILE *out;    /* the caller writes to it */
    char *path;   /* private: links followed */
    char *beside; /* private: PATH.partial; NULL: path is a pipe or device, written in place */
};

/* Create PATH.partial and open it as file->out.  A path that is a pipe or a device (/dev/stdout) is
 * opened itself.  Returns 0 and a file for whole_file_end() or whole_file_drop(), or -1 with err
 * set and nothing to end. */
int whole_file_begin(struct whole_file *file, const char *path, struct error *err);

/* Close the file and rename PATH.partial to PATH.  Returns 0, or -1 with err set where any write
 * since whole_file_begin() failed; then PATH.partial is removed, and PATH is as it was. */
int whole_file_end(struct whole_file *file, enum whole_file_care care, struct error *err);

/* Close the file and remove PATH.partial; PATH is as it was. */
void whole_file_drop(struct whole_file *file);

#endif
