/* machine_reader.c - see machine_reader.h.  A file is a map of machines, a machine a map of fields
 * and of groups of fields (machine_fields.h):
 *
 *     mine:
 *       like: h100                      # what is not given here is as there
 *       network: {bandwidth: 50 GB/s, ports: 1}
 */
#include "simulate/machine_reader.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/text.h"
#include "config/schema.h"
#include "simulate/machine_fields.h"

enum { KEY_MAX = 64 };

/* A machine that is being read. */
struct reading {
    struct machine *machine;
    unsigned char given[MACHINE_FIELDS_MOST]; /* per field */
    int line;                                 /* that an error is about */
};

struct machine *machine_list_find(const struct machine_list *list, const char *name)
{
    for (int i = 0; list && i < list->count; i++)
        if (!strcasecmp(list->machine[i].name, name))
            return &list->machine[i];
    return NULL;
}

const char *machine_list_names(const struct machine_list *list, char *text, size_t size,
                               const char *separator)
{
    text[0] = 0;
    for (int i = 0; i < list->count; i++)
        text_join(text, size, separator, "%s", list->machine[i].name);
    return text;
}

void machine_list_free(struct machine_list *list)
{
    for (int i = 0; i < list->count; i++)
        machine_free(&list->machine[i]);
    free(list->machine);
    *list = (struct machine_list){0};
}

static int unknown_key(const char *key, struct error *err)
{
    struct nearest nearest = {.wanted = key};
    for (int i = 0; i < machine_field_count; i++)
        nearest_try(&nearest, machine_fields[i].name, machine_fields[i].name);
    return error_set(err, "unknown key \"%.60s\"%s%s%s", key,
                     nearest.name ? ", did you mean \"" : "", nearest.name ? nearest.name : "",
                     nearest.name ? "\"?" : "");
}

static int read_field(struct reading *r, const char *key, const struct yaml_tree *node,
                      struct error *err)
{
    r->line = node->line;
    for (int i = 0; i < machine_field_count; i++) {
        if (strcmp(machine_fields[i].name, key) != 0)
            continue;
        if (node->kind != YAML_TREE_TEXT)
            return error_set(err, "%s: one value is wanted", key);
        if (r->given[i]++)
            return error_set(err, "%s is given twice", key);
        return machine_field_set(r->machine, &machine_fields[i], node->text, err);
    }
    return unknown_key(key, err);
}

static int is_group(const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < machine_field_count; i++)
        if (!strncmp(machine_fields[i].name, name, length) && machine_fields[i].name[length] == '.')
            return 1;
    return 0;
}

static int read_group(struct reading *r, const struct yaml_tree *group, struct error *err)
{
    char key[KEY_MAX];
    for (const struct yaml_tree *node = group->child; node; node = node->next) {
        r->line = node->line;
        if ((size_t)snprintf(key, sizeof key, "%s.%s", group->key, node->key) >= sizeof key)
            return error_set(err, "unknown key \"%.40s...\"", key);
        if (read_field(r, key, node, err))
            return -1;
    }
    return 0;
}

static int read_member(struct reading *r, const struct yaml_tree *node, struct error *err)
{
    r->line = node->line;
    if (!strcmp(node->key, "like"))
        return 0;
    if (machine_rows_is_table(node->key))
        return machine_rows_read(r->machine, node->key, node, &r->line, err);
    if (!is_group(node->key))
        return read_field(r, node->key, node, err);
    if (node->kind != YAML_TREE_MAP)
        return error_set(err, "%s: a map is wanted, as {...}", node->key);
    return read_group(r, node, err);
}

static void set_initial(struct machine *machine)
{
    char text[48];
    *machine = (struct machine){0};
    for (int i = 0; i < machine_field_count; i++) {
        const struct machine_field *field = &machine_fields[i];
        if (field->type == MACHINE_FIELD_SWITCH)
            machine_field_set(machine, field, field->initial > 0 ? "true" : "false", NULL);
        else if (field->initial > 0)
            machine_field_set(
                machine, field,
                machine_quantity_text(field->quantity, field->initial, text, sizeof text), NULL);
    }
}

/* Begin with the figures of the machine that this one is like, without the rows that were measured
 * there.  Returns 1, 0: it is like none, or -1 with err. */
static int begin(struct reading *r, const struct yaml_tree *node, const struct machine_list *list,
                 const struct machine_list *known, struct error *err)
{
    const struct yaml_tree *key = node->child;
    const struct machine *like;
    set_initial(r->machine);
    while (key && strcmp(key->key, "like") != 0)
        key = key->next;
    if (!key)
        return 0;
    r->line = key->line;
    if (key->kind != YAML_TREE_TEXT)
        return error_set(err, "like: the name of a machine is wanted");
    for (const struct yaml_tree *next = key->next; next; next = next->next)
        if (!strcmp(next->key, "like")) {
            r->line = next->line;
            return error_set(err, "like is given twice");
        }
    like = machine_list_find(list, key->text);
    like = like ? like : machine_list_find(known, key->text);
    if (!like)
        return error_set(err, "like: there is no machine \"%.40s\" before this one", key->text);
    *r->machine = *like;
    r->machine->product = NULL;
    r->machine->op = NULL;
    r->machine->transfer = NULL;
    r->machine->products = r->machine->ops = r->machine->transfers = 0;
    return 1;
}

static int check_name(const char *name, struct error *err)
{
    int bad = strlen(name) >= MACHINE_NAME;
    for (const char *c = name; *c; c++)
        bad |= !isalnum((unsigned char)*c) && !strchr("-_.", *c);
    return bad ? error_set(err, "\"%.60s\" is not a name of at most %d letters, digits, -, _ and .",
                           name, MACHINE_NAME - 1)
               : 0;
}

static int check_complete(const struct reading *r, int is_like, struct error *err)
{
    int peaks = 0;
    for (int i = 0; i < machine_field_count && !is_like; i++)
        if (machine_fields[i].needed && !r->given[i])
            return error_set(err, "no %s (like: NAME takes what is not given from machine NAME)",
                             machine_fields[i].name);
    for (int i = 0; i < DTYPE_COUNT; i++)
        peaks += r->machine->peak[i].flops_per_s > 0;
    return peaks ? 0 : error_set(err, "no peak of any format");
}

static int read_machine(struct reading *r, const struct yaml_tree *node,
                        const struct machine_list *list, const struct machine_list *known,
                        struct error *err)
{
    char name[MACHINE_NAME];
    r->line = node->line;
    if (check_name(node->key, err))
        return -1;
    if (node->kind != YAML_TREE_MAP)
        return error_set(err, "a map of what the machine has is wanted");
    if (machine_list_find(list, node->key))
        return error_set(err, "a second machine of that name");
    int is_like = begin(r, node, list, known, err);
    if (is_like < 0)
        return -1;
    snprintf(name, sizeof name, "%s", node->key);
    memcpy(r->machine->name, name, sizeof name);
    for (const struct yaml_tree *member = node->child; member; member = member->next)
        if (read_member(r, member, err))
            return -1;
    r->line = node->line;
    return check_complete(r, is_like, err);
}

int machine_list_read(struct machine_list *list, const struct machine_list *known, const char *name,
                      const char *text, size_t bytes, struct error *err)
{
    struct yaml_tree *tree;
    int rc = 0;
    if (yaml_tree_read(&tree, name, text, bytes, err))
        return -1;
    for (const struct yaml_tree *node = tree->child; node && !rc; node = node->next) {
        struct machine machine = {0};
        struct reading reading = {.machine = &machine};
        rc = read_machine(&reading, node, list, known, err);
        list->machine =
            array_grow(list->machine, list->count, &list->capacity, sizeof *list->machine);
        list->machine[list->count++] = machine;
        if (rc)
            error_prefix(err, "%s:%d: %.47s", name, reading.line, node->key);
    }
    if (!rc && !list->count)
        rc = error_set(err, "%s: there is no machine in it", name);
    yaml_tree_free(tree);
    return rc ? -1 : 0;
}
