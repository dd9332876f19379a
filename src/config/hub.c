/* hub.c - finding models in the cache of Hugging Face's tools, which has for each model
 *
 *   models--ORG--NAME/refs/main           a text: the commit at which branch main was downloaded
 *   models--ORG--NAME/snapshots/COMMIT/   the model's files at this commit, as links
 */
#include "config/hub.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"

static int is_plain(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

int hub_is_name(const char *name)
{
    size_t length = strcspn(name, "@");
    int slashes = 0;
    if (!isalnum((unsigned char)name[0]) || strstr(name, "..") || name[length - 1] == '/')
        return 0;
    for (size_t i = 0; i < length; i++) {
        slashes += name[i] == '/';
        if (!is_plain(name[i]) && name[i] != '/')
            return 0;
    }
    for (const char *c = name + length + (name[length] == '@'); *c; c++)
        if (!is_plain(*c))
            return 0;
    return slashes < 2;
}

/* The cache of Hugging Face's tools; "" where none of these variables is set.  Returns cache. */
static char *find_cache(char cache[CONFIG_TEXT])
{
    static const struct {
        const char *variable, *after; /* the first that is set counts */
    } places[] = {
        {.variable = "HF_HUB_CACHE", .after = ""},
        {.variable = "HUGGINGFACE_HUB_CACHE", .after = ""}, /* its name before */
        {.variable = "HF_HOME", .after = "/hub"},
        {.variable = "XDG_CACHE_HOME", .after = "/huggingface/hub"},
        {.variable = "HOME", .after = "/.cache/huggingface/hub"},
    };
    cache[0] = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !cache[0]; i++) {
        const char *value = getenv(places[i].variable);
        if (value && value[0])
            text_append(cache, CONFIG_TEXT, "%s%s", value, places[i].after);
    }
    return cache;
}

static int is_folder(const char *path)
{
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* Return the folder of a model, "CACHE/models--ORG--NAME", for free(). */
static char *model_folder(const char *name)
{
    char cache[CONFIG_TEXT], plain[CONFIG_TEXT] = "";
    for (const char *c = name; *c && *c != '@'; c++)
        text_append(plain, sizeof plain, *c == '/' ? "--" : "%c", *c);
    return array_format("%s/models--%s", find_cache(cache), plain);
}

int hub_find(const char *name, char folder[CONFIG_TEXT])
{
    const char *at = strchr(name, '@'), *revision = at && at[1] ? at + 1 : "main";
    char commit[CONFIG_TEXT];
    folder[0] = 0;
    text_append(folder, CONFIG_TEXT, "%s", name);
    if (!hub_is_name(name) || is_folder(name))
        return 0;
    char *model = model_folder(name), *ref = array_format("%s/refs/%s", model, revision);
    if (text_from_file(ref, NULL, commit, sizeof commit)) { /* the revision is a commit itself */
        commit[0] = 0;
        text_append(commit, sizeof commit, "%s", revision);
    }
    char *path = array_format("%s/snapshots/%s", model, commit);
    int found = strlen(path) < CONFIG_TEXT && is_folder(path);
    if (found) {
        folder[0] = 0;
        text_append(folder, CONFIG_TEXT, "%s", path);
    }
    free(path);
    free(ref);
    free(model);
    return found;
}

int hub_error_missing(const char *name, const char *what, struct error *err)
{
    char cache[CONFIG_TEXT], *here = getcwd(NULL, 0);
    int model = (int)strcspn(name, "@");
    const char *revision = name[model] && name[model + 1] ? name + model + 1 : NULL;
    int has_owner = memchr(name, '/', (size_t)model) != NULL;
    const char *model_name = has_owner ? name : "ORG/NAME";
    model = !has_owner ? 8 : model < 200 ? model : 200;
    error_set(err,
              "%.200s is %s below the working directory, %.150s, and not in the cache of Hugging "
              "Face's hub, %.150s; %s: hf download %.*s%s%.100s",
              name, what, here ? here : "which is not there any more", find_cache(cache),
              has_owner ? "bring it there" : "bring it here", model, model_name,
              revision ? " --revision " : "", revision ? revision : "");
    if (!has_owner && err) /* a folder here then has the name */
        text_append(err->text, sizeof err->text, " --local-dir %.200s", name);
    free(here);
    return -1;
}
