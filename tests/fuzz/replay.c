/* replay.c - give a fuzz target the files named, one after the other: replay FILE... */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

int main(int argc, char **argv)
{
    enum { MOST = 1 << 20 };
    uint8_t *data = malloc(MOST);
    if (!data || argc < 2)
        return 1;
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) {
            perror(argv[i]);
            return 1;
        }
        size_t bytes = fread(data, 1, MOST, file);
        fclose(file);
        fprintf(stderr, "%s\n", argv[i]);
        LLVMFuzzerTestOneInput(data, bytes);
    }
    free(data);
    return 0;
}
