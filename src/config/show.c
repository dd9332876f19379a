/* show.c - the table of keys for people and for the man page. */
#include "config/schema.h"

#include <string.h>

enum { TEXT_BYTES = 320, LINE_CHARS = 78, INDENT = 4 };

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
    char allowed[TEXT_BYTES];
    key_describe(key, allowed, sizeof allowed);
    fputs(".TP\n.B ", out);
    troff(out, key->name);
    fputs("\n(", out);
    troff(out, allowed);
    fputs("; default ", out);
    troff(out, *key->initial ? key->initial : "none");
    fputs(")\n.br\n", out);
    troff(out, key->help);
    fputs(".\n", out);
}

/* Characters of the name up to its dot; 0 for a key of the top. */
static size_t group_length(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

static void show_presets(FILE *out, enum config_format format)
{
    fputs(format == CONFIG_MAN ? ".SH MODELS\n.B model.preset\nmay be\n"
                               : "\nModels (model.preset):\n",
          out);
    for (int i = 0; i < config_preset_count; i++) {
        if (format == CONFIG_MAN)
            troff(out, config_presets[i].preset);
        else
            fprintf(out, "%*s%s", INDENT, "", config_presets[i].preset);
        fputs(format == CONFIG_TEXT_TABLE    ? "\n"
              : i + 1 == config_preset_count ? ".\n"
                                             : ",\n",
              out);
    }
}

void config_show(FILE *out, enum config_format format)
{
    for (int i = 0; i < config_key_count; i++) {
        const char *name = config_keys[i].name, *before = i ? config_keys[i - 1].name : "";
        size_t length = group_length(name);
        int new_group = !i || length != group_length(before) || strncmp(name, before, length);
        if (new_group && format == CONFIG_MAN)
            fprintf(out, ".SS %s%.*s\n", length ? "" : "top level", (int)length, name);
        else if (new_group && i)
            fputc('\n', out);
        if (format == CONFIG_MAN)
            show_man(out, &config_keys[i]);
        else
            show_text(out, &config_keys[i]);
    }
    show_presets(out, format);
}
