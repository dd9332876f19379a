/* log.h - the lines that the program prints while it runs.
 *
 * One struct log is made by main() and passed down.  Lines go to stderr and, once a run directory
 * exists, rank 0's to its log.txt with the time of day before them.  Ranks other than 0 print only
 * warnings and errors, so that a message is printed once and not per rank.
 *
 * Threads beside the main one, and a rank that ends the job, print by log_urgent(), whose lines go
 * to log.txt on every rank: they say why a run ended.
 */
#ifndef TRIREME_BASE_LOG_H
#define TRIREME_BASE_LOG_H

#include "base/error.h"
#include "base/line_file.h"

/* From the most important on; ranks above 0 drop what follows LOG_WARN.  LOG_RECORD says where a
 * line goes, to log.txt alone; it stands before LOG_INFO so that a log without information has
 * it. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_RECORD, LOG_INFO };

struct log {
    enum log_level level;  /* lines above it are dropped */
    int rank;              /* of this process; negative while not known */
    struct line_file file; /* log.txt */
};

/* Also append every line to path (created if absent).  Returns 0, or -1 with err set. */
int log_file(struct log *log, const char *path, struct error *err);

/* Close the file of log_file(), if any, and end a line of log_live().  No other thread prints any
 * more. */
void log_close(struct log *log);

/* Print one line "trireme: [warning: |error: ]text"; log may be NULL (prints to stderr).
 * Errors and warnings of ranks above 0 carry "[rank N] ".  LOG_RECORD is a line for log.txt alone.
 */
void log_print(struct log *log, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define log_error(log, ...)  log_print(log, LOG_ERROR, __VA_ARGS__)
#define log_warn(log, ...)   log_print(log, LOG_WARN, __VA_ARGS__)
#define log_record(log, ...) log_print(log, LOG_RECORD, __VA_ARGS__)
#define log_info(log, ...)   log_print(log, LOG_INFO, __VA_ARGS__)

/* Print one line "trireme: text" from any thread, whatever the thread that logs does: it takes no
 * lock.  A thread of its own appends the line to log.txt, by one write(2) that nobody waits for but
 * log_urgent_wait(), which may then wait for ever.  Where log.txt cannot be written, or memory is
 * out, the line is on stderr alone. */
void log_urgent(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_urgent_wait(void);

/* Have lines of log_urgent() appended to path, which is there; log_file() does so too.  For the
 * ranks other than 0: where it cannot be opened, they print on stderr alone.  NFS knows no common
 * end of a file: there such a line may overwrite one that rank 0's node has not sent yet. */
void log_urgent_file(const char *path);

/* Print text on stderr, a terminal, as a line that the next line of any kind replaces. */
void log_live(const char *text);

#endif
