/* show.c - printing the table of keys for people and for the man page. */
#include "config/schema.h"

#include <string.h>

enum { TEXT_BYTES = 320, ROW_BYTES = 4096, LINE_CHARS = 78, INDENT = 4 };

/* Print text indented, wrapped between words. */
static void wrapped(FILE *out, const char *text)
{
    int column = 0;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column && column + 1 + word > LINE_CHARS - INDENT) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%*s%.*s", column ? 1 : INDENT, "", word, text);
        text += word;
        text += *text == ' ';
    }
    fputc('\n', out);
}

/* Print text so that troff takes no character of it as a request. */
static void troff(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void show_text(FILE *out, const struct key *key)
{
    char allowed[TEXT_BYTES];
    key_describe(key, allowed, sizeof allowed);
    fprintf(out, "%s (%s; default %s)\n", key->name, allowed,
            *key->initial ? key->initial : "none");
    wrapped(out, key->help);
}

static void show_man(FILE *out, const struct key *key)
{
    char allowed[TEXT_BYTES], row[ROW_BYTES];
    key_describe(key, allowed, sizeof allowed);
    snprintf(row, sizeof row, ".TP\n.B %s\n(%s; default %s)\n.br\n%s.\n", key->name, allowed,
             *key->initial ? key->initial : "none", key->help);
    troff(out, row);
}

/* "8.03 B", "124 M" */
static const char *count_text(int64_t count, char *text, size_t size)
{
    double millions = (double)count / 1e6;
    int billions = millions >= 1000;
    double shown = billions ? millions / 1000 : millions;
    snprintf(text, size, "%.*f %s",
             shown < 10    ? 2
             : shown < 100 ? 1
                           : 0,
             shown, billions ? "B" : "M");
    return text;
}

static void show_presets(FILE *out, enum config_format format)
{
    char count[32];
    fputs(format == CONFIG_MAN
              ? ".SH MODELS\n.B model.preset\nmay be one of these (layers, hidden, "
                "parameters).\n.nf\n"
              : "\nModels (model.preset):  layers  hidden  parameters\n",
          out);
    for (int i = 0; i < config_preset_count; i++) {
        const struct config_model *m = &config_presets[i];
        count_text(preset_params(m), count, sizeof count);
        if (format == CONFIG_MAN) {
            troff(out, m->preset);
            fprintf(out, ": %lld, %lld, %s\n", (long long)m->layers, (long long)m->hidden, count);
        } else
            fprintf(out, "%*s%-20s%6lld%8lld%12s\n", INDENT, "", m->preset, (long long)m->layers,
                    (long long)m->hidden, count);
    }
    if (format == CONFIG_MAN)
        fputs(".fi\n", out);
}

/* Is a row asked for?  only: NULL for all, a key, or a group. */
static int is_wanted(const char *name, const char *only)
{
    size_t length = only ? strlen(only) : 0;
    return !only || (!strncmp(name, only, length) && (!name[length] || name[length] == '.'));
}

int config_show(FILE *out, enum config_format format, const char *only)
{
    int shown = 0;
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        if (!is_wanted(key->name, only))
            continue;
        int group = key_opens_group(i);
        if (format == CONFIG_MAN && (group || !i))
            fprintf(out, ".SS %s%.*s\n", group ? "" : "top level", group, key->name);
        else if (group && shown)
            fputc('\n', out);
        if (format == CONFIG_MAN)
            show_man(out, key);
        else
            show_text(out, key);
        shown++;
    }
    if (shown && (!only || is_wanted("model.preset", only)))
        show_presets(out, format);
    return shown;
}
