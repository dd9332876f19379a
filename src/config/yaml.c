/* yaml.c - libyaml's one home: a text becomes a list of entries (schema.h), or a tree (yaml.h).
 *
 *     train:                 ENTRY_GROUP  train
 *       lr: 1e-3             ENTRY_VALUE  train.lr = "1e-3"
 *     data.valid:            ENTRY_EMPTY  data.valid
 *     data:                  ENTRY_GROUP  data
 *       train: [a.h5, {path: b.h5, weight: 2}]
 *                            ENTRY_VALUE  data.train = "a.h5,b.h5:weight=2"
 *
 * parse() hands the events of libyaml one by one to take(), which keeps in struct reader where it
 * is, or to build() for a tree.  Lists are taken for keys that allow them (struct key).  Other
 * lists, aliases, tags and further documents are refused, so that nothing is read and then ignored.
 */
#include "config/yaml.h"

#include "base/text.h"
#include "config/schema.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "base/array.h"
#include "base/round.h"

enum { FILE_MAX_BYTES = 1 << 20, DEPTH_MAX = 8, KEY_MAX_BYTES = 256 };

/* Where the reading of a configuration is. */
struct reader {
    struct config_file *file; /* the entries so far */
    char key[KEY_MAX_BYTES];  /* dotted name of the key whose value comes next */
    size_t ends[DEPTH_MAX];   /* of each open map: bytes of `key` that are the map's own name */
    int depth;                /* open maps */
    int line;                 /* of the event that is being read */
    int have_key;             /* 1: a key was read, and its value comes next */
    int key_line;             /* line of this key */
    int documents;            /* begun so far */
    int list;                 /* 1: a list is open */
    char items[CONFIG_FILES]; /* the list's texts so far, with commas between them */
    int in_item;              /* 1: an item of the list is open that is a map */
    char option[16];          /* the item's key whose value comes next; "": a key comes next */
    char path[CONFIG_TEXT];   /* the item's path so far */
    char options[128];        /* the item's other members so far, ":weight=2" */
};

/* O_NONBLOCK: do not wait for a writer where the path is a FIFO, which is then refused. */
int config_file_text(const char *path, char **text, size_t *bytes, struct error *err)
{
    struct stat info;
    ssize_t got = 1;
    int rc = 0;
    *text = array_make(FILE_MAX_BYTES + 2, 1);
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info))
        rc = error_file(err, "cannot open", path);
    else if (!S_ISREG(info.st_mode))
        rc = error_set(err, "%s is not a file", path);
    while (!rc && got > 0) {
        got = read(fd, *text + *bytes, FILE_MAX_BYTES + 1 - *bytes);
        rc = got < 0 ? error_errno(err, "cannot read %s", path) : 0;
        *bytes += rc ? 0 : (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    if (*bytes > FILE_MAX_BYTES)
        *bytes = max_bytes(*bytes, (size_t)info.st_size);
    return rc;
}

static int check_text(const char *path, const char *text, size_t bytes, struct error *err)
{
    if (bytes > FILE_MAX_BYTES)
        return error_set(err, "%s: %zu bytes are too many for a configuration (at most %d)", path,
                         bytes, FILE_MAX_BYTES);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
            return error_set(err, "%s is not a text file: byte 0x%02x at offset %zu", path, c, i);
    }
    return 0;
}

void config_file_add(struct config_file *file, const char *key, const char *value, int line,
                     enum config_entry_kind kind)
{
    file->entries = array_grow(file->entries, file->count, &file->capacity, sizeof *file->entries);
    file->entries[file->count++] = (struct config_entry){.key = array_text(key),
                                                         .value = value ? array_text(value) : NULL,
                                                         .line = line,
                                                         .kind = kind};
}

static void add(struct reader *r, const char *value, enum config_entry_kind kind)
{
    config_file_add(r->file, r->key, value, r->key_line, kind);
}

/* Append a map's key to the dotted name of the maps around it. */
static int take_key(struct reader *r, const char *name, size_t length, struct error *err)
{
    size_t before = r->ends[r->depth - 1];
    if (length == 0 || strlen(name) != length)
        return error_set(err, "an empty key");
    if (before + length + 2 > sizeof r->key)
        return error_set(err, "unknown key \"%.60s...\"", name);
    snprintf(r->key + before, sizeof r->key - before, "%s%s", before ? "." : "", name);
    r->have_key = 1;
    r->key_line = r->line;
    return 0;
}

static int is_null(const char *value)
{
    return !*value || !strcmp(value, "~") || !strcmp(value, "null") || !strcmp(value, "Null") ||
           !strcmp(value, "NULL");
}

static int refuse_tag(const yaml_char_t *tag, struct error *err)
{
    return tag ? error_set(err, "tags such as %.40s are not understood", (const char *)tag) : 0;
}

static int take_scalar(struct reader *r, const yaml_event_t *event, struct error *err)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    int plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (refuse_tag(event->data.scalar.tag, err))
        return -1;
    if (!r->depth && plain && is_null(text))
        return 0;
    if (!r->depth)
        return error_set(err, "expected \"key: value\", found \"%.60s\"", text);
    if (!r->have_key)
        return take_key(r, text, length, err);
    r->have_key = 0;
    if (strlen(text) != length)
        return error_set(err, "%s: the text holds a NUL character", r->key);
    if (plain && is_null(text))
        add(r, NULL, ENTRY_EMPTY);
    else
        add(r, text, ENTRY_VALUE);
    return 0;
}

static int take_map(struct reader *r, const yaml_event_t *event, struct error *err)
{
    if (refuse_tag(event->data.mapping_start.tag, err))
        return -1;
    if (r->depth && !r->have_key)
        return error_set(err, "a map cannot be a key");
    if (r->depth == DEPTH_MAX)
        return error_set(err, "maps are nested more than %d deep", DEPTH_MAX);
    if (r->have_key)
        add(r, NULL, ENTRY_GROUP);
    r->ends[r->depth++] = r->have_key ? strlen(r->key) : 0;
    r->have_key = 0;
    return 0;
}

/* Begin a list, where the key takes one. */
static int take_list(struct reader *r, const yaml_event_t *event, struct error *err)
{
    const struct key *key = r->have_key && !r->list ? key_find(r->key) : NULL;
    if (refuse_tag(event->data.sequence_start.tag, err))
        return -1;
    if (!key || !key->list)
        return error_set(err, "%s%slists are not understood, give one value",
                         r->have_key ? r->key : "", r->have_key ? ": " : "");
    r->list = 1;
    r->items[0] = 0;
    return 0;
}

static int add_item(struct reader *r, const char *text, struct error *err)
{
    if (strlen(r->items) + strlen(text) + 2 > sizeof r->items)
        return error_set(err, "%s: a list of more than %zu characters", r->key,
                         sizeof r->items - 1);
    if (!*text)
        return error_set(err, "%s: an item of the list is empty", r->key);
    if (strchr(text, ','))
        return error_set(
            err,
            "%s: \"%.40s\" has a comma, which separates the items of a list; give a file "
            "another name, or a link that has one",
            r->key, text);
    text_join(r->items, sizeof r->items, ",", "%s", text);
    return 0;
}

/* Is `name` one of options, "a|b"? */
static int is_option(const char *options, const char *name)
{
    size_t length = strlen(name);
    for (; options && length; options = strchr(options, '|') ? strchr(options, '|') + 1 : NULL)
        if (!strncmp(options, name, length) && (options[length] == '|' || !options[length]))
            return 1;
    return 0;
}

static int begin_item(struct reader *r, const yaml_event_t *event, struct error *err)
{
    if (refuse_tag(event->data.mapping_start.tag, err))
        return -1;
    if (r->in_item || !key_find(r->key)->options)
        return error_set(err, "%s: a map in a list", r->key);
    r->in_item = 1;
    r->option[0] = r->path[0] = r->options[0] = 0;
    return 0;
}

/* Take a key or a value of an item that is a map. */
static int take_option(struct reader *r, const char *text, struct error *err)
{
    const char *options = key_find(r->key)->options;
    int is_path = !strcmp(r->option, "path");
    if (!r->option[0]) {
        if (strcmp(text, "path") && !is_option(options, text))
            return error_set(err, "%s: unknown key \"%.40s\" of an item; known: path|%s", r->key,
                             text, options);
        snprintf(r->option, sizeof r->option, "%s", text);
        return 0;
    }
    if (!*text || strlen(text) >= (is_path ? sizeof r->path : 40) ||
        (is_path                         ? r->path
         : strstr(r->options, r->option) ? "twice"
                                         : "")[0])
        return error_set(err, "%s: %s: \"%.40s\" is empty, too long, or given twice", r->key,
                         r->option, text);
    if (is_path)
        snprintf(r->path, sizeof r->path, "%s", text);
    else
        text_append(r->options, sizeof r->options, ":%s=%s", r->option, text);
    r->option[0] = 0;
    return 0;
}

static int end_item(struct reader *r, struct error *err)
{
    char text[sizeof r->path + sizeof r->options];
    r->in_item = 0;
    if (!r->path[0])
        return error_set(err, "%s: an item without a path", r->key);
    snprintf(text, sizeof text, "%s%s", r->path, r->options);
    return add_item(r, text, err);
}

static void end_list(struct reader *r)
{
    r->list = r->have_key = 0;
    add(r, r->items, ENTRY_VALUE);
}

/* Take a text of a list, or of an item that is a map; null is an empty one. */
static int take_text(struct reader *r, const yaml_event_t *event, struct error *err)
{
    const char *text = (const char *)event->data.scalar.value;
    int plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (refuse_tag(event->data.scalar.tag, err))
        return -1;
    if (strlen(text) != event->data.scalar.length)
        return error_set(err, "%s: the text holds a NUL character", r->key);
    if (plain && is_null(text))
        text = "";
    return r->in_item ? take_option(r, text, err) : add_item(r, text, err);
}

/* Take an event inside of a list. */
static int take_in_list(struct reader *r, const yaml_event_t *event, struct error *err)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT: return take_text(r, event, err);
    case YAML_MAPPING_START_EVENT: return begin_item(r, event, err);
    case YAML_MAPPING_END_EVENT: return end_item(r, err);
    case YAML_SEQUENCE_END_EVENT: end_list(r); return 0;
    case YAML_SEQUENCE_START_EVENT: return take_list(r, event, err);
    default: return error_set(err, "%s: aliases are not understood", r->key);
    }
}

static int take(void *reader, const yaml_event_t *event, int line, struct error *err)
{
    struct reader *r = reader;
    r->line = line;
    if (r->list)
        return take_in_list(r, event, err);
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (r->documents++)
            return error_set(err, "a second document starts here");
        return 0;
    case YAML_SCALAR_EVENT: return take_scalar(r, event, err);
    case YAML_MAPPING_START_EVENT: return take_map(r, event, err);
    case YAML_MAPPING_END_EVENT: r->depth--; return 0;
    case YAML_SEQUENCE_START_EVENT: return take_list(r, event, err);
    case YAML_ALIAS_EVENT:
        return error_set(err, "aliases (*%.40s) are not understood",
                         (const char *)event->data.alias.anchor);
    default: return 0;
    }
}

static int syntax_error(const yaml_parser_t *parser, const char *path, struct error *err)
{
    const char *problem = parser->problem ? parser->problem : "out of memory";
    const unsigned char *at = parser->buffer.pointer;
    if (parser->error == YAML_READER_ERROR)
        return error_set(err, "%s is not a text file: %s at offset %zu", path, problem,
                         parser->problem_offset);
    int is_of_block = parser->context && strstr(parser->context, "parsing a block");
    if (strstr(problem, "cannot start any token") && at < parser->buffer.last && *at == '\t')
        return error_set(err, "%s:%zu:%zu: a tab; YAML is indented by spaces", path,
                         parser->problem_mark.line + 1, parser->problem_mark.column + 1);
    return error_set(err, "%s:%zu:%zu: %s%s%s%s", path, parser->problem_mark.line + 1,
                     parser->problem_mark.column + 1, problem, parser->context ? " " : "",
                     parser->context ? parser->context : "",
                     is_of_block ? "; is it indented as the lines before?" : "");
}

/* Take one event of a text, whose line is `line`.  Returns 0, or -1 with err set. */
typedef int take_event(void *taker, const yaml_event_t *event, int line, struct error *err);

static int parse(take_event *take_one, void *taker, const char *path, const char *text,
                 size_t bytes, struct error *err)
{
    yaml_parser_t parser;
    yaml_event_t event;
    int rc = 0, ended = 0;
    if (!yaml_parser_initialize(&parser))
        return error_set(err, "%s: out of memory", path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    while (!rc && !ended) {
        if (!yaml_parser_parse(&parser, &event)) {
            rc = syntax_error(&parser, path, err);
            break;
        }
        int line = (int)event.start_mark.line + 1;
        rc = take_one(taker, &event, line, err) ? error_prefix(err, "%s:%d", path, line) : 0;
        ended = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return rc;
}

int config_text_read(struct config_file *file, const char *name, const char *text, size_t bytes,
                     struct error *err)
{
    struct reader reader = {.file = file};
    return check_text(name, text, bytes, err) || parse(take, &reader, name, text, bytes, err) ? -1
                                                                                              : 0;
}

void config_file_remove(struct config_file *file, int i)
{
    struct config_entry *e = &file->entries[i];
    free(e->key);
    free(e->value);
    memmove(e, e + 1, (size_t)(--file->count - i) * sizeof *e);
}

void config_file_free(struct config_file *file)
{
    for (int i = 0; i < file->count; i++) {
        free(file->entries[i].key);
        free(file->entries[i].value);
    }
    free(file->entries);
    *file = (struct config_file){0};
}

/* ---- trees ---- */

/* Where the building of a tree is. */
struct builder {
    struct yaml_tree root;
    struct yaml_tree *open[DEPTH_MAX]; /* the maps and lists that are open */
    struct yaml_tree **end[DEPTH_MAX]; /* of each: where the pointer to its next member goes */
    int depth, documents;              /* open maps and lists; documents begun */
    char *key;                         /* read, its value comes next; NULL: none */
};

static int is_open_map(const struct builder *b)
{
    return b->depth > 0 && b->open[b->depth - 1]->kind == YAML_TREE_MAP;
}

/* Append a member to the innermost open map or list.  A member that is itself a map or list is open
 * then. */
static int add_member(struct builder *b, enum yaml_tree_kind kind, const char *text, int line,
                      struct error *err)
{
    struct yaml_tree *member = &b->root;
    if (!b->depth && kind != YAML_TREE_MAP)
        return error_set(err, "expected \"key: value\"");
    if (is_open_map(b) && !b->key)
        return error_set(err, "a map or list cannot be a key");
    if (kind != YAML_TREE_TEXT && b->depth == DEPTH_MAX)
        return error_set(err, "maps and lists are nested more than %d deep", DEPTH_MAX);
    if (b->depth) {
        member = *b->end[b->depth - 1] = array_make(1, sizeof *member);
        b->end[b->depth - 1] = &member->next;
    }
    *member = (struct yaml_tree){
        .kind = kind, .key = b->key, .text = text ? array_text(text) : NULL, .line = line};
    b->key = NULL;
    if (kind != YAML_TREE_TEXT) {
        b->open[b->depth] = member;
        b->end[b->depth++] = &member->child;
    }
    return 0;
}

static int add_scalar(struct builder *b, const yaml_event_t *event, int line, struct error *err)
{
    const char *text = (const char *)event->data.scalar.value;
    int plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (event->data.scalar.tag)
        return error_set(err, "tags are not understood");
    if (strlen(text) != event->data.scalar.length)
        return error_set(err, "a text holds a NUL character");
    if (!b->depth && plain && is_null(text))
        return 0;
    if (!is_open_map(b) || b->key)
        return add_member(b, YAML_TREE_TEXT, plain && is_null(text) ? "" : text, line, err);
    if (!*text)
        return error_set(err, "an empty key");
    b->key = array_text(text);
    return 0;
}

static int build(void *builder, const yaml_event_t *event, int line, struct error *err)
{
    struct builder *b = builder;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return b->documents++ ? error_set(err, "a second document starts here") : 0;
    case YAML_SCALAR_EVENT: return add_scalar(b, event, line, err);
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.tag ? error_set(err, "tags are not understood")
                                             : add_member(b, YAML_TREE_MAP, NULL, line, err);
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.tag ? error_set(err, "tags are not understood")
                                              : add_member(b, YAML_TREE_LIST, NULL, line, err);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT: b->depth--; return 0;
    case YAML_ALIAS_EVENT:
        return error_set(err, "aliases (*%.40s) are not understood",
                         (const char *)event->data.alias.anchor);
    default: return 0;
    }
}

int yaml_tree_read(struct yaml_tree **tree, const char *name, const char *text, size_t bytes,
                   struct error *err)
{
    struct builder builder = {.root.kind = YAML_TREE_MAP};
    int rc = check_text(name, text, bytes, err) || parse(build, &builder, name, text, bytes, err);
    *tree = array_make(1, sizeof **tree);
    **tree = builder.root;
    free(builder.key);
    if (!rc)
        return 0;
    yaml_tree_free(*tree);
    *tree = NULL;
    return -1;
}

void yaml_tree_free(struct yaml_tree *tree)
{
    while (tree) {
        struct yaml_tree *next = tree->next;
        yaml_tree_free(tree->child);
        free(tree->key);
        free(tree->text);
        free(tree);
        tree = next;
    }
}
