/* machine_reader.h - machines out of the text of a file. */
#ifndef TRIREME_SIMULATE_MACHINE_READER_H
#define TRIREME_SIMULATE_MACHINE_READER_H

#include "base/error.h"
#include "config/yaml.h"
#include "simulate/machine.h"

/* In the order of a file; {0} has none. */
struct machine_list {
    struct machine *machine;
    int count, capacity;
};

/* Append the machines of a text of so many bytes; name: where it came from, for err.  A machine may
 * be like one before it, or like one of known (NULL: none).  Returns 0, or -1 with err naming the
 * line.  Either way list is for machine_list_free(). */
int machine_list_read(struct machine_list *list, const struct machine_list *known, const char *name,
                      const char *text, size_t bytes, struct error *err);
void machine_list_free(struct machine_list *list);

/* The machine of a name, in any case, or NULL. */
struct machine *machine_list_find(const struct machine_list *list, const char *name);

/* The machines' names in text of so many bytes, with separator between them.  Returns text. */
const char *machine_list_names(const struct machine_list *list, char *text, size_t size,
                               const char *separator);

/* Append to a machine the rows of a table: "products", "ops" or "transfers"; line: that of the row
 * that err is about.  Returns 0, or -1 with err. */
int machine_rows_read(struct machine *machine, const char *table, const struct yaml_tree *rows,
                      int *line, struct error *err);

/* Is name that of a table? */
int machine_rows_is_table(const char *name);

#endif
