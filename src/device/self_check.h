/* self_check.h - does a GPU compute what the CPU computes, with this driver and these libraries?
 *
 * Each family of kernels is run on small inputs of odd and even sizes and compared with the CPU,
 * which defines what an op means (ops.h).  Where a library is wrong (cuBLASLt, cuDNN), trireme's
 * own kernels take its place; nothing can stand in for an own kernel that is wrong.  What was found
 * is kept in a file of the user, so that a check is made once for a GPU, its driver, the libraries
 * and a build of trireme.
 *
 * What is not checked: other shapes than those few, for which libraries may choose other kernels
 * (shape_check.h checks those of a run), and transfers between GPUs.
 */
#ifndef TRIREME_DEVICE_SELF_CHECK_H
#define TRIREME_DEVICE_SELF_CHECK_H

#include "device/device.h"

enum self_check_verdict {
    SELF_CHECK_RIGHT,
    SELF_CHECK_UNUSED,   /* the library does not do it here: own kernels do, and have a row */
    SELF_CHECK_REPLACED, /* wrong; own kernels do it from now on */
    SELF_CHECK_WRONG,    /* wrong, and nothing can do it in its place */
};

enum { SELF_CHECK_MOST = 48 };

struct self_check_row {
    const char *family;
    enum self_check_verdict verdict;
    unsigned bit; /* of enum device_family; 0 of families without another implementation */
    /* The result that was nearest to its bound, or the furthest beyond: of which op and format,
     * its largest difference, as a share of a number and of the root mean square of all, and how
     * much is allowed.  Both 0 where all bits agree. */
    char of[48];
    double error, bound;
    char why[160];  /* what else is wrong; "": nothing else */
    int is_refused; /* 1: the library returned an error, which may be for once */
    double seconds; /* the family took, with what a library loads and compiles for it */
};

struct self_check {
    int rows;
    struct self_check_row row[SELF_CHECK_MOST];
    double seconds;      /* it took */
    double open_seconds; /* of these to open both devices */
    int was_kept;        /* 1: read from the file, where only verdicts are */
    unsigned replaced;   /* bits of enum device_family, for struct device_request */
    int wrong;           /* rows of verdict SELF_CHECK_WRONG */
};

/* Check a GPU with devices of its own, closed again afterwards; request as for device_open(), whose
 * `replaced` and `spare_sms` are not looked at.  Not collective.  Returns 0 and the verdicts, or -1
 * with err set where nothing could be found out: the GPU cannot be opened, has no memory left, or
 * failed in one of the families, which err names. */
int self_check_run(struct self_check *check, const struct device_request *request, struct mem *mem,
                   struct error *err);

/* Names of the families whose bits are set, and of those that are wrong and have none, in text of
 * `size` bytes, "; " between; both return text. */
const char *self_check_replaced(unsigned replaced, char *text, size_t size);
const char *self_check_wrong(const struct self_check *check, char *text, size_t size);

/* One line about a row, without a newline: name, error and bound, verdict, what is used instead. */
const char *self_check_line(const struct self_check_row *row, char text[400]);

/* ---- what was found before ---- */

/* What a check depends on, a line: the GPU's name and compute capability, its driver (where the
 * system does not give its version, the driver's file and its date), the versions
 * of CUDA, cuBLASLt and cuDNN, and the build of trireme.  Returns 0, or -1 with err set. */
int self_check_key(char key[1024], int gpu, struct error *err);

/* The verdicts kept for a key.  Returns 0, or -1 where there are none that can be used: no file, an
 * unreadable or damaged one, one of another key or of other families. */
int self_check_load(struct self_check *check, const char *key);

/* Keep them, in place of those before: in a file of its own for each key, in
 * ${XDG_CACHE_HOME:-$HOME/.cache}/trireme/, which is renamed when it is whole.  A check with wrong
 * families is not kept, nor one where a library refused something, which may be for once.  Returns
 * 0, or -1 with err set: nothing is kept, which is no reason to stop. */
int self_check_store(const struct self_check *check, const char *key, struct error *err);

#endif
