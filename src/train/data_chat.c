/* data_chat.c - see data_chat.h. */
#include "train/data_chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/chat.h"
#include "io/disk.h"

/* The first file that names a chat template, another one than `than` unless that is NULL; NULL:
 * there is none. */
static const struct tokens *find_file(const struct dataset *data, const char *than)
{
    for (int f = 0; f < data->files; f++) {
        const struct tokens *tokens = &data->file[f].tokens;
        if (tokens->chat[0] && (!than || strcmp(tokens->chat, than) != 0))
            return tokens;
    }
    return NULL;
}

const char *data_chat_name(const struct dataset *data)
{
    const struct tokens *first = find_file(data, NULL);
    return first ? first->chat : "";
}

void data_chat_report_packing(struct log *log, const struct dataset *train)
{
    if (find_file(train, NULL) && train->options.packing == PACKING_STREAM)
        log_info(log, "data.train has conversations, and data.packing=stream lays them end to end "
                      "and cuts them where sequences end; documents keeps each apart and, where it "
                      "fits, whole");
}

void data_chat_report(struct log *log, const struct dataset *train, const struct dataset *valid)
{
    const struct tokens *one = find_file(train, NULL);
    const struct tokens *other = one ? find_file(train, one->chat) : NULL;
    const struct tokens *measured = one ? find_file(valid, one->chat) : NULL;
    if (other)
        log_warn(log,
                 "data.train: the conversations of %s are by chat template %s, and those of %s by "
                 "%s: the model learns both, and generate --chat takes %s",
                 one->path, one->chat, other->path, other->chat, one->chat);
    else if (measured)
        log_warn(log,
                 "data.valid: the conversations of %s are by chat template %s, and those of %s, "
                 "which are trained on, by %s",
                 measured->path, measured->chat, one->path, one->chat);
}

void data_chat_report_folder(struct log *log, const char *chat, const char *folder,
                             const char *exported)
{
    const struct chat_template *found = NULL;
    if (!chat || !chat[0] || !disk_has(folder, "tokenizer.json"))
        return;
    char *path = array_format("%s/tokenizer.json", folder);
    int is_known = !chat_of_tokenizer(&found, path, NULL);
    if (!is_known || strcmp(chat_name(found), chat) != 0)
        log_warn(log,
                 "%s: the run's data has conversations by chat template %s, and %s%s%s; other "
                 "programs write prompts by the folder's, which the model has not learned: give "
                 "them the program of %s, of a model that was published with it, as "
                 "chat_template.jinja beside the tokenizer",
                 exported, chat, folder, is_known ? " has " : " has none, or another one",
                 is_known ? chat_name(found) : "", chat);
    free(path);
}
