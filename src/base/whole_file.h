/* whole_file.h - a file that is there whole or not at all: written beside its name, then renamed.
 */
#ifndef TRIREME_BASE_WHOLE_FILE_H
#define TRIREME_BASE_WHOLE_FILE_H

#include <stdio.h>

#include "base/error.h"

/* Is a file synced before it is renamed, or can it be made again? */
enum whole_file_care { WHOLE_FILE_DURABLE, WHOLE_FILE_REPORT };

struct whole_file {
    FILE *out;    /* to be written to */
    char *path;   /* private */
    char *beside; /* private; NULL: path is no regular file, and is written in place */
};

/* Begin PATH.partial, which is to replace path.  A path that is a pipe or a device is written to as
 * it is.  Returns 0, or -1 with err set, and then there is nothing to end. */
int whole_file_begin(struct whole_file *file, const char *path, struct error *err);

/* Close what was begun and give it its name.  Returns 0, or -1 with err set where not all of it
 * could be written; PATH.partial is then removed, and what was at path is still there. */
int whole_file_end(struct whole_file *file, enum whole_file_care care, struct error *err);

/* Close what was begun and remove PATH.partial; what was at path is still there. */
void whole_file_drop(struct whole_file *file);

#endif
