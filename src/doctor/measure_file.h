/* measure_file.h - a rank's file as training has it for offloaded state, for the parts of trireme
 * doctor --measure that read and write one. */
#ifndef TRIREME_DOCTOR_MEASURE_FILE_H
#define TRIREME_DOCTOR_MEASURE_FILE_H

#include "doctor/measure_work.h"
#include "io/swap.h"

enum { MEASURE_IN_FLIGHT = 4 }; /* operations that are submitted at once */

struct measure_file {
    struct swap *swap;
    char *data;       /* buffers of MEASURE_IN_FLIGHT operations, op_bytes each */
    int64_t op_bytes; /* bytes that one operation reads or writes */
    int64_t bytes;    /* bytes of the file that were written, from its start */
};

/* Make a file of limits->disk_bytes in the folder that is measured, or the working directory.  f is
 * for measure_file_close(), also after a failure.  Not collective.  Returns 0, or -1 with err set.
 */
int measure_file_open(struct measure *m, struct measure_file *f, struct error *err);
void measure_file_close(struct measure_file *f);

/* Read or write bytes [from, to) of the file in operations of op_bytes, of which MEASURE_IN_FLIGHT
 * are under way at a time, and wait for all.  Returns 0, or -1 with err set. */
int measure_file_move(struct measure_file *f, enum swap_queue queue, int64_t from, int64_t to,
                      struct error *err);

#endif
