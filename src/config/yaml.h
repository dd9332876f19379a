/* yaml.h - a YAML file as a tree, for what is not a configuration of keys (schema.h).
 *
 * Maps, lists and texts are taken; anchors' aliases, tags and further documents are refused, so
 * that nothing is read and then ignored.
 */
#ifndef TRIREME_CONFIG_YAML_H
#define TRIREME_CONFIG_YAML_H

#include <stddef.h>

#include "base/error.h"

enum yaml_tree_kind { YAML_TREE_TEXT, YAML_TREE_MAP, YAML_TREE_LIST };

struct yaml_tree {
    enum yaml_tree_kind kind;
    char *key;  /* of a member of a map, else NULL; the same key may come twice */
    char *text; /* of YAML_TREE_TEXT, else NULL; "" where nothing is given */
    int line;
    struct yaml_tree *child, *next; /* its first member; the next member of its map or list */
};

/* Read a text of so many bytes; name: where it came from, for err.  The tree is a map, for
 * yaml_tree_free().  Returns 0, or -1 with err naming the line, and *tree NULL. */
int yaml_tree_read(struct yaml_tree **tree, const char *name, const char *text, size_t bytes,
                   struct error *err);
void yaml_tree_free(struct yaml_tree *tree); /* NULL is allowed */

#endif
