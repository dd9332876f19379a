/* special_file.h - named pipes, devices and sockets in the place of files.
 *
 * Opening a named pipe waits for a process at its other end, and a device may give or take bytes
 * without end.  Where a file is expected its path is checked before it is opened. */
#ifndef TRIREME_BASE_SPECIAL_FILE_H
#define TRIREME_BASE_SPECIAL_FILE_H

#include "base/error.h"

/* Returns what is at path, or where a link at path leads: "a named pipe", "a device" or "a socket";
 * NULL: a regular file, a folder, or nothing that can be looked at. */
const char *special_file_kind(const char *path);

/* Returns 0, or -1 with err set and errno EINVAL where special_file_kind() is not NULL.  On 0
 * whatever else is wrong with the path is left to the call that opens it. */
int special_file_refuse(const char *path, struct error *err);

#endif
