/* record.h - what the emulated libraries were asked for, for tests to read. */
#ifndef TRIREME_EMULATE_RECORD_H
#define TRIREME_EMULATE_RECORD_H

namespace emulate
{

/* Append a line to the file that TRIREME_EMULATE_RECORD names, the first time that this process has
 * it; nothing where the variable is not set.  A line is written at once, so that ranks may share
 * the file. */
void record(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

} // namespace emulate

#endif
