/* log.h - the lines that the program prints while it runs.
 *
 * One struct log is made by main() and passed down; the main thread prints by it.  Lines go to
 * stderr, and once a run directory exists those of rank 0 also to its log.txt, with the time of day
 * before them.  Ranks other than 0 print only warnings and errors, so that a message is printed
 * once and not per rank.
 *
 * Other threads, and a rank that ends the job, print by log_urgent().  Its lines go to log.txt from
 * every rank: they say why a run ended.
 */
#ifndef TRIREME_BASE_LOG_H
#define TRIREME_BASE_LOG_H

#include "base/error.h"
#include "base/line_file.h"

/* Levels, the most important first; ranks above 0 drop what follows LOG_WARN.  A line of LOG_RECORD
 * goes to log.txt alone; it stands before LOG_INFO so that a log of level LOG_RECORD, which drops
 * information, still has such lines. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_RECORD, LOG_INFO };

struct log {
    enum log_level level;  /* lines of a greater level are dropped */
    int rank;              /* of this process; negative while not known */
    struct line_file file; /* log.txt; closed on ranks other than 0 and without a run directory */
};

/* From now on append every line to the file at path too (created if absent), lines of log_urgent()
 * among them.  Returns 0, or -1 with err set and no file open. */
int log_file(struct log *log, const char *path, struct error *err);

/* Close the file of log_file(), if any, and end a line of log_live() by a newline.  To be called
 * when no other thread prints any more. */
void log_close(struct log *log);

/* Print one line "trireme: [warning: |error: ]TEXT".  log NULL: on stderr alone.  Lines of ranks
 * above 0 have "[rank N] " after "trireme: ". */
void log_print(struct log *log, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define log_error(log, ...)  log_print(log, LOG_ERROR, __VA_ARGS__)
#define log_warn(log, ...)   log_print(log, LOG_WARN, __VA_ARGS__)
#define log_record(log, ...) log_print(log, LOG_RECORD, __VA_ARGS__)
#define log_info(log, ...)   log_print(log, LOG_INFO, __VA_ARGS__)

/* Print one line "trireme: TEXT" on stderr, and start a thread that appends it to log.txt by one
 * write(2).  Any thread may call it; it takes no lock and does not wait for the disk, so it works
 * while the main thread is stuck.  Where log.txt cannot be written, or memory is out, the line is
 * on stderr alone. */
void log_urgent(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Wait until these threads have written their lines; for ever where the disk is stuck. */
void log_urgent_wait(void);

/* Have lines of log_urgent() appended to the file at path, which must exist; where it cannot be
 * opened, they go to stderr alone.  For ranks other than 0: on rank 0 log_file() does so.  NFS
 * knows no common end of a file: there such a line may overwrite one that rank 0's node has not
 * sent yet. */
void log_urgent_file(const char *path);

/* Print text on stderr, which is a terminal, without a newline; the next line of any function here
 * replaces it. */
void log_live(const char *text);

#endif
