/* error.h - one text for the person who has to act on a failure.
 *
 * Functions that can fail return 0 or -1 and take a caller-owned struct error
 * as their last argument.  The text is filled where the fact is known: what was
 * wrong, where, and what to do about it.  It is one line, without a newline.
 */
#ifndef TRIREME_BASE_ERROR_H
#define TRIREME_BASE_ERROR_H

/* Exit codes of the program; jobs/ scripts and schedulers act on them. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_USAGE = 1,  /* wrong use or configuration: do not restart */
    EXIT_SAVED = 75, /* state saved, run me again */
    EXIT_HANG = 94,  /* no progress: the job was stuck */
    EXIT_NODE = 95,  /* fault of a node, named on stderr */
};

struct error {
    int code;        /* enum exit_code that the program ends with; error_set() makes 0 EXIT_USAGE */
    int by_system;   /* 1: a call failed by an errno for which error_is_system() is 1 */
    char text[2028]; /* "" means no error; log_print() has space for all of it */
};

/* In all functions below err may be NULL: the text is dropped.  All return -1. */

/* Replace the text of err; a longer one is cut off. */
int error_set(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Does this errno say nothing about the file that a call was for?  0 for a file that is absent or
 * of another kind (ENOENT, ENOTDIR, EISDIR, ELOOP), 1 for any other: of a disk, a file server, a
 * right, a limit.  The same call may succeed later. */
int error_is_system(int number);

/* Like error_set(), with ": " and the text of the current errno appended.  errno is kept. */
int error_errno(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Like error_errno() with the text "WHAT PATH"; if errno says that a relative path does not exist,
 * the working directory is added. */
int error_file(struct error *err, const char *what, const char *path);

/* Put "TEXT: " before the text of err. */
int error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put " [TEXT]" after the text of err; TEXT says where in the program the failure happened. */
int error_suffix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
