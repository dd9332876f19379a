/* fuzz_translate.c - bytes as another trainer's configuration, first in its keys and then as a
 * script's options.  What is written is YAML: each line is a comment or `key: value`. */
#include <stdlib.h>
#include <string.h>

#include "config/foreign.h"
#include "config/schema.h"
#include "tests/fuzz/fuzz.h"

static void check_line(const char *line, size_t bytes)
{
    char name[128];
    size_t length = strcspn(line, ":");
    if (line[0] == '#' || !bytes)
        return;
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : 0), line);
    if (length >= bytes || line[length + 1] != ' ' || !key_find(name))
        fuzz_fail("no setting and no comment: %.*s", (int)bytes, line);
}

static void translate(const struct foreign_source *source)
{
    char *written = NULL;
    size_t size = 0, bytes;
    FILE *out = open_memstream(&written, &size);
    foreign_write(out, source);
    fclose(out);
    for (const char *line = written; *line; line += bytes + (line[bytes] == '\n'))
        check_line(line, bytes = strcspn(line, "\n"));
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct foreign_source source;
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = 0;
    foreign_recognise(&source, "config", text);
    source.program = "another trainer";
    for (source.is_script = 0; source.is_script < 2; source.is_script++)
        translate(&source);
    foreign_free(&source);
    free(text);
    return 0;
}
