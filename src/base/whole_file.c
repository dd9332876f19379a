/* whole_file.c - see whole_file.h. */
#include "base/whole_file.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/link.h"
#include "base/special_file.h"

static void forget(struct whole_file *file)
{
    free(file->path);
    free(file->beside);
    *file = (struct whole_file){0};
}

int whole_file_begin(struct whole_file *file, const char *path, struct error *err)
{
    *file = (struct whole_file){0};
    int is_special = special_file_kind(path) != NULL; /* a rename would replace it by a file */
    file->path = is_special ? array_text(path) : link_follow(path, err);
    if (!file->path)
        return -1;
    if (!is_special)
        file->beside = array_format("%s.partial", file->path);
    int rc = file->beside ? special_file_refuse(file->beside, err) : 0;
    if (!rc && !(file->out = fopen(file->beside ? file->beside : path, "we")))
        rc = error_errno(err, "cannot create %s", path);
    if (rc)
        forget(file);
    return rc;
}

/* Set errno to the reason why an earlier write failed, which stdio does not keep: write once more
 * to the file, which is given up in any case; that fails for the same reason.  Returns -1. */
static int find_cause(FILE *out)
{
    clearerr(out);
    if (fputc('\n', out) != EOF && !fflush(out))
        errno = EIO;
    return -1;
}

int whole_file_end(struct whole_file *file, enum whole_file_care care, struct error *err)
{
    const int is_synced = care == WHOLE_FILE_DURABLE && file->beside;
    int bad = fflush(file->out) || (ferror(file->out) && find_cause(file->out)) ||
              (is_synced && ALIVE_CALL("syncing", file->path, fsync(fileno(file->out))));
    int rc = bad ? error_errno(err, "cannot write %s", file->path) : 0;
    if (fclose(file->out) && !rc)
        rc = error_errno(err, "cannot write %s", file->path);
    if (!rc && file->beside &&
        ALIVE_CALL("renaming", file->beside, rename(file->beside, file->path)))
        rc = error_errno(err, "cannot rename %s to %s", file->beside, file->path);
    if (rc && file->beside)
        unlink(file->beside);
    forget(file);
    return rc;
}

void whole_file_drop(struct whole_file *file)
{
    fclose(file->out);
    if (file->beside)
        unlink(file->beside);
    forget(file);
}
