/* sources.c - the token files that data.train or data.valid names.
 *
 *     a.h5,b.h5                              both
 *     a.h5:0.7,b.h5:0.3                      seven samples of a.h5 for three of b.h5
 *     a.h5:weight=0.7:samples=1000,b.h5:0.3  of a.h5 the first 1000 alone
 *
 * Options are taken off the end of an item; what is left is the path, which may have colons where
 * no number follows the last.
 */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* The largest weight: sums of weights are finite. */
static const double WEIGHT_MOST = 1e100;

static int read_weight(struct config_source *source, const char *text, struct error *err)
{
    char *end = NULL;
    if (source->weight > 0)
        return error_set(err, "%.40s: a weight is given twice", source->path);
    source->weight = strtod(text, &end);
    if (*text && !*end && source->weight > 0 && source->weight <= WEIGHT_MOST)
        return 0;
    return error_set(err, "\"%.40s\" is no weight: a number above 0, at most %g", text,
                     WEIGHT_MOST);
}

static int read_samples(struct config_source *source, const char *text, struct error *err)
{
    if (source->samples > 0)
        return error_set(err, "%.40s: samples is given twice", source->path);
    source->samples = text_is_digits(text) && strlen(text) < 19 ? atoll(text) : 0;
    if (source->samples > 0)
        return 0;
    return error_set(err, "samples=%.40s: a whole number above 0", text);
}

static int is_number(const char *text)
{
    char *end = NULL;
    strtod(text, &end);
    return *text && !*end && strspn(text, "0123456789+-.eE") == strlen(text);
}

/* Read an option of a source, "weight=0.7", "samples=1000" or "0.7".  Returns 1; 0: the text is no
 * option, but part of the path; or -1 with err set. */
static int read_option(struct config_source *source, const char *text, struct error *err)
{
    static const struct {
        const char *name;
        int (*read)(struct config_source *source, const char *text, struct error *err);
    } options[] = {{.name = "weight=", .read = read_weight},
                   {.name = "samples=", .read = read_samples}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        size_t length = strlen(options[i].name);
        if (!strncmp(text, options[i].name, length))
            return options[i].read(source, text + length, err) ? -1 : 1;
    }
    if (!is_number(text))
        return 0;
    return read_weight(source, text, err) ? -1 : 1;
}

/* Read an item of `length` bytes, a path with options, into source. */
static int read_source(struct config_source *source, const char *text, size_t length,
                       struct error *err)
{
    *source = (struct config_source){0};
    if (length >= sizeof source->path)
        return error_set(err, "\"%.40s...\" is longer than %zu bytes", text,
                         sizeof source->path - 1);
    memcpy(source->path, text, length);
    for (char *colon; (colon = strrchr(source->path, ':')); *colon = 0) {
        int is_option = read_option(source, colon + 1, err);
        if (is_option < 0)
            return -1;
        if (!is_option)
            break;
    }
    return source->path[0] ? 0 : error_set(err, "an empty name of a file");
}

int config_sources(const char *text, struct config_source source[CONFIG_SOURCES], struct error *err)
{
    int count = 0, weighted = 0;
    for (const char *at = text; *text && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (count == CONFIG_SOURCES)
            return error_set(err,
                             "more than %d token files; join some: trireme tokenize FILE.h5... -o "
                             "ALL.h5",
                             CONFIG_SOURCES);
        if (read_source(&source[count], at, strcspn(at, ","), err))
            return -1;
        weighted += source[count++].weight > 0;
    }
    if (weighted && weighted < count)
        return error_set(err, "%d of %d files have a weight: give one to all or to none", weighted,
                         count);
    return count;
}
