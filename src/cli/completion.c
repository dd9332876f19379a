/* completion.c - trireme completion bash: printing the shell's completion, made of this program's
 * tables of commands, keys, models and machines. */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "config/schema.h"
#include "io/chat.h"
#include "simulate/machine_file.h"

/* The function that completes, printed after the functions and variables with the words.  bash
 * splits "key=value" at the '=' unless COMP_WORDBREAKS was changed; the code handles both. */
static const char function[] =
    "_trireme() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} key='' start=''\n"
    "    COMPREPLY=()\n"
    "    if [[ $COMP_CWORD -gt 2 && $cur == = ]]; then\n"
    "        key=$prev cur=''\n"
    "    elif [[ $COMP_CWORD -gt 3 && $prev == = ]]; then\n"
    "        key=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    elif [[ $cur == *=* ]]; then\n"
    "        key=${cur%%=*} start=$key= cur=${cur#*=}\n"
    "    elif [[ $prev == -* ]]; then\n"
    "        key=$prev\n"
    "    fi\n"
    "    if [[ $COMP_CWORD -eq 1 || ($COMP_CWORD -eq 2 && $prev == help) ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$_trireme_commands\" -- \"$cur\"))\n"
    "        return\n"
    "    fi\n"
    "    if [[ -n $key ]] && _trireme_values \"$key\"; then\n"
    "        if [[ $REPLY == FILE* ]]; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            COMPREPLY=($(compgen -P \"$start\" -W \"${REPLY#FILE}\" -- \"$cur\")\n"
    "                $(compgen -P \"$start\" -f -- \"$cur\"))\n"
    "        else\n"
    "            COMPREPLY=($(compgen -P \"$start\" -W \"$REPLY\" -- \"$cur\"))\n"
    "        fi\n"
    "        return\n"
    "    fi\n"
    "    _trireme_arguments \"${COMP_WORDS[1]}\"\n"
    "    if [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$REPLY --help\" -- \"$cur\"))\n"
    "    elif [[ $REPLY == KEYS* ]]; then\n"
    "        COMPREPLY=($(compgen -S = -W \"$_trireme_keys\" -- \"$cur\"))\n"
    "        if [[ ${#COMPREPLY[@]} -gt 0 ]]; then\n"
    "            compopt -o nospace 2>/dev/null\n"
    "        else\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "        fi\n"
    "    elif [[ $REPLY == WORDS* && $COMP_CWORD -eq 2 ]]; then\n"
    "        COMPREPLY=($(compgen -W \"${REPLY#WORDS}\" -- \"$cur\"))\n"
    "    else\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -F _trireme trireme\n";

static void print_commands(void)
{
    const struct key *key;
    printf("_trireme_commands='");
    for (int i = 0; i < command_count; i++)
        printf("%s ", commands[i].name);
    printf("help version'\n_trireme_keys='");
    for (int i = 0; (key = key_at(i)); i++)
        printf("%s%s", i ? " " : "", key->name);
    printf("'\n");
}

/* Print a function that sets REPLY to what a command takes: "KEYS" where it takes keys, "WORDS" and
 * its words, or nothing; then its options. */
static void print_arguments(void)
{
    printf("_trireme_arguments() {\n    REPLY=\n    case $1 in\n");
    for (int i = 0; i < command_count; i++) {
        const struct command *c = &commands[i];
        printf("    %s) REPLY='%s%s", c->name,
               c->takes_keys ? "KEYS"
               : c->words    ? "WORDS"
                             : "",
               c->words ? " " : "");
        printf("%s", c->words ? c->words : "");
        for (const struct command_option *o = c->options; o->name; o++)
            printf(" %s", o->name);
        printf("' ;;\n");
    }
    printf("    esac\n}\n");
}

static void print_choices(const struct key *key)
{
    printf("    %s) REPLY='", key->name);
    for (const struct key_choice *c = key->choices; c->name; c++)
        if (c->value != CHOICE_LATER)
            printf("%s ", c->name);
    printf("' ;;\n");
}

static void print_option_values(void)
{
    char names[256];
    chat_names(names, sizeof names);
    for (char *comma = names; (comma = strchr(comma, ',')); comma++)
        *comma = ' ';
    printf("    --chat-template) REPLY='%s' ;;\n", names);
}

/* Print a function that sets REPLY to the values of a key or option, after "FILE" where a file may
 * be meant; it returns 1 where nothing is known of the name. */
static void print_values(void)
{
    char machines[512];
    printf("_trireme_values() {\n    case $1 in\n");
    const struct key *key;
    for (int i = 0; (key = key_at(i)); i++) {
        if (key->choices)
            print_choices(key);
        else if (key->type == KEY_BOOL)
            printf("    %s) REPLY='true false' ;;\n", key->name);
        else if (key->type == KEY_TEXT && strcmp(key->name, "model.preset") != 0)
            printf("    %s) REPLY=FILE ;;\n", key->name);
    }
    printf("    model.preset) REPLY='");
    for (int i = 0; i < config_preset_count; i++)
        printf("%s ", config_presets[i].preset);
    printf("' ;;\n    --machine) REPLY='FILE %s' ;;\n",
           machine_names(machines, sizeof machines, " "));
    printf("    --show) REPLY=$_trireme_keys ;;\n    --tokenizer) REPLY=FILE ;;\n");
    print_option_values();
    for (int i = 0; i < command_count; i++)
        for (const struct command_option *o = commands[i].options; o->name; o++)
            if (o->words)
                printf("    %s) REPLY='%s' ;;\n", o->name, o->words);
            else if (o->value && !strcmp(o->value, "FILE"))
                printf("    %s) REPLY=FILE ;;\n", o->name);
    printf("    *) return 1 ;;\n    esac\n}\n");
}

int command_completion(struct app *app, int argc, char **argv, struct error *err)
{
    if (argc != 2 || strcmp(argv[1], "bash") != 0)
        return error_set(err, "completion is for bash: trireme completion bash");
    printf("# bash completion of trireme, made by trireme completion bash\n");
    print_commands();
    print_arguments();
    print_values();
    fputs(function, stdout);
    return 0;
}
