/* partial.c - creating private files, and removing those of processes that were killed.
 *
 * A process that creates a file (the writer) and another one that removes old files (the sweeper)
 * may work on the same name at once.  The writer creates the file (O_EXCL), locks it, and then
 * checks that the name still leads to this file.  The sweeper opens the file, locks it, checks the
 * same, and only then removes it:
 *
 *   the sweeper locks first       the writer's lock fails, and it takes another name
 *   the writer locks first        the sweeper finds the file locked and leaves it
 *   the sweeper removes the file  the writer finds that the name leads nowhere, and takes another
 *   before the writer's lock      name
 *
 * A file "NAME.WORD" has no lock of its own: it is removed or left as NAME is.
 */
#include "io/partial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"

enum { NAMES = 1000, BOOT = 14 };

/* Read the beginning of Linux's boot id; "" if it cannot be read. */
static void read_boot(char boot[BOOT])
{
    boot[0] = 0;
    text_from_file("/proc/sys/kernel/random/boot_id", NULL, boot, BOOT);
}

/* Returns 1 if name, in folder, leads to the file that is open as fd. */
static int is_there(int fd, int folder, const char *name)
{
    struct stat opened, there;
    return !fstat(fd, &opened) && !fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) &&
           S_ISREG(there.st_mode) && opened.st_ino == there.st_ino && opened.st_dev == there.st_dev;
}

/* Creating */

/* Lock a new file.  Returns 0, or -1 with errno.  EEXIST: another process, in partial_sweep(), has
 * locked the file first and removes it.  ENOLCK: the file system has no locks; the file is removed
 * here. */
static int lock_new(int fd, const char *name)
{
    int failed = flock(fd, LOCK_EX | LOCK_NB), why = errno;
    if (!failed && is_there(fd, AT_FDCWD, name))
        return 0;
    if (failed && why != EWOULDBLOCK)
        unlink(name);
    errno = failed && why != EWOULDBLOCK ? ENOLCK : EEXIST;
    return -1;
}

/* Create the file `name`, and lock it if with_lock is 1.  Returns its descriptor, or -1 with errno.
 */
static int create(const char *name, int with_lock)
{
    int fd = disk_open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, NULL);
    if (fd < 0 || !with_lock || !lock_new(fd, name))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int partial_create(char **out, const char *path, struct error *err)
{
    char boot[BOOT], *name = NULL;
    int fd = -1;
    *out = NULL;
    read_boot(boot);
    errno = EEXIST;
    for (int i = 0; i < NAMES && fd < 0 && (errno == EEXIST || errno == ENOLCK); i++) {
        if (errno == ENOLCK)
            boot[0] = 0; /* a name without BOOT: partial_sweep() does not look for its lock */
        free(name);
        name = array_format("%s.partial-%s%s%ld-%d", path, boot, boot[0] ? "-" : "", (long)getpid(),
                            i);
        fd = create(name, boot[0] != 0);
    }
    if (fd >= 0) {
        *out = name;
        return fd;
    }
    error_errno(err, "cannot create %s", name);
    free(name); /* the file of this name, if there is one, is another process's */
    return -1;
}

/* Sweeping */

/* Returns the length of "PID-N" at the start of text, after which the text ends or ".WORD"
 * follows; 0: there is none. */
static size_t number_length(const char *text)
{
    static const char digits[] = "0123456789";
    size_t pid = strspn(text, digits),
           n = pid && text[pid] == '-' ? strspn(text + pid + 1, digits) : 0;
    return n && (!text[pid + 1 + n] || text[pid + 1 + n] == '.') ? pid + 1 + n : 0;
}

enum state { ENDED, AT_WORK, NOT_KNOWN };

/* Returns the state of the process that created a file.  *fd becomes the open file, locked if the
 * state is ENDED; -1: it cannot be opened.  If the file is gone, its process has finished or
 * removed it, and no longer needs the files "NAME.WORD": ENDED. */
static enum state state_of(int folder, const char *file, int *fd)
{
    *fd = openat(folder, file, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return errno == ENOENT ? ENDED : NOT_KNOWN;
    if (flock(*fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK ? AT_WORK : NOT_KNOWN;
    return is_there(*fd, folder, file) ? ENDED : NOT_KNOWN;
}

/* Remove the file `name`, or count it as kept.  "PID-N" begins at name[at]; at is 0 if the file is
 * not of this boot of the machine. */
static void sweep(int folder, const char *name, size_t at, struct partial_found *found)
{
    char file[NAME_MAX + 1];
    size_t length = at ? number_length(name + at) : 0;
    int fd = -1;
    enum state state = NOT_KNOWN;
    if (length) {
        snprintf(file, sizeof file, "%.*s", (int)(at + length), name);
        state = state_of(folder, file, &fd);
    }
    if (state == ENDED && !unlinkat(folder, name, 0)) {
        found->removed++;
    } else if (state != AT_WORK) {
        found->kept++;
        snprintf(found->example, sizeof found->example, "%s", name);
    }
    if (fd >= 0)
        close(fd);
}

void partial_sweep(const char *path, struct partial_found *found)
{
    char boot[BOOT];
    const char *slash = strrchr(path, '/');
    char *parent = array_format("%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    char *prefix = array_format("%s.partial-", slash ? slash + 1 : path);
    DIR *folder = opendir(parent);
    read_boot(boot);
    size_t before = strlen(prefix), letters = strlen(boot);
    *found = (struct partial_found){0};
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *rest = entry->d_name + before;
        if (strncmp(entry->d_name, prefix, before))
            continue;
        int is_of_boot = letters && !strncmp(rest, boot, letters) && rest[letters] == '-';
        sweep(dirfd(folder), entry->d_name, is_of_boot ? before + letters + 1 : 0, found);
    }
    if (folder)
        closedir(folder);
    free(parent);
    free(prefix);
}
