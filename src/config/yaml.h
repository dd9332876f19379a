/* yaml.h - a YAML text as a tree, for files that are not configurations, such as machine files;
 * config_text_read() in schema.h reads configurations.
 *
 * Maps, lists and texts are taken; aliases, tags and further documents are refused, so that nothing
 * is read and then ignored.
 */
#ifndef TRIREME_CONFIG_YAML_H
#define TRIREME_CONFIG_YAML_H

#include <stddef.h>

#include "base/error.h"

enum yaml_tree_kind { YAML_TREE_TEXT, YAML_TREE_MAP, YAML_TREE_LIST };

struct yaml_tree {
    enum yaml_tree_kind kind;
    char *key;               /* of a member of a map, else NULL; the same key may come twice */
    char *text;              /* of YAML_TREE_TEXT, else NULL; "" where nothing is given */
    int line;                /* from 1 */
    struct yaml_tree *child; /* first member of this map or list, or NULL */
    struct yaml_tree *next;  /* next member of the map or list that this is in, or NULL */
};

/* Read a text of `bytes` bytes into a tree, whose root is a map; name: where the text came from,
 * for err.  Returns 0 and a tree for yaml_tree_free(), or -1 with err naming the line and *tree
 * NULL. */
int yaml_tree_read(struct yaml_tree **tree, const char *name, const char *text, size_t bytes,
                   struct error *err);
void yaml_tree_free(struct yaml_tree *tree); /* NULL is allowed */

#endif
