/* record.cc - what the emulated libraries were asked for, line by line in a file. */
#include "record.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <string>

namespace emulate
{

void record(const char *fmt, ...)
{
    static std::mutex lock;
    static std::set<std::string> lines;
    const char *path = getenv("TRIREME_EMULATE_RECORD");
    char line[512];
    va_list args;

    if (!path || !*path)
        return;
    va_start(args, fmt);
    int bytes = vsnprintf(line, sizeof(line) - 1, fmt, args);
    va_end(args);
    std::lock_guard<std::mutex> hold(lock);
    if (bytes <= 0 || bytes >= (int)sizeof(line) - 1 || !lines.insert(line).second)
        return;
    line[bytes] = '\n';
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || write(file, line, (size_t)bytes + 1) != bytes + 1)
        fprintf(stderr, "TRIREME_EMULATE_RECORD=%s: not written\n", path);
    if (file >= 0)
        close(file);
}

} // namespace emulate
