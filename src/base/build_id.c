/* build_id.c - the note NT_GNU_BUILD_ID of the program itself, as it lies in memory. */
#include "base/build_id.h"

#include <link.h>
#include <string.h>

#include "base/text.h"

/* Append to data, a text, the build id of a loaded object in hexadecimal.  Returns 1, which ends
 * the search: the program itself is the first object. */
static int find_build_id(struct dl_phdr_info *object, size_t size, void *data)
{
    char *text = data;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        const char *at = (const char *)(object->dlpi_addr + header->p_vaddr);
        const char *end = at + header->p_memsz;
        while (header->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const char *name = at + sizeof *note, *id = name + (note->n_namesz + 3u) / 4 * 4;
            if (note->n_type == NT_GNU_BUILD_ID && !strncmp(name, "GNU", note->n_namesz))
                for (unsigned byte = 0; byte < note->n_descsz; byte++)
                    text_append(text, BUILD_ID, "%02x", (unsigned char)id[byte]);
            at = id + (note->n_descsz + 3u) / 4 * 4;
        }
    }
    return 1;
}

const char *build_id(char text[BUILD_ID])
{
    text[0] = 0;
    dl_iterate_phdr(find_build_id, text);
    return text;
}
